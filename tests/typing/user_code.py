"""What users write. Never run: `test_user_code.py` has mypy and pyright read it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import boto3
from hypothesis import given
from pyspark.sql import DataFrame, SparkSession

import kpl_codec as kpl
from kpl_codec.adapters import captured, kinesis_records, to_lambda
from kpl_codec.aws import aio, fetch_lineage, fetch_shard_map, read_stream
from kpl_codec.aws_lambda import (
    Poison,
    Transformed,
    process_user_records,
    process_window,
    transform_user_records,
)
from kpl_codec.aws_lambda.batch import Once
from kpl_codec.producer import (
    AsyncProducer,
    Attempt,
    Delivery,
    DeliveryError,
    Producer,
    ProducerConfig,
    ProducerFull,
)
from kpl_codec.queues import aio as aio_queues
from kpl_codec.queues import find_queue, process_queue_records
from kpl_codec.spark import KinesisDataSource, deaggregate, verify
from kpl_codec.testing import strategies as kpl_st
from kpl_codec.testing.local_kinesis import LocalKinesis

if TYPE_CHECKING:
    from typing_extensions import assert_type


def handle(record: kpl.DeaggregatedRecord) -> None:
    key: str | None = record.partition_key
    required: str = record.require_partition_key()
    data: bytes = record.data
    print(key, required, data, record.sub_sequence_number + 1, record.tags[0].key)


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    def keep(poison: Poison) -> None:
        print(poison.error.code, poison.stream_arn)

    return process_user_records(event, handle, after_failure="continue", on_poison=keep, policy="report")


def window_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    def count(state: dict[str, Any], record: kpl.DeaggregatedRecord) -> dict[str, Any]:
        return {"count": state.get("count", 0) + len(record.data)}

    return process_window(event, count)


def consume_a_queue(client: Any, once: Once) -> int:
    queue = find_queue(client, "orders-queue")
    counts = process_queue_records(client, queue, handle, once=once, visibility=60, batch=None)
    return counts.acknowledged


async def consume_it_on_asyncio(client: Any) -> int:
    async def handle(records: list[kpl.DeaggregatedRecord]) -> None:
        print(len(records))

    counts = await aio_queues.process_queue_records(client, "arn", handle, batch=10, concurrency=4)
    return counts.user_records


def firehose_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    def upper(record: kpl.DeaggregatedRecord) -> Transformed | None:
        return Transformed(record.data.upper(), {"tenant": "a"}) if record.data else None

    return transform_user_records(event, upper, delimiter=b"\n")


def follow(iterator: str, shard_map: kpl.ShardMap) -> Iterator[kpl.DeaggregatedRecord]:
    client = boto3.client("kinesis")
    while iterator:
        answer = client.get_records(ShardIterator=iterator)
        records = kinesis_records(answer, shard_id="shardId-000000000000")
        deaggregated = kpl.deaggregate(records, "report", shard_map=shard_map)
        for record in deaggregated:
            if record.placement is not None and record.placement.verdict != "expected":
                place: str | None = record.placement.expected_shard_id
                print(place, record.kcl == "dropped", [defect.offset for defect in record.defects])
            yield record
        print(deaggregated.counts.user_records)
        iterator = answer["NextShardIterator"]


def whole_stream() -> int:
    client = boto3.client("kinesis")
    shard_map = fetch_shard_map(client, "orders")
    lineage: kpl.Lineage = fetch_lineage(client, "orders")
    shard: kpl.Shard = shard_map.shard_for(kpl.effective_hash_key("customer-17"))
    print(shard.shard_id in shard_map, {i: shard.open for i, shard in shard_map.items()})
    print(shard.hash_key_range.size, [child.shard_id for child in lineage.children(shard.shard_id)])
    return sum(len(record.data) for record in kpl.deaggregate(read_stream(client, "orders")))


async def whole_stream_with_asyncio(client: object) -> int:
    shard_map: kpl.ShardMap = await aio.fetch_shard_map(client, "orders", closed=True)
    lineage: kpl.Lineage = await aio.fetch_lineage(client, "orders")
    record: kpl.KinesisRecord | None = await aio.read_record(client, "orders", "shardId-000000000000", "1")
    print(len(shard_map), len(lineage.children("shardId-000000000000")), record)
    return sum([len(record.data) async for record in aio.read_stream(client, "orders", follow=True)])


def captures(text: str) -> None:
    for item in captured(text):
        if isinstance(item, kpl.CaptureError):
            print(item.code, item.field, item.position, item.hint)
        else:
            when: datetime | None = item.approximate_arrival_timestamp
            print(item.data, when)
    event: dict[str, Any] = to_lambda(kinesis_records(text), stream_arn="arn")
    print(event)


def produce() -> None:
    config = ProducerConfig(record_ttl_ms=60_000, ordering="partition-key", reshard_proof=True)
    with Producer("orders", config=config) as producer:
        try:
            future = producer.put("customer-17", b"data", tags=(kpl.Tag("trace", "1"),))
            delivery: Delivery = future.result(timeout=10)
            print(delivery.shard_id, delivery.sequence_number)
        except ProducerFull as full:
            print(full.records, full.bytes)
        except DeliveryError as error:
            first: Attempt = error.attempts[0]
            print(error.outcome == "expired", first.code)


async def keep_undelivered(error: DeliveryError) -> None:
    key: str | None = error.user_record.partition_key
    data: bytes = error.user_record.data
    print(key, len(data), error.user_record.explicit_hash_key, error.may_be_stored)
    with Producer("dead-letters", on_undelivered=lambda error: print(error.reason)) as producer:
        producer.put(*error.user_record)


async def produce_async() -> None:
    async with AsyncProducer("orders", on_undelivered=keep_undelivered) as producer:
        delivery = await (await producer.put("customer-17", b"data"))
        print(delivery.sub_sequence_number)


def job(spark: SparkSession, shards: str) -> DataFrame:
    spark.dataSource.register(KinesisDataSource)
    raw = spark.readStream.format("kpl-kinesis").options(stream="orders", region="eu-west-1").load()
    checked = verify(raw, kpl.ShardMap.from_json(shards))
    return deaggregate(checked, "report", tags=False)


@given(kpl_st.aggregated_records(), kpl_st.shard_maps())
def test_my_consumer(aggregate: kpl_st.Aggregate, shard_map: kpl.ShardMap) -> None:
    assert [record.data for record in kpl.decode(aggregate.data)] == [r.data for r in aggregate.user_records]
    assert shard_map.open_shards


def test_on_a_server(kinesis_local: LocalKinesis, stream_name: str) -> None:
    kinesis_local.create_stream(stream_name, shards=2)


def open_aggregate(data: bytes) -> str:
    try:
        aggregate = kpl.decode(data)
    except kpl.IndexOutOfTable as error:
        return f"{error.table}[{error.index}] of {error.size} at byte {error.offset}: {error.requirement}"
    except kpl.ChecksumMismatch as error:
        return error.expected + error.actual
    except kpl.MalformedMessage as error:
        return "cut off" if error.code == "truncated" else error.code
    except kpl.DecodeError as error:
        there = error.at(sequence_number="1", shard_id=None)
        return there.code + str(there.record_index)
    return ", ".join(record.partition_key for record in aggregate)


def write(records: list[kpl.UserRecord]) -> bytes:
    try:
        return kpl.encode([*records, kpl.UserRecord("key", b"data", 2**127)])
    except kpl.AggregateFull as error:
        return bytes(error.size - error.max_size)
    except kpl.EncodeError as error:
        print(error.field, error.record_index)
        raise


def explain(data: bytes) -> None:
    explanation = kpl.explain(data, hash_key_range=kpl.ALL_HASH_KEYS)
    for _, node in explanation.root.walk():
        assert_type(node, kpl.ExplanationNode)
    outcome: kpl.KclOutcome = explanation.kcl
    print(explanation.kind == "broken frame", outcome.reason == "out-of-range")
