"""What type checkers must refuse: each line that ends in ``# wrong``, and no other. Never run."""

from __future__ import annotations

from typing import Any

import kpl_codec as kpl
from kpl_codec import aws
from kpl_codec.aws_lambda import process_user_records
from kpl_codec.producer import DeliveryFuture, ProducerConfig, ProducerFull


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
