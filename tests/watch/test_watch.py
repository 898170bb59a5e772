"""A watch against a model stream: what it reads, what it finds, and what it costs. Time is an argument."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.format.hash_keys import partition_key_hash
from kpl_codec.format.records import record_from_response
from kpl_codec.watch import LastHour, Limits, SampleSlot, ShardCall, Watch
from tests.examples import examples

from .model import START, ModelStream, key_on, open_map, run, seconds_to_find

SOUND, NAIVE = "sound", "naive"
THROTTLED = "ProvisionedThroughputExceededException"


def aggregate(shard_map: kpl.ShardMap, shard: kpl.Shard, kind: str, size: int = 10) -> bytes:
    """An aggregate for ``shard``; a naive one also has a user record of every other shard."""
    shards = [shard, *(s for s in shard_map.open_shards if s != shard)] if kind == NAIVE else [shard]
    keys = [key_on(shards[n % len(shards)], n % 7) for n in range(size)]
    return kpl.encode([kpl.UserRecord(key, b"x" * 20) for key in keys])


class Traffic:
    """``rate`` aggregates of 10 user records a second on every shard; each with ``naive`` odds is naive."""

    def __init__(self, stream: ModelStream, *, rate: float, naive: float = 0.0, seed: int = 1) -> None:
        self.stream, self.rate, self.naive = stream, rate, naive
        self.random = random.Random(seed)
        self.lost: dict[str, int] = defaultdict(int)
        self.bytes = {
            (shard.shard_id, kind): (key_on(shard), aggregate(stream.shard_map, shard, kind))
            for shard in stream.shard_map.open_shards
            for kind in (SOUND, NAIVE)
        }

    def fill(self, start: float, end: float) -> None:
        for shard in self.stream.shard_map.open_shards:
            at = start + self.random.expovariate(self.rate)
            while at < end:
                kind = NAIVE if self.random.random() < self.naive else SOUND
                self.stream.put(shard.shard_id, at, *self.bytes[shard.shard_id, kind])
                self.lost[shard.shard_id] += 10 * (kind == NAIVE)
                at += self.random.expovariate(self.rate)


def watched(stream: ModelStream, **settings: object) -> Watch:
    watch = Watch(LastHour("orders"), **settings)  # type: ignore[arg-type]
    watch.set_shard_map(stream.shard_map, START)
    return watch


def lost_at_kcl(findings):
    return [f for f in findings if f.lost is not None]


@pytest.mark.requirement("WCH-12", "WCH-10")
def test_a_naive_aggregator_is_named_with_its_shards_and_its_number():
    stream = ModelStream(open_map(4))
    traffic = Traffic(stream, rate=20, naive=0.02)
    traffic.fill(START - 60, START + 600)
    watch = watched(stream)
    findings = run(watch, stream, START, START + 60)
    first = next(f for f in findings if f.kind == "naive-aggregator")
    # 0.02 of 80 aggregates a second: found within period + 3 / (0.05 * 1.6), in 95 of 100 cases.
    assert first.last_seen - START < seconds_to_find(0.02 * 80, 0.05, period=20)
    findings += run(watch, stream, START + 60, START + 600)
    naive = [f for f in watch.last_hour.findings() if f.kind == "naive-aggregator"]
    assert {f.shard_id for f in naive} == set(stream.shard_map)
    for finding in naive:
        assert (finding.severity, finding.cause) == ("critical", "across-shards")
        assert finding.writer == "first-key"
        assert "does not look at shards" in finding.text
        assert finding.to_json()["lost"]["low"] == finding.lost.low
    total = watch.last_hour.lost()
    # The intervals are of 95 in 100 runs; this run is one of them, the same every time.
    truth = sum(traffic.lost.values()) * 600 / 660
    assert total.seen < total.low <= truth
    assert total.estimate == pytest.approx(truth, rel=0.5)


def test_a_clean_stream_is_silent_for_an_hour():
    stream = ModelStream(open_map(4))
    traffic = Traffic(stream, rate=2)
    watch = watched(stream)
    for minute in range(60):
        now = START + 60 * minute
        traffic.fill(now, now + 60)
        stream.forget(now - 120)
        assert run(watch, stream, now, now + 60) == []
    assert watch.last_hour.findings() == []
    assert watch.call_counts.skipped == 0
    assert watch.last_hour.totals["user_records"] > 0.04 * 3600 * 4 * 20


@pytest.mark.requirement("WCH-2")
@given(
    shards=st.integers(1, 12),
    sampling_rate=st.sampled_from([0.05, 0.1, 0.5]),
    period=st.sampled_from([10.0, 20.0, 60.0]),
    rate=st.sampled_from([0.01, 1.0, 5.0]),
)
@settings(max_examples=examples(20))
def test_every_shard_is_polled_in_every_period(shards, sampling_rate, period, rate):
    stream = ModelStream(open_map(shards))
    Traffic(stream, rate=rate).fill(START - 120, START + 300)
    watch = watched(stream, sampling_rate=sampling_rate, period=period)
    run(watch, stream, START, START + 300)
    assert watch.period == period
    assert watch.call_counts.skipped == 0
    for state in watch.shards.values():
        assert state.polls >= 300 // period - 1
    counted = watch.last_hour.by_shard["shardId-000000000000"].values()
    assert sum(m.sampled_ms for m in counted) * round(1 / sampling_rate) == sum(
        m.represented_ms for m in counted
    )


@pytest.mark.requirement("WCH-3", "WCH-4", "WCH-7")
@given(
    calls=st.floats(0.5, 20),
    shard_calls=st.floats(0.2, 3),
    odds=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    code=st.sampled_from(
        [
            "ProvisionedThroughputExceededException",
            "InternalFailure",
            "AccessDeniedException",
            "ExpiredIteratorException",
        ]
    ),
    sampling_rate=st.sampled_from([0.05, 1.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=examples(60))
def test_budgets_hold_even_when_the_server_says_no(calls, shard_calls, odds, code, sampling_rate, seed):
    rng = random.Random(seed)
    stream = ModelStream(open_map(3), refuse=lambda call, now: code if rng.random() < odds else None)
    Traffic(stream, rate=10).fill(START - 60, START + 90)
    limits = Limits(shard_calls, calls, 4_000, 10_000)
    watch = watched(stream, sampling_rate=sampling_rate, limits=limits)
    run(watch, stream, START, START + 90)

    def holds(events: list[tuple[float, float]], rate: float, slack: float) -> None:
        # In any span the spending, less what the rate gives, is at most so much above its least.
        spent, least = 0.0, float("inf")
        for at, amount in events:
            excess = spent - rate * (at - START)
            least = min(least, excess)
            assert excess - least <= max(1.0, rate) + slack
            spent += amount

    times = [(at, 1.0) for at, _ in stream.calls]
    holds(times, calls, 1e-6)
    under_way = sum(watch.call_counts.calls.values()) - len(times)
    assert 0 <= under_way <= 3
    largest = max((size for _, _, size in stream.sizes), default=0)
    # Answers under way when a budget ran out: at most one of each shard.
    holds([(at, float(size)) for at, _, size in stream.sizes], limits.bytes, 3 * largest)
    for shard in stream.shard_map.values():
        holds([(at, 1.0) for at, s in stream.calls if s == shard.shard_id], shard_calls, 1e-6)
        sizes = [(at, float(size)) for at, s, size in stream.sizes if s == shard.shard_id]
        holds(sizes, limits.shard_bytes, largest)
    if odds == 1.0 and code != "ExpiredIteratorException":
        # Waits grow: 90 s of refusals are few calls.
        assert len(times) <= 3 * 10


@pytest.mark.requirement("WCH-22", "WCH-2")
def test_a_watch_that_sees_nothing_says_so():
    denied: list[str | None] = ["AccessDeniedException"]
    stream = ModelStream(open_map(2), refuse=lambda call, now: denied[0])
    Traffic(stream, rate=5).fill(START - 60, START + 900)
    watch = watched(stream)
    findings = run(watch, stream, START, START + 200)
    blind = [f for f in findings if f.kind == "not-watched"]
    assert {f.shard_id for f in blind} == {"shardId-000000000000", "shardId-000000000001"}
    assert all("AccessDeniedException" in f.text and f.severity == "error" for f in blind)
    denied[0] = None
    findings = run(watch, stream, START + 200, START + 400)
    assert {f.shard_id for f in findings if f.kind == "not-watched" and f.state == "resolved"} == {
        f.shard_id for f in blind
    }
    assert watch.call_counts.skipped > 0
    scale = watch.last_hour._sample("shardId-000000000000").scale
    assert scale > 25  # 20 slots a period, and the periods that nobody looked at


def split_map(before: kpl.ShardMap) -> kpl.ShardMap:
    """The same stream after its first shard was split."""
    first = before.open_shards[0]
    low, high = first.hash_key_range.split(2)
    closed = first.replace(ending_sequence_number="9" * 30)
    number = len(before)
    return kpl.ShardMap(
        [
            closed,
            *(shard for shard in before.values() if shard.shard_id != first.shard_id),
            kpl.Shard(f"shardId-{number:012d}", low, parent_shard_id=first.shard_id),
            kpl.Shard(f"shardId-{number + 1:012d}", high, parent_shard_id=first.shard_id),
        ]
    )


@pytest.mark.requirement("WCH-5", "WCH-12", "WCH-16")
def test_what_a_split_catches_is_reported_at_once_and_to_the_record():
    before = open_map(2)
    stream = ModelStream(before)
    after = split_map(before)
    Traffic(stream, rate=5).fill(START - 60, START + 100)
    watch = watched(stream)
    run(watch, stream, START, START + 100)
    calls = len(stream.calls)
    # Two aggregates for the old shard, of a producer that did not notice, and then silence.
    child = after["shardId-000000000002"]
    stale = aggregate(after, before.open_shards[0], SOUND)
    keys = [key_on(before.open_shards[0], n % 7) for n in range(10)]
    assert len({partition_key_hash(k) in child.hash_key_range for k in keys}) == 2
    for at in (100.3, 100.9):
        stream.put(child.shard_id, START + at, "a", stale)
    stream.shard_map = after
    findings = watch.set_shard_map(after, START + 105) + run(watch, stream, START + 105, START + 107)
    assert stream.calls[calls][1] in ("shardId-000000000002", "shardId-000000000003")
    (finding,) = lost_at_kcl(findings)
    assert (finding.kind, finding.shard_id, finding.writer) == ("mixed-aggregate", child.shard_id, "kpl")
    assert finding.lost[:4] == (20, 20, 20, 20)
    run(watch, stream, START + 107, START + 160)
    assert set(watch.shards) == {"shardId-000000000001", "shardId-000000000002", "shardId-000000000003"}
    assert all(shard.window is not None for shard in watch.shards.values())
    assert watch.last_hour.lost(child.shard_id)[:3] == (20, 20, 20)
    assert watch.last_hour.lost() == (20, 20, 20, inf)  # the other shards are sampled


@pytest.mark.requirement("WCH-8", "WCH-9", "WCH-13", "WCH-16")
def test_faults_neither_lose_nor_double_a_record():
    rng = random.Random(5)
    codes = [
        "ExpiredIteratorException",
        "InternalFailure",
        "ProvisionedThroughputExceededException",
        "InvalidArgumentException",
    ]
    stream = ModelStream(
        open_map(2), refuse=lambda call, now: rng.choice(codes) if rng.random() < 0.2 else None
    )
    respond = stream.answer
    stream.answer = lambda call, now: {} if rng.random() < 0.1 else respond(call, now)  # type: ignore[method-assign]
    traffic = Traffic(stream, rate=5, naive=0.1)
    traffic.fill(START, START + 300)
    watch = watched(stream, sampling_rate=1.0)
    findings = run(watch, stream, START, START + 420)
    assert watch.last_hour.totals["kinesis_records"] == sum(len(r) for r in stream.records.values())
    assert {f.kind for f in findings} <= {"throttled", "naive-aggregator"}
    assert watch.last_hour.lost()[:4] == (sum(traffic.lost.values()),) * 4
    assert watch.call_counts.failed.keys() == {*codes, "IncompleteAnswer"}


@pytest.mark.requirement("WCH-13")
def test_a_record_given_twice_is_a_duplicate_and_counts_once():
    stream = ModelStream(open_map(1))
    Traffic(stream, rate=50).fill(START - 60, START + 10)
    respond = stream.answer

    def with_last_record_twice(call, now):
        answer = respond(call, now)
        if "Records" in answer:
            answer["Records"] = answer["Records"] + answer["Records"][-1:]
        return answer

    stream.answer = with_last_record_twice  # type: ignore[method-assign]
    watch = watched(stream, sampling_rate=1.0, since=50, limits=Limits(5, 50, 1e7, 1e7))
    findings = run(watch, stream, START, START + 12)
    assert [f.kind for f in findings if f.state == "open"] == ["duplicate"]
    put = [put for put in stream.records["shardId-000000000000"] if put.at_ms >= (START - 50) * 1000]
    assert watch.last_hour.totals["kinesis_records"] == len(put)


@pytest.mark.requirement("WCH-18")
def test_what_lies_past_the_slot_is_seen_and_not_scaled():
    stream = ModelStream(open_map(2))
    shard = stream.shard_map.open_shards[0]
    last_hour = LastHour("orders")
    last_hour.set_shard_map(stream.shard_map, START)
    stream.put(shard.shard_id, START, "k", aggregate(stream.shard_map, shard, NAIVE))
    stream.put(shard.shard_id, START + 5, "k", aggregate(stream.shard_map, shard, NAIVE))
    call = ShardCall("GetRecords", shard.shard_id, {"ShardIterator": f"0@{START}", "Limit": 10}, 1)
    records = [record_from_response(r, shard.shard_id) for r in stream.answer(call, START + 9)["Records"]]
    slot = SampleSlot(shard.shard_id, 1, scale=20.0, end_ms=(START + 1) * 1000)
    (findings,) = last_hour.observe(slot, records, START + 9)
    assert (findings.lost.seen, findings.lost.estimate) == (20, 10 * 20 + 10)


@pytest.mark.requirement("WCH-10")
def test_a_finding_is_over_only_after_a_quiet_time():
    stream = ModelStream(open_map(2))
    traffic = Traffic(stream, rate=20, naive=0.5)
    traffic.fill(START - 60, START + 60)
    traffic.naive = 0.0
    traffic.fill(START + 60, START + 900)
    watch = watched(stream)
    findings = run(watch, stream, START, START + 900)
    naive = [f for f in findings if f.kind == "naive-aggregator"]
    assert {f.state for f in naive} == {"open", "grown", "resolved"}
    resolved = [f for f in naive if f.state == "resolved"]
    assert len(resolved) == 2
    assert all(finding.lost.seen > 0 for finding in resolved)
    counts = [f.kinesis_records for f in naive if f.shard_id == naive[0].shard_id and f.state != "resolved"]
    assert all(b >= 2 * a for a, b in pairwise(counts))


def test_cost_is_reported_before_and_kept():
    stream = ModelStream(open_map(4))
    Traffic(stream, rate=5).fill(START - 60, START + 600)
    watch = watched(stream)
    cost = "sampling 5% of 4 open shards, every 20 s: calls a second on each shard: 0.10, 2.0% of its quota"
    assert watch.cost() == cost
    run(watch, stream, START, START + 600)
    calls_per_second = sum(watch.call_counts.calls.values()) / 600
    assert calls_per_second <= 1.2 * 0.4
    many = Watch(LastHour("orders"))
    many.set_shard_map(open_map(500), START)
    assert many.period == pytest.approx(93.75)
    assert "every 94 s" in many.cost()


@pytest.mark.requirement("WCH-5")
@pytest.mark.parametrize("sampling_rate", [0.05, 1.0])
def test_the_children_of_the_last_shard_are_read_from_their_first_record(sampling_rate):
    """Every shard of the map was closed, and read to its end, before the next map came."""
    before = open_map(1)
    stream = ModelStream(before)
    watch = watched(stream, sampling_rate=sampling_rate)
    run(watch, stream, START, START + 30)
    stream.shard_map = after = split_map(before)
    run(watch, stream, START + 30, START + 90)
    assert not watch.shards
    for shard in after.open_shards:
        stream.put(shard.shard_id, START + 31, key_on(shard), aggregate(after, shard, NAIVE))
    watch.set_shard_map(after, START + 90)
    findings = run(watch, stream, START + 90, START + 100)
    assert {f.shard_id for f in lost_at_kcl(findings)} == {s.shard_id for s in after.open_shards}


@pytest.mark.requirement("WCH-40")
def test_a_watch_that_begins_in_the_past_reads_the_shards_that_were_closed_since():
    before = open_map(1)
    stream = ModelStream(before)
    Traffic(stream, rate=5).fill(START - 20, START)
    put = len(stream.records["shardId-000000000000"])
    stream.shard_map = split_map(before)
    watch = watched(stream, sampling_rate=1.0, since=60)
    assert "reading everything of 2 open shards" in watch.cost()
    run(watch, stream, START, START + 10)
    assert watch.last_hour.totals["kinesis_records"] == put
    assert set(watch.shards) == {shard.shard_id for shard in stream.shard_map.open_shards}


@pytest.mark.requirement("WCH-5")
def test_a_shard_that_lived_between_two_maps_is_read():
    before = open_map(2)
    stream = ModelStream(before)
    watch = watched(stream)
    run(watch, stream, START, START + 30)
    # A shard was split, and one of its children split again, before the next map came.
    once = split_map(before)
    child = once.open_shards[0]
    halves = child.hash_key_range.split(2)
    grandchildren = [
        kpl.Shard(f"shardId-{90 + n:012d}", keys, parent_shard_id=child.shard_id)
        for n, keys in enumerate(halves)
    ]
    after = kpl.ShardMap(
        [
            *(shard for shard in once.values() if shard != child),
            child.replace(ending_sequence_number="9" * 30),
            *grandchildren,
        ]
    )
    stream.shard_map = after
    stream.put(child.shard_id, START + 25, key_on(child), aggregate(before, before.open_shards[0], NAIVE))
    watch.set_shard_map(after, START + 30)
    findings = run(watch, stream, START + 30, START + 35)
    assert [f.shard_id for f in findings if f.lost is not None] == [child.shard_id]
