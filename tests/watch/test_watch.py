"""A watch against a model stream: what it reads, what it finds, and what it costs. Time is an argument."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest

from kpl_codec.format.hash_keys import partition_key_hash
from kpl_codec.format.records import record_from_response
from kpl_codec.watch import LastHour, SampleSlot, ShardCall, Watch

from .model import (
    NAIVE,
    SOUND,
    START,
    ModelStream,
    Traffic,
    aggregate,
    key_on,
    open_map,
    reshard,
    run,
    seconds_to_find,
    watched,
)


def lost_at_kcl(findings):
    return [f for f in findings if f.lost is not None]


@pytest.mark.requirement("WCH-12", "WCH-10")
def test_a_naive_aggregator_is_named_with_its_shards_and_its_number():
    stream = ModelStream(open_map(4))
    traffic = Traffic(stream, rate=20, naive=0.02)
    traffic.fill(START - 60, START + 300)
    watch = watched(stream)
    findings = run(watch, stream, START, START + 60)
    first = next(f for f in findings if f.kind == "naive-aggregator")
    # 0.02 of 80 aggregates a second: found within period + 3 / (0.05 * 1.6), in 95 of 100 cases.
    assert first.last_seen - START < seconds_to_find(0.02 * 80, 0.05, period=20)
    findings += run(watch, stream, START + 60, START + 300)
    naive = [f for f in watch.last_hour.findings() if f.kind == "naive-aggregator"]
    assert {f.shard_id for f in naive} == set(stream.shard_map)
    for finding in naive:
        assert (finding.severity, finding.cause) == ("critical", "across-shards")
        assert finding.writer == "first-key"
        assert "does not look at shards" in finding.text
        assert finding.to_json()["lost"]["low"] == finding.lost.low
    total = watch.last_hour.lost()
    # The intervals are of 95 in 100 runs; this run is one of them, the same every time.
    truth = sum(traffic.lost.values()) * 300 / 360
    assert total.seen < total.low <= truth
    assert total.estimate == pytest.approx(truth, rel=0.5)


@pytest.mark.requirement("WCH-5", "WCH-12", "WCH-16")
def test_what_a_split_catches_is_reported_at_once_and_to_the_record():
    before = open_map(2)
    stream = ModelStream(before)
    after = reshard(before)
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
    traffic = Traffic(stream, rate=4, naive=0.5)
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


@pytest.mark.requirement("WCH-6")
def test_cost_is_reported_before():
    watch = watched(ModelStream(open_map(4)))
    cost = "sampling 5% of 4 open shards, every 20 s: calls a second on each shard: 0.10, 2.0% of its quota"
    assert watch.cost() == cost
    many = Watch(LastHour("orders"))
    many.set_shard_map(open_map(500), START)
    assert many.period == pytest.approx(93.75)
    assert "every 94 s" in many.cost()


@pytest.mark.requirement("WCH-40")
def test_a_watch_that_begins_in_the_past_reads_the_shards_that_were_closed_since():
    before = open_map(1)
    stream = ModelStream(before)
    Traffic(stream, rate=5).fill(START - 20, START)
    put = len(stream.records["shardId-000000000000"])
    stream.shard_map = reshard(before)
    watch = watched(stream, sampling_rate=1.0, since=60)
    assert "reading everything of 2 open shards" in watch.cost()
    run(watch, stream, START, START + 10)
    assert watch.last_hour.totals["kinesis_records"] == put
    assert set(watch.shards) == {shard.shard_id for shard in stream.shard_map.open_shards}
