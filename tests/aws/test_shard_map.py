"""The live shard map against real servers, with faults in front."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kpl_codec.aws import (
    AsyncStreamShardMap,
    StreamShardMap,
    fetch_lineage,
    fetch_shard_map,
)
from kpl_codec.format.hash_keys import MAX_HASH_KEY, partition_key_hash
from kpl_codec.shards.live_shard_map import State, StreamUnavailable
from kpl_codec.testing.faults import (
    cut_answer,
    cut_before,
    error,
    expired_next_token,
    has,
    rewrite,
    server_error,
    slow,
    throttle,
)

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

FAST = {"first_backoff": 0.01, "max_backoff": 0.05}
HALF = 2**127


def split(server, stream, shard_id, at):
    server.client().split_shard(StreamName=stream, ShardToSplit=shard_id, NewStartingHashKey=str(at))
    server.wait_active(stream)


def merge(server, stream, one, other):
    server.client().merge_shards(StreamName=stream, ShardToMerge=one, AdjacentShardToMerge=other)
    server.wait_active(stream)


def where_it_lands(client, stream, hash_key) -> str:
    return client.put_record(StreamName=stream, Data=b"x", PartitionKey="p", ExplicitHashKey=str(hash_key))[
        "ShardId"
    ]


def listings(proxy):
    return [call for call in proxy.calls if call.operation == "ListShards"]


# -- fetching -------------------------------------------------------------------------------------


@pytest.mark.requirement("MAP-6", "SHD-8")
def test_predictions_are_where_records_land_through_splits_merges_and_update_shard_count(
    kinesis_local, client, stream
):
    keys = [0, 1, 4, 5, HALF - 3, HALF - 2, HALF - 1, HALF, HALF + 1, MAX_HASH_KEY - 1, MAX_HASH_KEY]
    keys += [partition_key_hash(f"key-{i}") for i in range(8)]

    def check(shards):
        shard_map = fetch_shard_map(client, stream)
        assert len(shard_map.open_shards) == len(shard_map) == shards
        assert [shard_map.shard_for(k).shard_id for k in keys] == [
            where_it_lands(client, stream, k) for k in keys
        ]

    check(2)
    split(kinesis_local, stream, "shardId-000000000000", 5)
    check(3)
    merge(kinesis_local, stream, "shardId-000000000003", "shardId-000000000001")
    check(2)
    client.update_shard_count(StreamName=stream, TargetShardCount=4, ScalingType="UNIFORM_SCALING")
    kinesis_local.wait_active(stream)
    check(4)
    lineage = fetch_lineage(client, stream)
    assert {s.shard_id for s in lineage.children("shardId-000000000000")} == {
        "shardId-000000000002",
        "shardId-000000000003",
    }
    assert lineage["shardId-000000000004"].parent_shard_ids == (
        "shardId-000000000003",
        "shardId-000000000001",
    )
    # kinesis-local starts the child of a merge at its second parent's number; else its lineage is sound
    assert {defect.code for defect in lineage.defects()} == {"child-not-newer"}
    assert fetch_shard_map(client, stream, closed=True).shard_for(0).open


@pytest.mark.requirement("MAP-12")
def test_a_server_that_ignores_the_filter(kinesalite, stream_name):
    kinesalite.create_stream(stream_name, shards=1)
    split(kinesalite, stream_name, "shardId-000000000000", HALF)
    shard_map = fetch_shard_map(kinesalite.client(), stream_name)
    assert [s.shard_id for s in shard_map.open_shards] == ["shardId-000000000001", "shardId-000000000002"]
    assert len(shard_map) == 3  # the closed parent came too


@pytest.mark.requirement("MAP-8")
@pytest.mark.parametrize("operation", ["ListShards", "DescribeStreamSummary"])
def test_no_such_stream_is_said_at_once(client, proxy, faulty, operation, stream):
    rule = proxy.on(operation, error("ResourceNotFoundException"))
    with pytest.raises(StreamUnavailable) as caught:
        fetch_shard_map(faulty, stream)
    assert rule.acted == 1
    assert caught.value.permanent
    assert (caught.value.code, caught.value.operation) == ("ResourceNotFoundException", operation)
    with pytest.raises(StreamUnavailable):
        fetch_shard_map(client, "never-made")


@pytest.mark.requirement("MAP-8")
def test_access_denied_to_listing_is_permanent_but_to_describing_is_not(proxy, faulty, stream):
    rule = proxy.on("DescribeStreamSummary", error("AccessDeniedException"))
    assert len(fetch_shard_map(faulty, stream)) == 2
    assert rule.acted == 1
    proxy.on("ListShards", error("AccessDeniedException"))
    with pytest.raises(StreamUnavailable) as caught:
        fetch_shard_map(faulty, stream)
    assert caught.value.code == "AccessDeniedException"


@pytest.mark.requirement("MAP-10")
@pytest.mark.parametrize(
    "fault", [throttle(), server_error(), server_error(503), cut_before(), cut_answer(0.5), cut_answer(0.9)]
)
def test_what_passes_is_tried_again(proxy, faulty, stream, fault):
    proxy.on("ListShards", fault, times=2)
    with StreamShardMap(faulty, stream, **FAST) as live:
        assert len(live.wait_ready(10)) == 2
    assert len(listings(proxy)) == 3


@pytest.mark.requirement("MAP-10")
def test_an_answer_that_comes_too_late_is_no_answer(kinesis_local, proxy, stream):
    from botocore.config import Config

    hasty = Config(read_timeout=0.3, retries={"total_max_attempts": 1})
    client = kinesis_local.client(endpoint_url=proxy.endpoint_url, config=hasty)
    rule = proxy.on("ListShards", slow(1.0), times=1)
    with StreamShardMap(client, stream, **FAST) as live:
        assert len(live.wait_ready(10)) == 2
    assert rule.acted == 1


@pytest.mark.requirement("MAP-10")
def test_fetching_waits_a_second_and_tries_again(proxy, faulty, stream):
    proxy.on("ListShards", throttle(), times=1)
    begun = time.monotonic()
    assert len(fetch_shard_map(faulty, stream)) == 2
    assert time.monotonic() - begun > 0.9
    assert len(listings(proxy)) == 2


def test_giving_up_in_time(proxy, faulty, stream):
    rule = proxy.on("ListShards", throttle())
    with pytest.raises(StreamUnavailable) as caught:
        fetch_shard_map(faulty, stream, timeout=0.5)
    assert rule.acted == 1  # a second would have come after a second
    assert caught.value.code == "LimitExceededException"
    assert not caught.value.permanent


@pytest.mark.requirement("MAP-13")
def test_an_auto_stream_is_never_predicted(proxy, faulty, stream):
    def auto(answer):
        answer["StreamDescriptionSummary"]["RecordDistributionStrategy"] = "AUTO"
        return answer

    proxy.on("DescribeStreamSummary", rewrite(auto))
    assert fetch_shard_map(faulty, stream).distribution == "AUTO"
    with StreamShardMap(faulty, stream) as live:
        live.wait_ready(5)
        assert live.predict(0) is None


# -- threads --------------------------------------------------------------------------------------


@pytest.mark.requirement("MAP-3", "MAP-4", "MAP-5")
def test_many_threads_that_see_a_split_cause_one_refresh(kinesis_local, proxy, faulty, stream):
    with StreamShardMap(faulty, stream, **FAST) as live:
        live.wait_ready(5)
        assert live.predict(0) == "shardId-000000000000"
        split(kinesis_local, stream, "shardId-000000000000", 5)
        proxy.on("ListShards", slow(0.1))
        before = len(listings(proxy))
        sent_at = time.monotonic()
        barrier = threading.Barrier(16)

        def caller(_):
            barrier.wait()
            return live.invalidate(sent_at, "shardId-000000000000")

        with ThreadPoolExecutor(16) as pool:
            believed = list(pool.map(caller, range(16)))
        assert believed.count(True) == 1
        assert live.predict(0) is None  # distrusted until the new map is there
        live.wait_ready(5)
        assert len(listings(proxy)) == before + 1
        assert live.predict(0) == where_it_lands(kinesis_local.client(), stream, 0)
        # late reports of the same split: covered by the refresh, or about a shard that is gone
        assert not live.invalidate(sent_at, "shardId-000000000001")
        assert not live.invalidate(time.monotonic(), "shardId-000000000000")
        assert len(listings(proxy)) == before + 1
        closed = live.hash_key_range("shardId-000000000000")
        assert closed is not None
        assert closed == live.lineage.hash_key_range("shardId-000000000000")


def test_a_stream_made_again_under_its_name(kinesis_local, client, stream):
    with StreamShardMap(client, stream, **FAST) as live:
        live.wait_ready(5)
        split(kinesis_local, stream, "shardId-000000000000", 5)
        live.refresh()
        while live.predict(0) != "shardId-000000000002":
            time.sleep(0.01)
        time.sleep(1.1)  # sequence numbers and creation times count seconds
        kinesis_local.delete_stream(stream)
        kinesis_local.create_stream(stream, shards=3)
        assert live.invalidate(time.monotonic(), "shardId-000000000002")
        shard_map = live.wait_ready(5)
        assert live.generation == 1
        assert len(shard_map) == 3
        assert {s.shard_id for s in live.lineage} == {s.shard_id for s in shard_map}
        assert live.hash_key_range("shardId-000000000003") is None
        assert live.predict(MAX_HASH_KEY) == where_it_lands(client, stream, MAX_HASH_KEY)


def test_a_stream_deleted_for_good_and_then_back(kinesis_local, client, stream):
    with StreamShardMap(client, stream, **FAST) as live:
        live.wait_ready(5)
        kinesis_local.delete_stream(stream)
        live.refresh()
        end = time.monotonic() + 5
        while live.state is State.READY and time.monotonic() < end:
            time.sleep(0.01)
        with pytest.raises(StreamUnavailable):
            live.wait_ready(5)
        assert live.state is State.INVALID
        assert live.predict(0) is None
        kinesis_local.create_stream(stream, shards=1)
        assert live.refresh()
        assert len(live.wait_ready(5)) == 1


def test_waiting_has_an_end(proxy, faulty, stream):
    proxy.on("ListShards", throttle())
    with StreamShardMap(faulty, stream, **FAST) as live:
        with pytest.raises(TimeoutError) as caught:
            live.wait_ready(0.6)
        assert caught.value.__cause__.code == "LimitExceededException"
        assert len(listings(proxy)) > 1  # it did not stop trying
        proxy.clear()
        live.wait_ready(5)
    with pytest.raises(RuntimeError):
        (StreamShardMap(faulty, stream)._live and live.close()) or _closed_wait(live)


def _closed_wait(live):
    live._live._trust.end(0.0)
    live.wait_ready(1)


def test_a_crash_in_the_thread_reaches_whoever_waits(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda args: None)

    class Broken:
        def describe_stream_summary(self, **_):
            raise ZeroDivisionError

    with StreamShardMap(Broken(), "s") as live, pytest.raises(RuntimeError) as caught:
        live.wait_ready(5)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.requirement("MAP-9")
def test_expired_next_tokens_start_the_listing_again(kinesis_local, proxy, faulty, stream_name):
    kinesis_local.create_stream(stream_name, shards=7)
    proxy.on("ListShards", expired_next_token(), when=has("NextToken"), after=1, times=2)
    with StreamShardMap(faulty, stream_name, max_results=2, **FAST) as live:
        assert len(live.wait_ready(10)) == 7
    calls = listings(proxy)
    for call in calls:
        if "NextToken" in call.request:
            assert set(call.request) == {"NextToken", "MaxResults"}
        else:
            assert call.request["ShardFilter"] == {"Type": "AT_LATEST"}
    # 2 pages, expired, again: 1 page, expired, backoff, then 4 pages
    assert [c.status for c in calls] == [200, 200, 400, 200, 400, 200, 200, 200, 200]
    kinesis_local.delete_stream(stream_name)


@pytest.mark.requirement("MAP-7")
def test_a_listing_with_a_hole_never_becomes_the_map(proxy, faulty, stream):
    proxy.on("ListShards", rewrite(lambda a: {**a, "Shards": a["Shards"][1:]}), times=2)
    with StreamShardMap(faulty, stream, **FAST) as live:
        assert len(live.wait_ready(5).open_shards) == 2
    assert len(listings(proxy)) == 3


# -- asyncio --------------------------------------------------------------------------------------


def aio(kinesis, proxy, body):
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    async def main():
        settings = {**kinesis.client_settings, "endpoint_url": proxy.endpoint_url}
        config = AioConfig(retries={"total_max_attempts": 1})
        async with get_session().create_client("kinesis", config=config, **settings) as client:
            return await asyncio.wait_for(body(client), 60)

    return asyncio.run(main())


@pytest.mark.requirement("MAP-3")
def test_many_tasks_that_see_a_split_cause_one_refresh(kinesis_local, proxy, stream):
    async def body(client):
        async with AsyncStreamShardMap(client, stream, **FAST) as live:
            await live.wait_ready(5)
            await asyncio.to_thread(split, kinesis_local, stream, "shardId-000000000000", 5)
            before = len(listings(proxy))
            proxy.on("ListShards", throttle(), times=1)
            sent_at = time.monotonic()

            async def caller():
                await asyncio.sleep(0)
                return live.invalidate(sent_at, "shardId-000000000000")

            believed = await asyncio.gather(*(caller() for _ in range(50)))
            assert believed.count(True) == 1
            assert live.predict(0) is None
            await asyncio.gather(*(live.wait_ready(5) for _ in range(10)))
            assert len(listings(proxy)) == before + 2  # one throttled, one more
            assert live.hash_key_range("shardId-000000000000") is not None
            assert live.error is None
            assert live.refresh()
            assert not live.refresh()
            assert (live.generation, len(live.shard_map), len(live.lineage)) == (0, 3, 4)
            return live.predict(0)

    assert aio(kinesis_local, proxy, body) == "shardId-000000000002"


def test_asyncio_says_at_once_what_is_permanent_and_gives_up_in_time(kinesis_local, proxy, stream):
    async def body(client):
        async with AsyncStreamShardMap(client, "never-made") as live:
            with pytest.raises(StreamUnavailable) as caught:
                await live.wait_ready(20)
            assert caught.value.permanent
        proxy.on("ListShards", cut_before())
        async with AsyncStreamShardMap(client, stream, **FAST) as live:
            with pytest.raises(TimeoutError):
                await live.wait_ready(0.6)
            assert live.state is not State.READY
            proxy.clear()
            await live.wait_ready(5)
        live.invalidate(time.monotonic(), None)
        with pytest.raises(RuntimeError):
            await live.wait_ready(5)
        return True

    assert aio(kinesis_local, proxy, body)


def test_a_crash_in_the_task_reaches_whoever_waits():
    class Broken:
        async def describe_stream_summary(self, **_):
            await asyncio.sleep(0.05)
            raise ZeroDivisionError

    async def main():
        live = await AsyncStreamShardMap(Broken(), "s").__aenter__()
        with pytest.raises(RuntimeError) as caught:
            await live.wait_ready(5)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        with pytest.raises(ZeroDivisionError):
            await live.__aexit__(None, None, None)

    asyncio.run(main())
