"""A watch that reads by subscription, against the model stream."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kpl_codec.watch import LastHour, Watch
from tests.examples import examples

from .model import START, ModelStream, open_map, run
from .test_watch import Traffic, split_map, watched

CODES = ["LimitExceededException", "ResourceInUseException", "InternalFailure", "InvalidArgumentException"]


@pytest.mark.requirement("WCH-34", "WCH-16", "WCH-36")
@example(odds=0.5, seed=40, rate=5.0)
@given(odds=st.sampled_from([0.0, 0.1, 0.5]), seed=st.integers(0, 99), rate=st.sampled_from([0.1, 5.0]))
@settings(max_examples=examples(15))
def test_each_record_is_read_once_and_a_failure_is_given_five_seconds(odds, seed, rate):
    rng = random.Random(seed)
    failed: dict[str, float] = {}

    def refuse(call, now):
        assert now - failed.pop(call.shard_id, START - 9) > 5
        if now < START + 300 and rng.random() < odds:
            failed[call.shard_id] = now
            return rng.choice(CODES)
        return None

    stream = ModelStream(open_map(3), refuse=refuse)
    traffic = Traffic(stream, rate=rate, naive=0.1, seed=seed)
    traffic.fill(START, START + 300)
    watch = watched(stream, share=1.0, pushed=True)
    told = run(watch, stream, START, START + 400, at_once=9)
    put = sum(len(records) for records in stream.records.values())
    assert watch.last_hour.totals["kinesis_records"] == put
    assert watch.last_hour.totals["reread"] == 0
    assert watch.last_hour.lost()[:4] == (sum(traffic.lost.values()),) * 4
    assert {f.kind for f in told} <= {"naive-aggregator", "throttled", "not-watched", "lag"}


@pytest.mark.requirement("WCH-34", "WCH-5")
def test_it_goes_on_with_the_children_of_a_split():
    stream = ModelStream(open_map(2))
    Traffic(stream, rate=5).fill(START, START + 30)
    watch = watched(stream, share=1.0, pushed=True)

    def reshard(now):
        stream.shard_map = split_map(stream.shard_map)
        Traffic(stream, rate=5, seed=2).fill(START + 30, START + 60)
        return watch.use(stream.shard_map, now)

    run(watch, stream, START, START + 70, at_once=9, changes=[(START + 30, reshard)])
    assert set(watch.shards) == {"shardId-000000000001", "shardId-000000000002", "shardId-000000000003"}
    assert watch.last_hour.totals["kinesis_records"] == sum(len(r) for r in stream.records.values())


def test_a_subscription_gives_everything():
    with pytest.raises(ValueError, match="share must be 1"):
        Watch(LastHour("orders"), pushed=True)
    cost = str(Watch(LastHour("orders"), share=1.0, pushed=True).cost(4))
    assert "enhanced fan-out" in cost
    assert "0.01 calls of SubscribeToShard a second" in cost
