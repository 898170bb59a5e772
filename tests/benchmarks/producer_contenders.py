"""The producers that are compared. Each puts the whole job, and returns when all of it is confirmed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

Job = list[tuple[str, bytes]]
Ready = Callable[[], None]


def kpl_codec_threads(settings: dict[str, str], stream: str, job: Job, ready: Ready) -> None:
    from kpl_codec.producer import Producer

    with Producer(stream, client_settings=settings) as producer:
        assert producer.wait_ready(30)
        ready()
        futures = [producer.put(key, data) for key, data in job]
        producer.flush()
        assert all(future.result(0) for future in futures)


def kpl_codec_asyncio(settings: dict[str, str], stream: str, job: Job, ready: Ready) -> None:
    from kpl_codec.producer import AsyncProducer

    async def main() -> None:
        async with AsyncProducer(stream, client_settings=settings) as producer:
            assert await producer.wait_ready(30)
            ready()
            futures = [await producer.put(key, data) for key, data in job]
            await producer.flush()
            assert all(future.result() for future in futures)

    asyncio.run(main())


def aiokpl(settings: dict[str, str], stream: str, job: Job, ready: Ready) -> None:
    from aiokpl import Config, Producer

    config = Config(
        region=settings["region_name"],
        endpoint_url=settings["endpoint_url"],
        aws_access_key_id=settings["aws_access_key_id"],
        aws_secret_access_key=settings["aws_secret_access_key"],
        rate_limit_records_per_sec_per_shard=1e9,
        rate_limit_bytes_per_sec_per_shard=1e12,
    )

    async def main() -> None:
        async with Producer(config) as producer:
            await (await producer.put_record(stream=stream, partition_key="warm", data=b"up")).wait()
            ready()
            outcomes = [
                await producer.put_record(stream=stream, partition_key=key, data=data) for key, data in job
            ]
            await producer.flush()
            for outcome in outcomes:
                assert (await outcome.wait()).success

    asyncio.run(main())


def async_kinesis(settings: dict[str, str], stream: str, job: Job, ready: Ready) -> None:
    from aiobotocore.session import AioSession
    from kinesis import Producer
    from kinesis.aggregators import KPLAggregator
    from kinesis.processors import Processor
    from kinesis.serializers import Serializer

    class AsItIs(Serializer):
        def serialize(self, item: bytes) -> bytes:
            return item

    class KplBytes(Processor, KPLAggregator, AsItIs):
        pass

    async def main() -> None:
        session = AioSession()
        session.set_credentials(settings["aws_access_key_id"], settings["aws_secret_access_key"])
        async with Producer(
            stream,
            session=session,
            endpoint_url=settings["endpoint_url"],
            region_name=settings["region_name"],
            put_rate_limit_per_shard=10**9,
            put_bandwidth_limit_per_shard=10**9,
            processor=KplBytes(51200),
        ) as producer:
            ready()
            for _, data in job:
                await producer.put(data)
            await producer.flush()

    asyncio.run(main())


def _boto3(settings: dict[str, str], stream: str) -> tuple[Any, Callable[[list[dict[str, Any]]], None]]:
    import boto3

    client = boto3.client("kinesis", **settings)
    client.list_shards(StreamName=stream)

    def put(waiting: list[dict[str, Any]]) -> None:
        assert client.put_records(StreamName=stream, Records=waiting)["FailedRecordCount"] == 0
        waiting.clear()

    return client, put


def boto3_alone(settings: dict[str, str], stream: str, job: Job, ready: Ready) -> None:
    _, put = _boto3(settings, stream)
    ready()
    waiting: list[dict[str, Any]] = []
    for key, data in job:
        waiting.append({"PartitionKey": key, "Data": data})
        if len(waiting) == 500:
            put(waiting)
    if waiting:
        put(waiting)


def aws_kinesis_agg(settings: dict[str, str], stream: str, job: Job, ready: Ready) -> None:
    from aws_kinesis_agg.aggregator import RecordAggregator

    _, put = _boto3(settings, stream)
    waiting: list[dict[str, Any]] = []

    def full(aggregate: Any, least: int = 10) -> None:
        if aggregate is not None:
            key, hash_key, data = aggregate.get_contents()
            outer = {"PartitionKey": key, "Data": data}
            waiting.append(outer if hash_key is None else {**outer, "ExplicitHashKey": hash_key})
        if len(waiting) >= least:
            put(waiting)

    ready()
    aggregator = RecordAggregator(51200)
    for key, data in job:
        full(aggregator.add_user_record(key, data))
    full(aggregator.clear_and_get(), 1)


def core(settings: dict[str, str], stream: str, job: Job, ready: Ready) -> None:
    from kpl_codec.producer import Delivery, ProducerConfig, ProducerCore
    from kpl_codec.shards.live_shard_map import LiveShardMap, Request

    from .producer_calls import Calls, Stub

    stub = Stub(4, Calls())
    producer = ProducerCore(
        ProducerConfig(max_outstanding_records=10**9, max_outstanding_bytes=2**40, rate_limit=2**60),
        LiveShardMap(stream),
        random.Random(1).randrange,
    )
    producer.live.refresh(0.0)

    def run(now: float) -> int:
        for call in producer.requests(now):
            if isinstance(call, Request):
                answer = stub.answer(call.operation, call.arguments)
            else:
                answer = stub.answer("PutRecords", {"Records": call.records})
            producer.receive(call, answer, now)
        return sum(isinstance(pending.result, Delivery) for pending in producer.results())

    run(0.0)
    run(0.0)
    ready()
    delivered = 0
    for number, (key, data) in enumerate(job):
        now = number * 1e-5
        producer.accept(producer.prepare(key, data), now)
        if number % 500 == 499:
            delivered += run(now)
    producer.close()
    delivered += run(number * 1e-5)
    assert delivered == len(job)


def aggregation(settings: dict[str, str], stream: str, job: Job, ready: Ready) -> None:
    from aws_kinesis_agg.aggregator import RecordAggregator

    ready()
    aggregator = RecordAggregator(51200)
    for key, data in job:
        aggregate = aggregator.add_user_record(key, data)
        if aggregate is not None:
            aggregate.get_contents()
    aggregator.clear_and_get().get_contents()


SENDING = (kpl_codec_threads, kpl_codec_asyncio, aiokpl, async_kinesis, aws_kinesis_agg, boto3_alone)
NOT_SENDING = (core, aggregation)
CONTENDERS = {contender.__name__: contender for contender in (*SENDING, *NOT_SENDING)}
