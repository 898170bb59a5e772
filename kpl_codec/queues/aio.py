"""A consumer of a queue on asyncio: the Kinesis records of an answer in parallel, user records in order.

    from kpl_codec.queues.aio import process_queue_records

    counts = await process_queue_records(client, queue_arn, handle)      # until SIGTERM

``client``: aiobotocore's where that is built on botocore 1.44, or boto3's, whose calls then run in threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..aws.calls import maybe_await
from ..aws_lambda.aio import AsyncOnce
from .queue_consumer import QueueConsumer, QueueCounts, Received
from .threaded_consumer import QueueOptions, stopped_by_sigterm

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["process_queue_records"]


async def process_queue_records(
    client: Any,
    queue: str,
    handle: Callable[[Any], Awaitable[object]],
    *,
    concurrency: int = 10,
    once: AsyncOnce | None = None,
    stop: asyncio.Event | None = None,
    **options: Unpack[QueueOptions],
) -> QueueCounts:
    """Like `queues.process_queue_records`, with up to ``concurrency`` Kinesis records in parallel. SIGTERM
    ends all that run in the main thread. Raises what that raises."""
    if concurrency < 1:
        raise ValueError("concurrency: 1 or more")
    stop = stop or asyncio.Event()
    consumer = _Tasks(client, queue, handle, once, stop, time.monotonic, asyncio.sleep, **options)
    consumer.client = _InThreads(client)
    consumer.gate = asyncio.Semaphore(concurrency)
    loop = asyncio.get_running_loop()
    with stopped_by_sigterm(lambda: loop.call_soon_threadsafe(stop.set)):
        return await consumer.run()


class _InThreads:
    """A client whose calls are awaited: boto3's block, and aiobotocore's only make an awaitable."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, operation: str) -> Any:
        async def call(**arguments: Any) -> Any:
            return await maybe_await(await asyncio.to_thread(getattr(self._client, operation), **arguments))

        return call


class _Tasks(QueueConsumer):
    gate: asyncio.Semaphore

    async def result(self, returned: object) -> None:
        await maybe_await(returned)  # a plain handler has already run

    def nested(self, steps: Coroutine[Any, Any, None]) -> Any:
        return steps

    async def all_of(self, records: list[Received]) -> None:
        async def gated(received: Received) -> None:
            async with self.gate:
                await self.handle_record(received)

        async def beats() -> None:
            while True:
                await asyncio.sleep(self.beat_seconds)
                await self.beat()

        beating = asyncio.create_task(beats())
        try:
            await asyncio.gather(*map(gated, records))
        finally:
            beating.cancel()
            await asyncio.wait([beating])

    async def wait(self, seconds: float) -> bool:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.stop.wait(), seconds)
        return bool(self.stop.is_set())
