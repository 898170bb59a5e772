"""What reads a stream, for asyncio: the names, arguments, results and errors of `kpl_codec.aws`.

    async with get_session().create_client("kinesis") as client:       # aiobotocore.session
        shard_map = await fetch_shard_map(client, "orders")
        async for record in read_stream(client, "orders"): ...

``client``: an aiobotocore Kinesis client; one of boto3 would keep the event loop from its other tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

from ..format.records import KinesisRecord
from ..shards.lineage import Lineage
from ..shards.place import at_record
from ..shards.shard_map import ShardMap
from .cursor import ShardCursor
from .reading import PATIENCE, POLL_INTERVAL, Start, read_records, record_at
from .shard_map import fetch

__all__ = ["fetch_lineage", "fetch_shard_map", "read_record", "read_stream"]

_Sleep = Callable[[float], Awaitable[None]]


async def fetch_shard_map(
    client: Any,
    stream: str,
    *,
    closed: bool = False,
    timeout: float = 30.0,
    sleep: _Sleep = asyncio.sleep,
) -> ShardMap:
    """As `kpl_codec.aws.fetch_shard_map`."""
    live = await fetch(client, stream, closed=closed, sleep=sleep, timeout=timeout)
    assert live.shard_map is not None
    return live.shard_map


async def fetch_lineage(
    client: Any, stream: str, *, timeout: float = 30.0, sleep: _Sleep = asyncio.sleep
) -> Lineage:
    """As `kpl_codec.aws.fetch_lineage`."""
    return (await fetch(client, stream, closed=True, sleep=sleep, timeout=timeout)).lineage


def read_stream(
    client: Any,
    stream: str,
    *,
    start: Start = "TRIM_HORIZON",
    follow: bool = False,
    shard_ids: Collection[str] | None = None,
    poll_interval: float = POLL_INTERVAL,
    patience: float = PATIENCE,
    sleep: _Sleep = asyncio.sleep,
) -> AsyncIterator[KinesisRecord]:
    """As `kpl_codec.aws.read_stream`, for ``async for``."""
    return read_records(client, stream, start, follow, shard_ids, poll_interval, patience, sleep)


async def read_record(
    client: Any, stream: str, shard_id: str, sequence_number: str, *, patience: float = PATIENCE
) -> KinesisRecord | None:
    """As `kpl_codec.aws.read_record`."""
    place = at_record(sequence_number)
    cursor = ShardCursor(client, stream, shard_id, place, patience=patience, sleep=asyncio.sleep)
    return await record_at(cursor, sequence_number)
