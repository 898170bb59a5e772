"""A consumer of a queue on asyncio. It handles the Kinesis records of a response in parallel.

    from kpl_codec.queues.aio import process_queue_records

    counts = await process_queue_records(client, queue_arn, handler)      # until SIGTERM

``client``: of aiobotocore on botocore 1.44 or newer, or of boto3, whose calls then run in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..arguments import check_arguments, check_keywords, check_needs
from ..aws.calls import maybe_await
from ..aws_lambda.aio import AsyncOnce, finish, gather
from .queue_consumer import QueueConsumer, QueueCounts, QueueDelivery
from .threaded_consumer import QueueOptions, stop_on_sigterm

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["process_queue_records"]


async def process_queue_records(
    client: Any,
    queue: str,
    handler: Callable[[Any], Awaitable[object]],
    *,
    concurrency: int = 10,
    once: AsyncOnce | None = None,
    stop: asyncio.Event | None = None,
    **options: Unpack[QueueOptions],
) -> QueueCounts:
    """As `kpl_codec.queues.process_queue_records`, with up to ``concurrency`` Kinesis records in parallel,
    and the user records of each in order. SIGTERM stops it in the main thread. Raises the same errors, and
    ValueError for a ``concurrency`` below 1."""
    check_keywords("process_queue_records", options, process_queue_records, QueueOptions)
    given = {**locals(), **options}
    check_arguments("process_queue_records", given, required=("client",), awaits=True)
    check_needs("process_queue_records", options, {"poison_after": 5})
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    consumer = _AsyncConsumer(client, queue, handler, once, stop, monotonic, asyncio.sleep, **options)
    consumer.client = _AwaitableClient(client)
    consumer.semaphore = asyncio.Semaphore(concurrency)
    with stop_on_sigterm(lambda: loop.call_soon_threadsafe(stop.set)):
        return await consumer.run()


class _AwaitableClient:
    """A client whose calls can be awaited. The calls of a boto3 client block, so they run in threads."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, operation: str) -> Any:
        async def call(**arguments: Any) -> Any:
            return await maybe_await(await asyncio.to_thread(getattr(self._client, operation), **arguments))

        return call


class _AsyncConsumer(QueueConsumer):
    semaphore: asyncio.Semaphore

    async def finish(self, result: object) -> None:
        await finish(result)

    def start(self, steps: Coroutine[Any, Any, None]) -> Any:
        return steps

    async def handle_all(self, deliveries: list[QueueDelivery]) -> None:
        async def handle(delivery: QueueDelivery) -> None:
            async with self.semaphore:
                await self.handle_record(delivery)

        async def repeat_heartbeat() -> None:
            while True:
                await asyncio.sleep(self.heartbeat_interval)
                await self.heartbeat()

        heartbeats = asyncio.create_task(repeat_heartbeat())
        try:
            await gather(map(handle, deliveries))
        finally:
            heartbeats.cancel()
            await asyncio.wait([heartbeats])

    async def wait_for_stop(self, seconds: float) -> bool:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.stop.wait(), seconds)
        return bool(self.stop.is_set())
