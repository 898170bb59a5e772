"""What type checkers must refuse: each line that ends in ``# wrong``, and no other. At the end are calls that
they must accept, and that no page has with types. Never run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

import kpl_codec as kpl
from kpl_codec import aws
from kpl_codec.audit import Ledger
from kpl_codec.aws_lambda import ShardMapCache, aio, process_user_records, user_records
from kpl_codec.producer import (
    AsyncProducer,
    Delivery,
    DeliveryError,
    DeliveryFuture,
    Producer,
    ProducerConfig,
    ProducerFull,
)


def errors(error: kpl.IndexOutOfTable, cut: kpl.MalformedMessage) -> None:
    kpl.DecodeError(nonsense=1)  # wrong
    kpl.DecodeError("positional")  # wrong
    kpl.IndexOutOfTable(index=1, table="partition_key_table")  # wrong
    kpl.MalformedMessage(code="no-such-code")  # wrong
    kpl.UnknownShard(shard_id=5, shard_ids=())  # wrong
    ProducerFull(records="many", bytes=1)  # wrong
    print(error.tabel)  # wrong
    name: int = error.table  # wrong
    print(name, cut.code == "truncated")


def options(records: list[kpl.KinesisRecord], shard_map: kpl.ShardMap, event: dict[str, Any]) -> None:
    kpl.deaggregate(records, "lenient")  # wrong
    kpl.deaggregate(records, "strict", shard_map)  # wrong
    kpl.deaggregate([b"data"])  # wrong
    kpl.decode("84mawg==")  # wrong
    kpl.encode([("key", b"data")])  # wrong
    process_user_records(event, print, after_failure="again")  # wrong
    ProducerConfig(when_full="wait")  # wrong
    kpl.ShardMap.from_json({"Shards": []})  # wrong


def of_a_record(record: kpl.KinesisRecord) -> None:
    print(record.stream)


def functions(future: DeliveryFuture, event: dict[str, Any]) -> None:
    future.add_done_callback(of_a_record)  # wrong
    process_user_records(event, of_a_record)  # wrong
    kpl.deaggregate([], on_drop=of_a_record)  # wrong
    aws.kinesis_client().put_order()  # wrong


def by_position(shards: list[kpl.Shard]) -> None:
    kpl.Shard("shardId-0", kpl.ALL_HASH_KEYS, "shardId-1")  # wrong
    kpl.ShardMap(shards, "AUTO")  # wrong
    aws.read_record(aws.kinesis_client(), "orders", "shardId-0", "17")  # wrong


def values(record: kpl.DeaggregatedRecord) -> None:
    key: str = record.partition_key  # wrong
    record.data = b"other"  # wrong
    print(key, aws.NoSuchName)  # wrong


# -- what is right ------------------------------------------------------------------------------------


def observe(name: str, value: float, attributes: Mapping[str, str]) -> int:
    return len(attributes)


def look(future: DeliveryFuture) -> int:
    delivery: Delivery = future.result(timeout=60)
    return len(delivery.attempts)


async def undelivered(error: DeliveryError) -> None:
    print(error.user_record.partition_key, error.may_be_stored)


async def once(key: str, call: Callable[[], Awaitable[object]]) -> object:
    return await call()


async def handle(record: kpl.DeaggregatedRecord) -> str:
    async with AsyncProducer("copies", on_undelivered=undelivered) as producer:
        delivery: Delivery = await (await producer.put(record.partition_key or "", record.data))
    return delivery.shard_id


def handled(event: dict[str, Any]) -> dict[str, Any]:
    maps = ShardMapCache(aws.kinesis_client(profile="orders", role_arn="arn"), max_age=30)
    print(user_records(event, "report", shard_map=maps.shard_map("arn")).counts.user_records)
    handling = aio.process_user_records(
        event, handle, policy="kcl", on_drop=print, shard_map=maps, once=once, after_failure="continue"
    )
    return aio.run(handling)


def put(producer: Producer) -> Producer:
    producer.put("customer", b"{}", "17", tags=(kpl.Tag("source", "web"),)).add_done_callback(look)
    settings = {"region": "eu-west-1"}
    return Producer("orders", client_settings=settings, observe=observe, ledger=Ledger("produced"))


def verdicts(client: object, shard_map: kpl.ShardMap) -> Counter[kpl.Verdict]:
    records = aws.read_stream(client, "orders", start=datetime.now())
    one = aws.read_record(client, "orders", shard_id="shardId-0", sequence_number="17")
    print(b"" if one is None else one.data)
    for item in aws.fetch_records(client, "orders", aws.find_sequence_numbers(b"17")):
        print(item.data if isinstance(item, kpl.KinesisRecord) else item.reason)
    opened = kpl.deaggregate(records, "report", shard_map=shard_map)
    return Counter(kpl.verify_placement(record, shard_map).verdict for record in opened)
