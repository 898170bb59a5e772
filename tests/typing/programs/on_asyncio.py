"""A Lambda handler on asyncio that puts each user record once into another stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import kpl_codec as kpl
from kpl_codec.aws_lambda.aio import process_user_records, run
from kpl_codec.producer import AsyncProducer, Delivery, DeliveryError, ProducerConfig

seen: set[str] = set()


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

        return await process_user_records(event, handle, concurrency=50, once=once, context=context)


def lambda_handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    return run(forward(event, context))
