"""Fetches the shard map of a stream.

    shard_map = fetch_shard_map(client, "orders")
    lineage = fetch_lineage(client, "orders")                          # with the closed shards

The rules are in `kpl_codec.shards.live_shard_map`; this module has the calls and the clock.
`kpl_codec.aws.aio` has the same for asyncio.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from ..shards.lineage import Lineage
from ..shards.live_shard_map import LiveShardMap, MapChanged, RefreshFailed
from ..shards.refresh import ShardFilterType
from ..shards.shard_map import ShardMap
from .calls import async_sleep, call_errors, failure_of, maybe_await, send, stream_for, sync_function


async def _fetch(
    client: Any, stream: str, *, closed: bool, sleep: Callable[[float], object], timeout: float
) -> LiveShardMap:
    shard_filter: ShardFilterType = "FROM_TRIM_HORIZON" if closed else "AT_LATEST"
    stream_for(client, stream)
    live = LiveShardMap(stream, shard_filter=shard_filter, chance=random.random)
    clock = time.monotonic
    end = clock() + timeout
    live.refresh(clock())
    while True:
        outcome: MapChanged | RefreshFailed | None = None
        while (request := live.next_request(clock())) is not None:
            try:
                response = await maybe_await(send(client, request))
            except call_errors() as error:
                outcome = live.fail(request, failure_of(error, request.operation), clock()) or outcome
            else:
                outcome = live.receive(request, response, clock()) or outcome
        if isinstance(outcome, MapChanged):
            return live
        retry_at = live.timer()
        if live.error is not None and (live.error.permanent or retry_at is None or retry_at > end):
            raise live.error
        if retry_at is not None:
            await maybe_await(sleep(max(0.0, retry_at - clock())))


async def async_fetch_shard_map(
    client: Any,
    stream: str,
    *,
    closed: bool = False,
    timeout: float = 30.0,
    sleep: Callable[[float], object] = async_sleep,
) -> ShardMap:
    """The stream's present shard map, with its distribution strategy if the role may read that.

    ``client``: a Kinesis client, of boto3 for `kpl_codec.aws`, of aiobotocore for `kpl_codec.aws.aio`;
    ``stream``: a name or an ARN. ``closed``: also the closed shards that still hold records. It retries with
    backoff for ``timeout`` seconds, and waits with ``sleep``. Raises StreamUnavailable: at once if a retry
    cannot help, else the last error.
    """
    live = await _fetch(client, stream, closed=closed, sleep=sleep, timeout=timeout)
    assert live.shard_map is not None
    return live.shard_map


async def async_fetch_lineage(
    client: Any, stream: str, *, timeout: float = 30.0, sleep: Callable[[float], object] = async_sleep
) -> Lineage:
    """The lineage of all shards that still hold records. Arguments and errors are those of
    `fetch_shard_map`."""
    return (await _fetch(client, stream, closed=True, sleep=sleep, timeout=timeout)).lineage


fetch_shard_map = sync_function(async_fetch_shard_map)
fetch_lineage = sync_function(async_fetch_lineage)
