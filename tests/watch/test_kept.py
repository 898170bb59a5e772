"""A watch that ends and one that resumes: together they do what one that runs through does."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpl_codec.shards import Lineage
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.watch import Checkpoint, KeptStateError, LastHour, Limits, Watch, WatchFinding
from kpl_codec.watch.record_checks import RecordChecker
from kpl_codec.watch.shard_readers import FullShardReader
from tests.examples import examples

from .model import START, ModelStream, open_map, run
from .test_watch import NAIVE, Traffic, aggregate, mended_after_a_minute, split_map

ENOUGH = Limits(5, 50, 1e7, 1e7)


def in_runs(
    stream: ModelStream, times: list[float], **settings: object
) -> tuple[list[Watch], list[list[WatchFinding]]]:
    """One watch for each span of ``times``, each resumes from what the one before kept, through JSON."""
    watches: list[Watch] = []
    told: list[list[WatchFinding]] = []
    kept = None
    for start, end in pairwise(times):
        watch = Watch(LastHour("orders"), limits=ENOUGH, **settings)  # type: ignore[arg-type]
        if kept is not None:
            watch.resume(Checkpoint.from_json(json.loads(kept)))
        found = watch.use(stream.shard_map, start)
        found += run(watch, stream, start, end, latency=0.3)
        kept = json.dumps(watch.keep(end).to_json())
        watches.append(watch)
        told.append(found)
    return watches, told


CUTS = st.lists(st.floats(0.2, 280), min_size=1, max_size=5, unique=True).map(
    lambda cuts: [START, *(START + cut for cut in sorted(cuts)), START + 310]
)


@pytest.mark.requirement("WCH-29")
@given(times=CUTS)
@settings(max_examples=examples(15))
def test_with_share_1_every_record_is_read_once_however_often_it_ends(times):
    stream = ModelStream(open_map(2))
    traffic = Traffic(stream, rate=5, naive=0.1)
    traffic.fill(START, START + 300)
    watches, told = in_runs(stream, times, share=1.0)
    put = sum(len(records) for records in stream.records.values())
    assert sum(watch.last_hour.totals["kinesis_records"] for watch in watches) == put
    assert watches[-1].last_hour.lost()[:4] == (sum(traffic.lost.values()),) * 4
    opened = Counter((f.kind, f.shard_id, f.writer) for found in told for f in found if f.state == "open")
    assert set(opened.values()) == {1}
    assert {f.state for found in told for f in found} <= {"open", "grown"}


@pytest.mark.requirement("WCH-29")
@given(times=CUTS, gap=st.sampled_from([0.0, 70.0]))
@settings(max_examples=examples(15))
def test_a_sample_looks_at_no_period_twice_and_counts_those_it_missed(times, gap):
    times = [*times[:-1], times[-1] + gap]
    stream = ModelStream(open_map(2))
    Traffic(stream, rate=5, naive=0.3).fill(START - 60, START + 400)
    watches, told = in_runs(stream, times, share=0.1, period=20.0)
    for shard in stream.shard_map.values():
        minutes = watches[-1].last_hour.by_shard[shard.shard_id].values()
        # 10 slots of 2 s a period: looked at and missed periods add up to the time gone by.
        periods = sum(minute.stands_for_ms for minute in minutes) / 20_000
        assert periods == int(periods)
        last = watches[-1].keep(times[-1]).shards[shard.shard_id].covered
        first = (START // 20 - 1) * 20_000
        assert first + periods * 20_000 == last
    opened = Counter((f.kind, f.shard_id, f.writer) for found in told for f in found if f.state == "open")
    assert set(opened.values()) <= {1}


@pytest.mark.requirement("WCH-33")
@given(times=CUTS, share=st.sampled_from([0.5, 0.2]))
@settings(max_examples=examples(15))
def test_no_record_is_counted_by_two_runs(times, share):
    """With two slots a period, the next slot often begins where the one before ended and was read past."""
    counted: Counter[str] = Counter()
    judge_one = RecordChecker._one

    def counting(self, record, *arguments):
        counted[record.sequence_number] += 1
        judge_one(self, record, *arguments)

    stream = ModelStream(open_map(2))
    Traffic(stream, rate=8).fill(START - 60, START + 320)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordChecker, "_one", counting)
        in_runs(stream, times, share=share, period=10.0)
    assert len(counted) > 400 * share
    assert set(counted.values()) == {1}


@pytest.mark.requirement("WCH-29", "WCH-5")
def test_a_split_between_two_runs_is_read_from_its_first_record_on():
    before = open_map(2)
    stream = ModelStream(before)
    Traffic(stream, rate=5).fill(START - 60, START + 60)
    first = Watch(LastHour("orders"))
    first.use(before, START)
    run(first, stream, START, START + 60)
    stream.shard_map = split_map(before)
    child = stream.shard_map["shardId-000000000002"]
    stream.put(child.shard_id, START + 61, "a", aggregate(stream.shard_map, child, NAIVE))
    second = Watch(LastHour("orders"))
    second.resume(first.keep(START + 60))
    told = second.use(stream.shard_map, START + 90) + run(second, stream, START + 90, START + 93)
    assert [(f.shard_id, f.lost.seen) for f in told if f.lost] == [(child.shard_id, 10)]
    assert second.up_to_date(START + 93)
    # A later run with a share of 1 reads the child whole for good.
    third = Watch(LastHour("orders"), share=1.0)
    third.resume(second.keep(START + 93))
    third.use(stream.shard_map, START + 94)
    run(third, stream, START + 94, START + 200)
    assert all(isinstance(shard, FullShardReader) for shard in third.shards.values())


@pytest.mark.requirement("WCH-11", "WCH-29")
def test_a_stream_made_anew_between_two_runs_is_noticed():
    import kpl_codec as kpl

    def numbered(start: str) -> kpl.ShardMap:
        return kpl.ShardMap(shard.replace(starting_sequence_number=start) for shard in open_map(2).values())

    stream = ModelStream(numbered("1" + "0" * 20))
    Traffic(stream, rate=5, naive=0.5).fill(START - 60, START + 60)
    first = Watch(LastHour("orders"))
    first.use(stream.shard_map, START)
    run(first, stream, START, START + 60)
    assert first.last_hour.lost().seen
    second = Watch(LastHour("orders"))
    second.resume(Checkpoint.from_json(json.loads(json.dumps(first.keep(START + 60).to_json()))))
    told = second.use(numbered("2" + "0" * 20), START + 90)
    assert [f.kind for f in told if f.state == "open"] == ["stream-recreated"]
    assert {f.state for f in told if f.kind == "naive-aggregator"} == {"over"}
    assert not second.last_hour.lost().seen


@pytest.mark.requirement("WCH-29")
def test_a_finding_that_was_told_is_over_in_a_later_run():
    stream = mended_after_a_minute()
    _, told = in_runs(stream, [START, START + 60, START + 300, START + 900], period=20.0)
    assert [sorted({f.state for f in found if f.kind == "naive-aggregator"}) for found in told] == [
        ["grown", "open"],
        [],
        ["over"],
    ]


@pytest.mark.requirement("WCH-30", "WCH-23")
@given(
    state=st.recursive(
        st.none() | st.integers() | st.text(),
        lambda s: (
            st.lists(s)
            | st.dictionaries(st.sampled_from(["version", "at", "shards", "ended", "minutes", "findings"]), s)
        ),
    )
)
def test_what_is_no_state_is_refused(state):
    with pytest.raises(KeptStateError):
        Checkpoint.from_json(state)


HERE = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
THERE = HERE.replace("us-east-1", "eu-west-1")


@pytest.mark.requirement("WCH-41")
@pytest.mark.parametrize(
    ("before", "now", "another"),
    [
        (HERE, HERE, False),
        (HERE, THERE, True),
        ("orders", HERE, False),
        (None, HERE, False),
        (HERE, None, False),
    ],
)
def test_the_state_of_another_stream_is_not_gone_on_with(before, now, another):
    """Also of one in another region, of the same name and with equal shards."""

    def named(stream):
        return ShardMap(open_map(2).values(), stream=stream)

    first = Watch(LastHour("orders"), share=1.0)
    first.use(named(before), START)
    state = json.loads(json.dumps(first.keep(START + 1).to_json()))
    if before is None:
        assert "stream" not in state  # as an earlier version kept it
    second = Watch(LastHour("orders"), share=1.0)
    second.resume(Checkpoint.from_json(state))
    told = [finding.kind for finding in second.use(named(now), START + 60)]
    assert ("stream-recreated" in told) == another


@pytest.mark.requirement("WCH-41")
@pytest.mark.parametrize("children", [False, True])
def test_a_shard_that_was_read_to_its_end_is_not_open(children):
    """Listed as open it is another stream's, unless the listing is just old: then its children are there."""
    (shard,) = open_map(1).values()
    kept = Checkpoint(START, {}, frozenset({shard.shard_id}), {}, {})
    halves = [
        Shard(f"shardId-{n:012d}", held, shard.shard_id, starting_sequence_number=str(10**56 + n))
        for n, held in enumerate(shard.hash_key_range.split(2), 1)
    ]
    listed = Lineage([shard, *(halves if children else ())])
    assert kept.is_of_another_stream(listed) == (not children)
