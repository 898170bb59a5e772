"""Producers side by side, with a stub in place of botocore and the network: CPU time a user record.

    python -m tests.benchmarks --parts producers

Each runs in a process of its own, in turns, with the same user records (100 bytes, 512 partition keys) for 4
shards, from the first put to the last confirmation; the shard map is there before. boto3 alone aggregates
nothing. aws_kinesis_agg has no shard map, and async-kinesis in its KPL mode takes no partition keys: a KCL
drops most of what they aggregate.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import botocore.client

import kpl_codec as kpl

from ..shards.model import ModelStream

KEYS = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
SETTINGS = {"region_name": "us-east-1", "endpoint_url": "http://127.0.0.1:9", **KEYS}
OURS = {
    "region": "us-east-1",
    "endpoint_url": "http://127.0.0.1:9",
    "access_key_id": "none",
    "secret_access_key": "none",
}
AGGREGATE = 51_200
Job = list[tuple[str, bytes]]
#: Called when the shard map is there: the clock runs from then on.
Ready = Callable[[], None]


def answer_calls() -> None:
    """From now on an active stream of 4 shards takes everything, at once."""
    from aiobotocore.client import AioBaseClient

    shards, numbers = ModelStream(4, now=0).shards, itertools.count(10**20)
    shard_map, listed = kpl.ShardMap(shards), [shard.to_aws() for shard in shards]

    def stored(entry: dict[str, Any]) -> dict[str, str]:
        hash_key = kpl.effective_hash_key(entry["PartitionKey"], entry.get("ExplicitHashKey"))
        return {"ShardId": shard_map.shard_for(hash_key).shard_id, "SequenceNumber": str(next(numbers))}

    def answer(client: Any, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if operation == "PutRecords":
            return {"FailedRecordCount": 0, "Records": list(map(stored, arguments["Records"]))}
        if operation == "ListShards":
            return {"Shards": listed}
        stream = {"StreamStatus": "ACTIVE", "Shards": listed, "HasMoreShards": False}
        return {"StreamDescription": stream, "StreamDescriptionSummary": stream}

    async def awaited(client: Any, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return answer(client, operation, arguments)

    botocore.client.BaseClient._make_api_call = answer
    AioBaseClient._make_api_call = awaited


def threads(job: Job, ready: Ready) -> None:
    from kpl_codec.producer import Producer

    with Producer("s", client_settings=OURS) as producer:
        assert producer.wait_ready(60)
        ready()
        futures = [producer.put(key, data) for key, data in job]
        producer.flush()
        assert all(future.result(0) for future in futures)


def asyncio_(job: Job, ready: Ready) -> None:
    from kpl_codec.producer import AsyncProducer

    async def main() -> None:
        async with AsyncProducer("s", client_settings=OURS) as producer:
            assert await producer.wait_ready(60)
            ready()
            futures = [await producer.put(key, data) for key, data in job]
            await producer.flush()
            assert all(future.result() for future in futures)

    asyncio.run(main())


def aiokpl(job: Job, ready: Ready) -> None:
    from aiokpl import Config, Producer

    limits = {"rate_limit_records_per_sec_per_shard": 1e9, "rate_limit_bytes_per_sec_per_shard": 1e12}

    async def main() -> None:
        config = Config(region="us-east-1", endpoint_url=SETTINGS["endpoint_url"], **KEYS, **limits)
        async with Producer(config) as producer:
            await (await producer.put_record(stream="s", partition_key="warm", data=b"up")).wait()
            ready()
            outcomes = [await producer.put_record(stream="s", partition_key=k, data=data) for k, data in job]
            await producer.flush()
            for outcome in outcomes:
                assert (await outcome.wait()).success

    asyncio.run(main())


def async_kinesis(job: Job, ready: Ready) -> None:
    from aiobotocore.session import AioSession
    from kinesis import Producer
    from kinesis.aggregators import KPLAggregator
    from kinesis.processors import Processor
    from kinesis.serializers import Serializer

    class AsItIs(Serializer):  # type: ignore[misc]
        def serialize(self, item: bytes) -> bytes:
            return item

    class KplBytes(Processor, KPLAggregator, AsItIs):  # type: ignore[misc]
        pass

    async def main() -> None:
        session = AioSession()
        session.set_credentials(*KEYS.values())
        limits = {"put_rate_limit_per_shard": 10**9, "put_bandwidth_limit_per_shard": 10**9}
        where = {"endpoint_url": SETTINGS["endpoint_url"], "region_name": "us-east-1"}
        async with Producer(
            "s", session=session, processor=KplBytes(AGGREGATE), **where, **limits
        ) as producer:
            ready()
            for _, data in job:
                await producer.put(data)
            await producer.flush()

    asyncio.run(main())


def _put(client: Any, records: list[dict[str, Any]]) -> None:
    assert client.put_records(StreamName="s", Records=records)["FailedRecordCount"] == 0


def boto3_alone(job: Job, ready: Ready) -> None:
    import boto3

    client = boto3.client("kinesis", **SETTINGS)
    ready()
    for start in range(0, len(job), 500):
        _put(client, [{"PartitionKey": key, "Data": data} for key, data in job[start : start + 500]])


def aws_kinesis_agg(job: Job, ready: Ready) -> None:
    import boto3
    from aws_kinesis_agg.aggregator import RecordAggregator

    client, aggregator = boto3.client("kinesis", **SETTINGS), RecordAggregator(AGGREGATE)
    ready()
    for full in (aggregator.add_user_record(key, data) for key, data in job):
        if full is not None:
            _put(client, [{"PartitionKey": full.get_contents()[0], "Data": full.get_contents()[2]}])
    key, _, data = aggregator.clear_and_get().get_contents()
    _put(client, [{"PartitionKey": key, "Data": data}])


CONTENDERS = {
    "kpl_codec, threads": threads,
    "kpl_codec, asyncio": asyncio_,
    "aiokpl": aiokpl,
    "async-kinesis, KPL mode": async_kinesis,
    "boto3 with aws_kinesis_agg": aws_kinesis_agg,
    "boto3 alone": boto3_alone,
}


def once(name: str, count: int) -> float:
    """Microseconds of CPU a user record, in this process."""
    rng, begun = random.Random(1), [0.0]
    job = [(f"key-{rng.randrange(512)}", rng.randbytes(100)) for _ in range(count)]
    answer_calls()
    CONTENDERS[name](job, lambda: begun.__setitem__(0, time.process_time()))
    return (time.process_time() - begun[0]) / count * 1e6


def measure(count: int, rounds: int) -> dict[str, float]:
    """Median microseconds of CPU a user record, by contender."""
    found: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        for name, taken in found.items():
            command = [sys.executable, "-m", __spec__.name, name, str(count)]
            taken.append(float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    return {name: median(taken) for name, taken in found.items()}


if __name__ == "__main__":
    print(once(sys.argv[1], int(sys.argv[2])))
