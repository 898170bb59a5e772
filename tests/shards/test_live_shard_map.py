"""The live shard map: its table of states, case by case. Any order of events: test_live_shard_map_machine."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kpl_codec.aws_errors import _RULES, is_permanent
from kpl_codec.errors import HashKeyError
from kpl_codec.format.hash_keys import ALL_HASH_KEYS, MAX_HASH_KEY, HashKeyRange
from kpl_codec.shards.live_shard_map import (
    Failure,
    LiveShardMap,
    MapChanged,
    RefreshFailed,
    StreamUnavailable,
)
from kpl_codec.shards.shard import Shard

from .model import ModelStream, pages, replace, sequence_number

KEYS = [0, 1, 2**125, 2**126, 2**127 - 1, 2**127, 2**127 + 2**126, MAX_HASH_KEY]
THROTTLED = Failure("LimitExceededException")


def answer(live: LiveShardMap, now: float, listing, summary=None, size=100):
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


def ready(shards=2, now=0.0, **settings_) -> tuple[LiveShardMap, ModelStream]:
    stream = ModelStream(shards, now=0)
    live = LiveShardMap("s", **settings_)
    answer(live, now, stream.open_shards(), stream.summary())
    assert live.state == "READY"
    return live, stream


def refused(live, now, listing, summary=None) -> str:
    outcome = answer(live, now, listing, summary)
    assert isinstance(outcome, RefreshFailed)
    return outcome.error.code


# -- the table of states --------------------------------------------------------------------------


@pytest.mark.requirement("MAP-1", "MAP-6")
def test_from_invalid_over_updating_to_ready():
    live, stream = LiveShardMap("s"), ModelStream(5, now=0)
    assert (live.state, live.next_request(0.0), live.timer(), live.shard_map) == ("INVALID", None, None, None)
    assert live.refresh(1.0)
    requests = []
    responses = iter([stream.summary(), *pages(stream.open_shards(), 2)])
    while (request := live.next_request(1.2)) is not None:
        requests.append((request.operation, dict(request.arguments)))
        assert live.next_request(1.2) is None  # one call at a time
        assert (live.state, live.predict(0)) == ("UPDATING", None)
        event = live.receive(request, next(responses), 1.3)
    filter_ = {"ShardFilter": {"Type": "AT_LATEST"}}
    assert requests == [
        ("DescribeStreamSummary", {"StreamName": "s"}),
        ("ListShards", {"StreamName": "s", **filter_, "MaxResults": 1000}),
        ("ListShards", {"NextToken": "token-0", "MaxResults": 1000}),
        ("ListShards", {"NextToken": "token-1", "MaxResults": 1000}),
    ]
    assert event == MapChanged(recreated=False)
    assert live.stream_state.listed_at == 1.0  # what happened before the refresh began is in it
    assert (live.state, live.timer()) == ("READY", None)
    assert [live.predict(k) for k in KEYS] == [stream.shard_for(k).shard_id for k in KEYS]
    with pytest.raises(HashKeyError):
        live.predict(-1)


@pytest.mark.requirement("MAP-3", "MAP-4", "MAP-5")
def test_reports_and_their_guards():
    live, stream = ready(now=10.0)
    stream.split(0)
    gone, other = "shardId-000000000000", "shardId-000000000001"
    assert not live.invalidate(9.0, gone, 11.0)  # sent before the map was asked for
    assert not live.invalidate(10.0, gone, 11.0)
    assert not live.invalidate(11.0, "shardId-000000000002", 11.0)  # the actual shard: never predicted
    assert live.state == "READY"
    assert live.invalidate(11.0, gone, 11.5)
    assert live.state == "UPDATING"
    for _ in range(100):
        assert not live.invalidate(11.0, gone, 11.5)
    assert live.predict(0) is None
    answer(live, 12.0, stream.open_shards(), stream.summary())
    assert live.predict(0) == "shardId-000000000002"
    assert not live.invalidate(11.2, other, 13.0)  # sent before that refresh began
    assert not live.invalidate(13.0, gone, 13.0)  # the map has learnt that
    assert live.invalidate(13.0, None, 13.0)  # landed somewhere without a prediction to be wrong


# -- failures -------------------------------------------------------------------------------------


@pytest.mark.requirement("MAP-10")
def test_backoff_grows_from_one_second_to_thirty_and_starts_anew():
    live, stream = LiveShardMap("s", describe=False), ModelStream(1, now=0)
    now, waits = 0.0, []
    live.refresh(now)
    for _ in range(12):
        event = live.fail(live.next_request(now), THROTTLED, now)
        assert isinstance(event, RefreshFailed)
        assert event.error.code == "LimitExceededException"
        assert not event.error.permanent
        waits.append(event.retry_at - now)
        assert live.state == "INVALID"
        assert not live.refresh(now)  # nobody hurries it
        assert live.next_request(event.retry_at - 0.001) is None
        assert live.timer() == event.retry_at
        now = event.retry_at
    assert waits == [1.0, 1.5, 2.25, 3.375, 5.0625, 7.59375, 11.390625, 17.0859375, 25.62890625, 30, 30, 30]
    assert live.error is not None
    answer(live, now, stream.open_shards())
    assert live.error is None
    live.invalidate(now + 1, None, now + 1)
    assert live.fail(live.next_request(now), THROTTLED, now).retry_at - now == 1.0


@pytest.mark.requirement("MAP-10")
def test_those_who_were_throttled_together_ask_again_one_by_one():
    chance = random.Random(5)
    lives = [LiveShardMap("s", describe=False, chance=chance.random) for _ in range(100)]
    for failures in range(8):
        for live in lives:
            live._start(0.0)
            live.fail(live.next_request(0.0), THROTTLED, 0.0)
        whole = min(30.0, 1.5**failures)
        tenths = Counter(int(20 * live.timer() / whole) for live in lives)
        assert set(tenths) == set(range(10, 20)), "from half of the wait to all of it"
        assert max(tenths.values()) < 30


@pytest.mark.requirement("MAP-8")
@pytest.mark.parametrize("code", sorted(code for code in _RULES if is_permanent(code)))
def test_permanent_errors_are_told_at_once_and_asked_again_at_growing_distance(code):
    live, stream = LiveShardMap("s", describe=False), ModelStream(2, now=0)
    live.refresh(5.0)
    now, pauses = 5.0, []
    for _ in range(11):
        event = live.fail(live.next_request(now), Failure(code, "why"), now)
        assert event.error == StreamUnavailable(
            stream="s", operation="ListShards", code=code, reason="why", permanent=True
        )
        assert live.state == "INVALID"
        assert live.permanent_error is event.error
        assert not live.map_may_come
        assert live.next_request(event.retry_at - 0.001) is None
        pauses.append(event.retry_at - now)
        now = live.timer()
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    live.fail(live.next_request(now), Failure(code), now)
    assert live.refresh(now)  # who asks has changed something: no waiting
    assert live.permanent_error is None
    answer(live, now, stream.open_shards())
    assert live.state == "READY"


@pytest.mark.requirement("MAP-17")
def test_only_a_stream_that_is_gone_ends_trust_in_a_map():
    for code in (THROTTLED.code, "AccessDeniedException", "ValidationException", "NoCredentialsError"):
        live, stream = ready(describe=False)
        live.refresh(5.0)
        live.fail(live.next_request(5.0), Failure(code), 5.0)
        assert live.state == "READY"
        assert live.predict(0) is not None
        assert live.permanent_error is None
    live.refresh(5.0)
    live.fail(live.next_request(5.0), Failure("ResourceNotFoundException"), 5.0)
    assert live.state == "INVALID"
    assert live.predict(0) is None
    assert not live.invalidate(6.0, None, 6.0)
    assert live.refresh(7.0)
    answer(live, 7.0, stream.open_shards())
    assert live.predict(0) is not None


@pytest.mark.requirement("MAP-14")
@pytest.mark.parametrize(
    "page",
    [
        None,
        [],
        "x",
        {"Shards": {}},
        {"Shards": [], "NextToken": ["a"]},
        {"Shards": ["x"]},
        {"Shards": [{"ShardId": 5}]},
    ],
    ids=str,
)
@pytest.mark.parametrize("summary", [None, [], {"StreamDescriptionSummary": ["x"]}], ids=str)
def test_answers_of_any_shape_are_failures_and_not_crashes(page, summary):
    live, _ = ready()
    live.refresh(5.0)
    assert live.receive(live.next_request(5.0), summary, 5.0) is None
    event = live.receive(live.next_request(5.0), page, 5.0)
    assert isinstance(event, RefreshFailed)
    assert event.error.code == "malformed"
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
    event = live.fail(live.next_request(0), Failure("ResourceNotFoundException"), 0)
    assert event.error.permanent
    assert event.error.operation == "DescribeStreamSummary"
    # an answer cut short comes out of botocore as an empty one: the strategy stays as known
    auto = stream.summary()
    auto["StreamDescriptionSummary"]["RecordDistributionStrategy"] = "AUTO"
    answer(live, 0, stream.open_shards(), auto)
    assert live.state == "READY"
    assert live.predict(0) is None
    live.refresh(1)
    live.receive(live.next_request(1), {}, 1)
    answer(live, 1, stream.open_shards())
    assert live.shard_map.distribution == "AUTO"
    answer(live, 2, stream.open_shards(), stream.summary())
    assert live.predict(0) == "shardId-000000000000"


def test_answers_to_other_requests_are_ignored():
    live, stream = LiveShardMap("s", describe=False), ModelStream(1, now=0)
    live.refresh(0)
    old = live.next_request(0)
    live.fail(old, THROTTLED, 0)
    assert live.receive(old, pages(stream.shards, 9)[0], 0.5) is None
    assert live.fail(old, Failure("AccessDeniedException"), 0.5) is None
    assert live.state == "INVALID"
    new = live.next_request(1)
    assert new != old
    live.receive(old, pages(stream.shards, 9)[0], 1)
    assert live.state == "UPDATING"
    live.receive(new, pages(stream.shards, 9)[0], 1)
    assert live.state == "READY"


# -- listings that are not sound ------------------------------------------------------------------


@pytest.mark.requirement("MAP-7")
def test_unsound_listings_are_refused_and_the_old_ranges_kept():
    live, stream = ready(3)
    whole = stream.open_shards()
    now = 10.0
    for listing, code in [
        ([], "empty"),
        (whole[1:], "gap"),
        (whole[:2], "gap"),
        ([*whole, replace(whole[0], shard_id="shardId-000000000007")], "overlap"),
        ([replace(whole[0], parent_shard_id="shardId-000000000000"), *whole[1:]], "contradiction"),
    ]:
        assert refused(live, now, listing, stream.summary()) == code
        assert live.shard_map.open_shards == tuple(whole)
        now = live.timer()
        answer(live, now, whole, stream.summary())
        assert live.state == "READY"
        now += 100


@pytest.mark.requirement("MAP-12")
def test_a_parent_listed_as_open_with_its_children():
    live, stream = ready(2)
    parent = stream.open_shards()[0]
    stream.split(0)
    event = answer(live, 1.0, [parent, *stream.open_shards()], stream.summary())
    assert live.stream_state.shards.open_ids == {s.shard_id for s in stream.open_shards()}
    assert [live.predict(k) for k in KEYS] == [stream.shard_for(k).shard_id for k in KEYS]
    # a grandchild too; and the same again, then without the parent, then with its end
    child = stream.shard_for(0)
    stream.split(0)
    for listing in ([parent, child, *stream.open_shards()], stream.open_shards(), stream.shards):
        event = answer(live, 2.0, listing, stream.summary())
        assert isinstance(event, MapChanged)
        assert [live.predict(k) for k in KEYS] == [stream.shard_for(k).shard_id for k in KEYS]
    assert live.lineage[parent.shard_id].open is False
    # half of the children is no replacement
    live.refresh(3.0)
    incomplete = [s for s in stream.open_shards() if s.hash_key_range.starting_hash_key != 0]
    assert refused(live, 3.0, incomplete, stream.summary()) == "gap"


@pytest.mark.requirement("MAP-11")
def test_an_older_listing_than_the_last_is_no_new_life():
    live, stream = ready(2)
    old = stream.open_shards()
    stream.split(0)
    answer(live, 1.0, stream.open_shards(), stream.summary())
    for summary in (stream.summary(), None):
        assert refused(live, 50.0, old, summary) == "contradiction"
        answer(live, live.timer(), stream.open_shards(), stream.summary())
    assert live.stream_state.generation == 0


@pytest.mark.requirement("MAP-16")
def test_a_contradiction_that_stays_is_a_new_life():
    """A server without starting numbers or creation times: nothing else tells the two streams apart."""

    def bare(stream):
        return [replace(shard, starting_sequence_number=None) for shard in stream.open_shards()]

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
    event = answer(live, now, bare(ModelStream(2, now=9)))
    assert event.recreated
    assert live.predict(0) == "shardId-000000000000"


@pytest.mark.requirement("MAP-11")
@pytest.mark.parametrize("described", [True, False])
@pytest.mark.parametrize(
    ("before", "after"), [(2, 2), (2, 3), (3, 1), (1, 5)], ids=lambda shards: f"{shards} shards"
)
def test_a_new_life_under_the_old_name(described, before, after):
    live, stream = ready(before)
    stream.split(0)
    answer(live, 1.0, stream.open_shards(), stream.summary())
    new = ModelStream(after, now=500)
    event = answer(live, 2.0, new.open_shards(), new.summary() if described else None)
    assert isinstance(event, MapChanged)
    assert event.recreated
    assert live.stream_state.shards.open_ids == {s.shard_id for s in new.shards}
    assert live.stream_state.generation == 1
    assert [live.predict(k) for k in KEYS] == [new.shard_for(k).shard_id for k in KEYS]
    assert set(live.lineage) == {s.shard_id for s in new.shards}


@pytest.mark.requirement("MAP-11")
def test_children_that_become_visible_late_are_no_new_life():
    live, stream = ready(2)
    first = stream.open_shards()[0]
    stream.split(0)  # 2, 3
    stream.split(2)  # 4, 5, of shard 1: and only these are listed yet
    visible = [first, *(s for s in stream.open_shards() if s.shard_id[-1] in "45")]
    answer(live, 1.0, visible)
    event = answer(live, 2.0, stream.open_shards())
    assert not event.recreated
    assert live.stream_state.shards.open_ids == {s.shard_id for s in stream.open_shards()}


def test_shards_with_names_of_another_kind():
    live = LiveShardMap("s", describe=False)
    answer(live, 0, [Shard("b", ALL_HASH_KEYS)])
    event = answer(live, 1, [Shard("a", HashKeyRange(0, 9)), Shard("c", HashKeyRange(10, MAX_HASH_KEY))])
    assert (live.stream_state.shards.open_ids, event.recreated) == ({"a", "c"}, False)


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
    assert live.stream_state.generation == 1
    assert of(others, 0, 20.0) == of("123", 1, 22.0) == new.shards[0].hash_key_range
    assert of(mine, 0, 20.0) == of("123", 0, 20.0) == "gone"
    # A server whose numbers only look like hints: listed again, it is still the same stream.
    assert of(mine, 1, 30.0) == "unknown"
    answer(live, 30.5, new.open_shards(), new.summary())
    assert of(mine, 1, 30.0) == new.shards[0].hash_key_range


@pytest.mark.requirement("MAP-1", "MAP-3")
def test_one_split_does_not_stop_the_predictions_of_other_shards():
    live, stream = ready(4, now=10.0)
    first, second, third, last = (shard.shard_id for shard in stream.open_shards())
    stream.split(0)
    assert live.invalidate(11.0, first, 11.0)
    keys = [shard.hash_key_range.starting_hash_key for shard in stream.shards[:4]]
    assert [live.predict(key) for key in keys] == [None, second, third, last]
    assert (live.state, live.map_may_come) == ("UPDATING", True)
    summary = live.next_request(11.0)
    stream.split(2)
    assert live.invalidate(12.0, second, 12.0)  # sent after the refresh began: it may not have seen it
    assert not live.invalidate(12.0, second, 12.0)
    assert [live.predict(key) for key in keys] == [None, None, third, last]
    live.receive(summary, stream.summary(), 12.0)
    live.receive(live.next_request(12.0), pages(stream.open_shards(), 100)[0], 12.0)
    assert live.state == "UPDATING"
    answer(live, 12.0, stream.open_shards(), stream.summary())
    assert live.state == "READY"
    assert live.stream_state.listed_at == 12.0  # listed again, since the second report
    assert [live.predict(key) for key in keys] == [stream.shard_for(key).shard_id for key in keys]
    assert live.invalidate(13.0, None, 13.0)
    assert {live.predict(key) for key in keys} == {None}
