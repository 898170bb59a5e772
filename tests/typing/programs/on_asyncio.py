"""A Lambda handler on asyncio that puts each user record once into another stream, and notes drops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import kpl_codec as kpl
from kpl_codec.aws import kinesis_client
from kpl_codec.aws_lambda import ShardMapCache, user_records
from kpl_codec.aws_lambda.aio import process_user_records, run
from kpl_codec.producer import AsyncProducer, Delivery, DeliveryError, ProducerConfig

maps = ShardMapCache(kinesis_client(region="eu-west-1"), max_age=30)
seen: set[str] = set()
dropped: list[kpl.Drop] = []


async def undelivered(error: DeliveryError) -> None:
    print(error.code, error.attempts)


async def once(key: str, call: Callable[[], Awaitable[object]]) -> object:
    if key in seen:
        return None
    result = await call()
    seen.add(key)
    return result


async def forward(event: dict[str, Any], context: object) -> dict[str, Any]:
    config = ProducerConfig(record_ttl_ms=60_000)
    async with AsyncProducer("copies", config=config, on_undelivered=undelivered) as producer:

        async def handle(record: kpl.DeaggregatedRecord) -> str:
            delivery: Delivery = await (await producer.put(record.partition_key or "", record.data))
            return delivery.shard_id

        return await process_user_records(
            event,
            handle,
            policy="kcl",
            on_drop=dropped.append,
            shard_map=maps,
            concurrency=50,
            once=once,
            context=context,
            after_failure="continue",
        )


def count(event: dict[str, Any], shard_map: kpl.ShardMap) -> int:
    records = user_records(event, "report", shard_map=shard_map, on_drop=dropped.append)
    return sum(len(record.data) for record in records) + records.counts.user_records


def lambda_handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    return run(forward(event, context))
