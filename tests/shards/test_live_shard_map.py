"""The live shard map: its calls, its waits, and listings that are not sound. Any order of events, and what a
listing answers: test_live_shard_map_machine."""

from __future__ import annotations

import pytest

from kpl_codec.format.hash_keys import ALL_HASH_KEYS, MAX_HASH_KEY, HashKeyRange
from kpl_codec.shards.live_shard_map import Failure, LiveShardMap, Refreshed
from kpl_codec.shards.shard import Shard

from .model import ModelStream, pages, sequence_number

KEYS = [0, 1, 2**125, 2**126, 2**127 - 1, 2**127, 2**127 + 2**126, MAX_HASH_KEY]
THROTTLED = Failure("LimitExceededException")
NO_STREAM = Failure("ResourceNotFoundException")


def answer(live: LiveShardMap, now: float, listing, summary=None, size=100) -> Refreshed | None:
    """Refresh ``live``, and give it these responses; what came of it."""
    outcome = None
    live.refresh(now)
    listed = iter(pages(listing, size))
    while (request := live.next_request(now)) is not None:
        if request.operation == "DescribeStreamSummary":
            outcome = (
                live.receive(request, summary, now) if summary else live.fail(request, THROTTLED, now)
            ) or outcome
        else:
            outcome = live.receive(request, next(listed), now) or outcome
    return outcome


def fail(live: LiveShardMap, failure: Failure, now: float) -> Refreshed:
    """Let the call that is due now fail."""
    outcome = live.fail(live.next_request(now), failure, now)
    assert outcome is not None
    return outcome


def ready(shards=2, now=0.0, **settings_) -> tuple[LiveShardMap, ModelStream]:
    stream = ModelStream(shards, now=0)
    live = LiveShardMap("s", **settings_)
    answer(live, now, stream.open_shards(), stream.summary())
    assert live.state == "READY"
    return live, stream


def predicts(live: LiveShardMap, stream: ModelStream) -> bool:
    return [live.predict(key) for key in KEYS] == [stream.shard_for(key).shard_id for key in KEYS]


def open_ids(live: LiveShardMap) -> set[str]:
    return set(live.known.routes.shard_ids)


def refused(live, now, listing, summary=None) -> str:
    outcome = answer(live, now, listing, summary)
    assert outcome.error is live.error
    return outcome.error.code


# -- calls and waits ------------------------------------------------------------------------------


@pytest.mark.requirement("MAP-1", "MAP-6")
def test_the_calls_of_a_refresh():
    live, stream = LiveShardMap("s"), ModelStream(5, now=0)
    assert (live.state, live.next_request(0.0), live.timer()) == ("INVALID", None, None)
    assert live.refresh(1.0)
    requests = []
    responses = iter([stream.summary(), *pages(stream.open_shards(), 2)])
    while (request := live.next_request(1.2)) is not None:
        requests.append((request.operation, dict(request.arguments)))
        assert (live.state, live.predict(0)) == ("UPDATING", None)
        outcome = live.receive(request, next(responses), 1.3)
    filter_ = {"ShardFilter": {"Type": "AT_LATEST"}}
    assert requests == [
        ("DescribeStreamSummary", {"StreamName": "s"}),
        ("ListShards", {"StreamName": "s", **filter_, "MaxResults": 1000}),
        ("ListShards", {"NextToken": "token-0", "MaxResults": 1000}),
        ("ListShards", {"NextToken": "token-1", "MaxResults": 1000}),
    ]
    assert outcome == Refreshed(routes_changed=True)
    assert (live.state, live.timer(), live.known.listed_at) == ("READY", None, 1.0)


WAITS = [1.0, 1.5, 2.25, 3.375, 5.0625, 7.59375, 11.390625, 17.0859375, 25.62890625, 30, 30]
PERMANENT_WAITS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


@pytest.mark.requirement("MAP-8", "MAP-10")
@pytest.mark.parametrize(
    ("code", "waits"),
    [
        ("LimitExceededException", WAITS),
        ("ConnectionClosedError", WAITS),
        ("ResourceNotFoundException", PERMANENT_WAITS),
        ("AccessDeniedException", PERMANENT_WAITS),
    ],
)
def test_failures_are_told_at_once_and_tried_again_at_a_growing_distance(code, waits):
    live, stream = LiveShardMap("s", describe=False), ModelStream(2, now=0)
    permanent, now = waits is PERMANENT_WAITS, 5.0
    live.refresh(now)
    for wait in waits:
        error = fail(live, Failure(code, "why"), now).error
        assert (error.stream, error.operation, error.code, error.reason) == ("s", "ListShards", code, "why")
        assert (live.state, error.permanent) == ("INVALID", permanent)
        assert live.error is error
        assert live.permanent_error is (error if permanent else None)
        assert live.map_may_come is not permanent
        assert live.timer() == now + wait
        assert live.next_request(now + wait - 0.001) is None
        now += wait
    fail(live, Failure(code), now)
    assert live.refresh(now) == permanent  # who asks has changed something
    assert live.permanent_error is None
    now = now if permanent else live.timer()
    answer(live, now, stream.open_shards())
    assert (live.state, live.error) == ("READY", None)
    live.refresh(now)
    fail(live, THROTTLED, now)
    assert live.timer() == now + 1.0


@pytest.mark.requirement("MAP-10")
def test_each_wait_is_shortened_by_another_chance_by_at_most_half():
    chances = iter([0.0, 0.5, 1.0])
    live, now = LiveShardMap("s", describe=False, chance=lambda: next(chances)), 0.0
    live.refresh(now)
    for wait in (1.0, 1.5 * 0.75, 2.25 * 0.5):
        fail(live, THROTTLED, now)
        assert live.timer() == now + wait
        now += wait


@pytest.mark.requirement("MAP-17")
def test_only_a_stream_that_is_gone_ends_trust_in_a_map():
    for code in (THROTTLED.code, "AccessDeniedException", "ValidationException", "NoCredentialsError"):
        live, stream = ready(describe=False)
        live.refresh(5.0)
        fail(live, Failure(code), 5.0)
        assert (live.state, live.permanent_error) == ("READY", None)
        assert predicts(live, stream)
    for now in (5.0, 7.0, 11.0):  # (the third one would wait for 4 s)
        live.refresh(now)
        fail(live, NO_STREAM, now)
        assert (live.state, live.predict(0)) == ("INVALID", None)
    live.stream_seen(11.5)
    live.stream_seen(12.0)
    assert live.timer() == 12.5  # somebody has seen it: it is looked for again, once
    answer(live, 12.5, stream.open_shards())
    assert predicts(live, stream)


@pytest.mark.requirement("MAP-17")
def test_on_a_coarse_clock_a_listing_under_way_does_not_show_that_the_stream_is_there():
    live, stream = ready(describe=False)
    live.refresh(5.0)
    request = live.next_request(5.0)
    live.stream_gone(5.0)
    (page,) = pages(stream.shards, 9)
    live.receive(request, page, 5.0)
    assert (live.state, live.predict(0)) == ("UPDATING", None)
    answer(live, 5.0, stream.shards)
    assert predicts(live, stream)


@pytest.mark.requirement("MAP-10", "MAP-15")
@pytest.mark.parametrize("has_hole", [True, False])
def test_reports_in_vain_start_few_refreshes_until_one_changes_the_map(has_hole):
    stream = ModelStream(2, now=0)
    one, other = stream.open_shards()
    listing = [one.replace(hash_key_range=HashKeyRange(1, 2**127 - 1)), other] if has_hole else [one, other]
    live, calls = LiveShardMap("s", describe=False), 0
    live.refresh(0.9)
    for now in (tenth / 10 for tenth in range(10, 1210)):  # of each record it is said to be on another shard
        while (request := live.next_request(now)) is not None:
            calls += 1
            live.receive(request, pages(listing, 9)[0], now)
        live.invalidate(now, other.shard_id, now)
    assert 7 <= calls <= 14
    stream.split(0)
    now = live.timer() or now
    answer(live, now, stream.open_shards())
    assert live.invalidate(now + 0.1, other.shard_id, now + 0.1)


# -- responses ------------------------------------------------------------------------------------


@pytest.mark.requirement("MAP-14")
def test_answers_of_any_shape_are_failures_and_not_crashes():
    token = {"Shards": [], "NextToken": ["a"]}
    for page in (None, [], "x", {"Shards": {}}, token, {"Shards": ["x"]}, {"Shards": [{"ShardId": 5}]}):
        for summary in (None, [], {"StreamDescriptionSummary": ["x"]}):
            live, _ = ready()
            live.refresh(5.0)
            assert live.receive(live.next_request(5.0), summary, 5.0) is None
            assert live.receive(live.next_request(5.0), page, 5.0).error.code == "malformed"
            assert live.state == "READY"


@pytest.mark.requirement("MAP-8", "MAP-13")
def test_describing_is_optional_but_a_stream_that_is_not_there_is_not():
    for code in ("AccessDeniedException", "LimitExceededException", "ReadTimeoutError"):
        live, stream = LiveShardMap("s"), ModelStream(1, now=0)
        live.refresh(0)
        assert live.fail(live.next_request(0), Failure(code), 0) is None
        assert live.next_request(0).operation == "ListShards"
    live = LiveShardMap("s")
    live.refresh(0)
    assert fail(live, NO_STREAM, 0).error.operation == "DescribeStreamSummary"
    # an answer cut short comes out of botocore as an empty one: the strategy stays as known
    auto = stream.summary()
    auto["StreamDescriptionSummary"]["RecordDistributionStrategy"] = "AUTO"
    answer(live, 0, stream.open_shards(), auto)
    assert (live.state, live.predict(0)) == ("READY", None)
    live.refresh(1)
    live.receive(live.next_request(1), {}, 1)
    answer(live, 1, stream.open_shards())
    assert live.known.shard_map.distribution == "AUTO"
    answer(live, 2, stream.open_shards(), stream.summary())
    assert live.predict(0) == "shardId-000000000000"


# -- listings that are not sound ------------------------------------------------------------------


@pytest.mark.requirement("MAP-7")
def test_unsound_listings_are_refused_and_the_old_ranges_kept():
    live, stream = ready(3)
    whole = stream.open_shards()
    ends = {"starting_sequence_number": "1", "ending_sequence_number": "2"}
    closed = {"hash_key_range": ALL_HASH_KEYS, **ends}
    now = 10.0
    for listing, code in [
        ([], "empty"),
        (whole[1:], "gap"),
        (whole[:2], "gap"),
        ([*whole, whole[0].replace(shard_id="shardId-000000000007")], "overlap"),
        ([whole[0].replace(parent_shard_id="shardId-000000000000"), *whole[1:]], "contradiction"),
        ([*whole, whole[0].replace(starting_sequence_number="5")], "duplicate"),
        (
            [*whole, Shard("a", parent_shard_id="b", **closed), Shard("b", parent_shard_id="a", **closed)],
            "cycle",
        ),
    ]:
        assert refused(live, now, listing, stream.summary()) == code
        assert live.known.shard_map.open_shards == tuple(whole)
        now = live.timer()
        answer(live, now, whole, stream.summary())
        assert live.state == "READY"
        now += 100


@pytest.mark.requirement("MAP-12")
def test_a_parent_listed_as_open_with_its_children():
    live, stream = ready(2)
    parent = stream.open_shards()[0]
    stream.split(0)
    child = stream.shard_for(0)
    stream.split(0)  # a grandchild too; and the same again, then without the parent, then with its end
    for listing in ([parent, child, *stream.open_shards()], stream.open_shards(), stream.shards):
        answer(live, 2.0, listing, stream.summary())
        assert predicts(live, stream)
    assert live.known.lineage[parent.shard_id].open is False


@pytest.mark.requirement("MAP-11")
def test_an_older_listing_than_the_last_is_no_new_life():
    live, stream = ready(2)
    old = stream.open_shards()
    stream.split(0)
    answer(live, 1.0, stream.open_shards(), stream.summary())
    for summary in (stream.summary(), None):
        assert refused(live, 50.0, old, summary) == "contradiction"
        answer(live, live.timer(), stream.open_shards(), stream.summary())
    assert live.known.generation == 0
    # With closed shards: the older one still has those that have expired since.
    live = LiveShardMap("s", describe=False, shard_filter="FROM_TRIM_HORIZON")
    answer(live, 0.0, stream.open_shards())
    assert not answer(live, 1.0, stream.shards).recreated
    assert set(live.known.all) == {shard.shard_id for shard in stream.shards}


@pytest.mark.requirement("MAP-16")
def test_a_contradiction_that_stays_is_a_new_life():
    """A server without starting numbers or creation times: nothing else tells the two streams apart."""

    def bare(stream):
        return [shard.replace(starting_sequence_number=None) for shard in stream.open_shards()]

    live, stream = LiveShardMap("s", describe=False), ModelStream(2, now=0)
    answer(live, 0.0, bare(stream))
    stream.split(0)
    answer(live, 1.0, bare(stream))
    now = 2.0
    live.refresh(now)
    for _ in range(3):
        assert refused(live, now, bare(ModelStream(2, now=9))) == "contradiction"
        assert live.predict(0) == "shardId-000000000002"  # a routine refresh: the map stays trusted
        now = live.timer()
    assert answer(live, now, bare(ModelStream(2, now=9))).recreated
    assert live.predict(0) == "shardId-000000000000"


@pytest.mark.requirement("MAP-11")
@pytest.mark.parametrize("described", [True, False])
def test_a_new_life_under_the_old_name(described):
    live, stream = ready(2)
    stream.split(0)
    answer(live, 1.0, stream.open_shards(), stream.summary())
    new = ModelStream(2, now=500)
    assert answer(live, 2.0, new.open_shards(), new.summary() if described else None).recreated
    assert (live.known.generation, set(live.known.lineage)) == (1, {s.shard_id for s in new.shards})
    assert predicts(live, new)


@pytest.mark.requirement("MAP-11")
def test_children_that_become_visible_late_are_no_new_life():
    live, stream = ready(2)
    first = stream.open_shards()[0]
    stream.split(0)  # 2, 3
    stream.split(2)  # 4, 5, of shard 1: and only these are listed yet
    visible = [first, *(s for s in stream.open_shards() if s.shard_id[-1] in "45")]
    answer(live, 1.0, visible)
    assert not answer(live, 2.0, stream.open_shards()).recreated
    assert open_ids(live) == {s.shard_id for s in stream.open_shards()}


def test_shards_with_names_of_another_kind():
    live = LiveShardMap("s", describe=False)
    answer(live, 0, [Shard("b", ALL_HASH_KEYS)])
    listing = [Shard("a", HashKeyRange(0, 9)), Shard("c", HashKeyRange(10, MAX_HASH_KEY))]
    assert not answer(live, 1, listing).recreated
    assert open_ids(live) == {"a", "c"}


@pytest.mark.requirement("MAP-18")
def test_the_shard_of_a_record_is_never_one_of_another_life():
    live, stream = ready(1, now=10.0)
    shard = stream.shards[0]
    mine = sequence_number(0, 0, 5)  # given out by the shard that was made at 0
    others = sequence_number(0, 500, 505)  # by one of the same id that was made at 500

    def of(number, generation, answered_at):
        found = live.shard_of_record(shard.shard_id, number, generation=generation, answered_at=answered_at)
        return found if isinstance(found, str) else found.hash_key_range

    assert of(mine, 0, 20.0) == of("123", 0, 20.0) == of("no number", 0, 20.0) == shard.hash_key_range
    assert of(others, 0, 20.0) == "unknown"
    new = ModelStream(4, now=500)
    live.stream_gone(21.0)
    assert of(mine, 0, 20.0) == of("123", 0, 20.0) == "unknown"
    answer(live, 21.0, new.open_shards(), new.summary())
    assert live.known.generation == 1
    assert of(others, 0, 20.0) == of("123", 1, 22.0) == new.shards[0].hash_key_range
    assert of(mine, 0, 20.0) == of("123", 0, 20.0) == "gone"
    # A server whose numbers only look like hints: listed again, it is still the same stream.
    assert of(mine, 1, 30.0) == "unknown"
    answer(live, 30.5, new.open_shards(), new.summary())
    assert of(mine, 1, 30.0) == new.shards[0].hash_key_range
