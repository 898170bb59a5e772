"""A Lambda handler on asyncio, and each user record once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import kpl_codec as kpl
from kpl_codec.aws_lambda.aio import process_user_records, run

seen: set[str] = set()


async def store(record: kpl.DeaggregatedRecord) -> str:
    await asyncio.sleep(0)
    return record.data.decode()


async def once(key: str, call: Callable[[], Awaitable[object]]) -> object:
    if key in seen:
        return None
    result = await call()
    seen.add(key)
    return result


def lambda_handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    return run(process_user_records(event, store, concurrency=50, once=once, context=context))
