"""The live shard map with asyncio and aiobotocore; `StreamShardMap` is the one with threads.

async with AsyncStreamShardMap(client, "orders") as live:
    await live.wait_ready()
    live.predict(hash_key)
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..format.hash_keys import HashKeyRange
from ..shards.live_shard_map import State
from ..shards.shard_map import ShardMap
from .calls import CALL_ERRORS, failure_of, send
from .shard_map_base import LiveShardMapView


class AsyncStreamShardMap(LiveShardMapView):
    """A `LiveShardMap` with a task that makes its calls. Use it from one event loop only.

    ``settings`` are those of `LiveShardMap`. Times are of ``clock``, time.monotonic by default.
    """

    def __init__(
        self, client: Any, stream: str, *, clock: Callable[[], float] = time.monotonic, **settings: Any
    ) -> None:
        super().__init__(client, stream, clock=clock, **settings)
        self._wake = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncStreamShardMap:
        self._live.refresh(self._clock())
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def hash_key_range(self, shard_id: str) -> HashKeyRange | None:
        """The range of a shard that is open, or was closed recently."""
        return self._live.hash_key_range(shard_id, self._clock())

    def invalidate(self, seen_at: float, predicted_shard: str | None) -> bool:
        """Report that a record sent at ``seen_at`` (same clock) is on another shard than
        ``predicted_shard``."""
        believed = self._live.invalidate(seen_at, predicted_shard, self._clock())
        if believed:
            self._wake.set()
        return believed

    def refresh(self) -> bool:
        """Ask for a routine refresh (also after a permanent error). Returns whether one starts."""
        starts = self._live.refresh(self._clock())
        if starts:
            self._wake.set()
        return starts

    async def wait_ready(self, timeout: float | None = None) -> ShardMap:
        """Wait until the map is READY.

        Raises StreamUnavailable at once for a permanent error, and TimeoutError after ``timeout``
        seconds with the last StreamUnavailable as its cause.
        """
        try:
            return await asyncio.wait_for(self._ready(), timeout)
        except asyncio.TimeoutError:
            raise TimeoutError(f"no shard map of {self._live.stream}") from self._live.error

    async def _ready(self) -> ShardMap:
        async with self._changed:
            while True:
                if self._live.state is State.READY:
                    assert self._live.shard_map is not None
                    return self._live.shard_map
                if self._live.permanent_error is not None:
                    raise self._live.permanent_error
                if self._task is None or self._task.done():
                    crash = None if self._task is None or self._task.cancelled() else self._task.exception()
                    raise RuntimeError("the shard map's task is not running") from crash
                await self._changed.wait()

    async def _run(self) -> None:
        try:
            while True:
                await self._turn()
        finally:
            # Wake all waiting callers, so that they see that this task has ended.
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(self._tell()))

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _turn(self) -> None:
        request = self._live.next_request(self._clock())
        if request is None:
            timer = self._live.timer()
            self._wake.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(
                    self._wake.wait(), None if timer is None else max(0.0, timer - self._clock())
                )
            return
        try:
            answer = await send(self._client, request)
        except CALL_ERRORS as error:
            self._live.fail(request, failure_of(error), self._clock())
        else:
            self._live.receive(request, answer, self._clock())
        await self._tell()
