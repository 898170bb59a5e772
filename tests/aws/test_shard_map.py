"""The live shard map against real servers, with faults in front."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from kpl_codec.format.hash_keys import MAX_HASH_KEY, partition_key_hash
from kpl_codec.shards.live_shard_map import StreamUnavailable
from kpl_codec.testing.faults import cut_response, error, throttle
from tests.testing.event_stream import cut_before

from .readers import READERS, sleep_with

pytestmark = pytest.mark.server

HALF = 2**127


@pytest.fixture
def no_wait(monkeypatch):
    """Waiting moves the clock of `fetch_shard_map` instead."""
    slept = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + sum(slept), sleep=time.sleep)
    monkeypatch.setattr("kpl_codec.aws.stream_reading.time", clock)
    sleep_with(monkeypatch, slept.append)


def split(server, stream, shard_id, at):
    server.client().split_shard(StreamName=stream, ShardToSplit=shard_id, NewStartingHashKey=str(at))
    server.wait_active(stream)


def merge(server, stream, one, other):
    server.client().merge_shards(StreamName=stream, ShardToMerge=one, AdjacentShardToMerge=other)
    server.wait_active(stream)


def where_it_lands(client, stream, hash_key) -> str:
    record = {"Data": b"x", "PartitionKey": "p", "ExplicitHashKey": str(hash_key)}
    return client.put_record(StreamName=stream, **record)["ShardId"]


def listings(proxy):
    return [call for call in proxy.calls if call.operation == "ListShards"]


@pytest.mark.requirement("MAP-6", "MAP-28", "SHD-8")
def test_predictions_are_where_records_land_through_splits_merges_and_update_shard_count(
    kinesis_local, client, stream
):
    keys = [0, 1, 4, 5, HALF - 3, HALF - 2, HALF - 1, HALF, HALF + 1, MAX_HASH_KEY - 1, MAX_HASH_KEY]
    keys += [partition_key_hash(f"key-{i}") for i in range(8)]

    def check(shards):
        landed = [where_it_lands(client, stream, k) for k in keys]
        for readers in READERS.values():
            shard_map = readers.fetch_shard_map(client, stream)
            assert len(shard_map.open_shards) == shards
            assert [shard_map.shard_for(k).shard_id for k in keys] == landed

    check(2)
    split(kinesis_local, stream, "shardId-000000000000", 5)
    check(3)
    merge(kinesis_local, stream, "shardId-000000000003", "shardId-000000000001")
    check(2)
    client.update_shard_count(StreamName=stream, TargetShardCount=4, ScalingType="UNIFORM_SCALING")
    kinesis_local.wait_active(stream)
    check(4)
    ids = [f"shardId-{number:012}" for number in range(5)]
    for readers in READERS.values():
        lineage = readers.fetch_lineage(client, stream)
        assert {shard.shard_id for shard in lineage.children(ids[0])} == {ids[2], ids[3]}
        assert lineage[ids[4]].parent_shard_ids == (ids[3], ids[1])
        shard_map = readers.fetch_shard_map(client, stream)
        assert shard_map.shard_for(0).open
        assert {ids[0], ids[1]} < set(shard_map), "closed, and their records are still there"


@pytest.mark.requirement("MAP-8")
def test_what_no_retry_mends_is_said_at_once(readers, client, proxy, faulty, stream):
    """That the stream may not be described is no failure."""
    with pytest.raises(StreamUnavailable):
        readers.fetch_shard_map(client, "never-made")
    proxy.on("DescribeStreamSummary", error("AccessDeniedException"))
    assert len(readers.fetch_shard_map(faulty, stream)) == 2
    rule = proxy.on("ListShards", error("AccessDeniedException"))
    with pytest.raises(StreamUnavailable) as caught:
        readers.fetch_shard_map(faulty, stream)
    assert rule.acted == 1
    assert caught.value.permanent
    assert (caught.value.code, caught.value.operation) == ("AccessDeniedException", "ListShards")


@pytest.mark.requirement("MAP-10")
@pytest.mark.usefixtures("no_wait")
def test_what_passes_is_tried_again_in_the_time_that_there_is(readers, proxy, faulty, stream):
    failures = [error("InternalFailure", status=status) for status in (500, 503)]
    for fault in (throttle(), *failures, cut_before, cut_response(0.5), cut_response(0.9)):
        before = len(listings(proxy))
        proxy.on("ListShards", fault, times=2)
        assert len(readers.fetch_shard_map(faulty, stream)) == 2
        assert len(listings(proxy)) == before + 3
    rule = proxy.on("ListShards", throttle())
    with pytest.raises(StreamUnavailable) as caught:
        readers.fetch_shard_map(faulty, stream, patience=0.5)
    assert rule.acted == 1  # a second would have come after a second
    assert caught.value.code == "LimitExceededException"
    assert not caught.value.permanent
