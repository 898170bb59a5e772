"""A Lambda handler with a dead-letter queue, a shard map and a policy that drops."""

from __future__ import annotations

from typing import Any

import kpl_codec as kpl
from kpl_codec.aws import kinesis_client
from kpl_codec.aws_lambda import Poison, ShardMapCache, process_user_records, user_records

maps = ShardMapCache(kinesis_client(region="eu-west-1"), max_age=30)
dropped: list[kpl.Drop] = []


def handle(record: kpl.DeaggregatedRecord) -> None:
    key = record.partition_key or ""
    if record.placement is not None and record.placement.verdict == "stray":
        print(key.upper(), record.placement.expected_shard_id)
    print(len(record.data), [tag.key for tag in record.tags])


def set_aside(poison: Poison) -> None:
    print(poison.error.code, poison.stream_arn)


def lambda_handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    return process_user_records(
        event,
        handle,
        policy="kcl",
        on_drop=dropped.append,
        on_poison=set_aside,
        shard_map=maps,
        context=context,
        after_failure="continue",
    )


def count(event: dict[str, Any], shard_map: kpl.ShardMap) -> int:
    records = user_records(event, "report", shard_map=shard_map)
    return sum(len(record.data) for record in records) + records.counts.user_records
