"""Runs the consumers of a queue in virtual time: tests are written once for threads and asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from typing import Any
from unittest import mock

from botocore.model import ServiceModel

import kpl_codec as kpl
from kpl_codec.aws.calls import maybe_await, run_sync
from kpl_codec.queues import QueueCounts, aio, process_queue_records
from kpl_codec.queues.queue_consumer import QueueConsumer

from .queue_service import DirectClient, QueueService, VirtualClock

KINDS = ("threads", "asyncio")


def aggregate(number: int, users: int = 3) -> bytes:
    return kpl.encode([kpl.UserRecord(f"k{i}", b"%d.%d" % (number, i)) for i in range(users)])


class Stop(threading.Event):
    """Waiting passes virtual time."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.sleep(timeout or 0.0)
        return self.is_set()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Where a real loop would wait, its time goes on at once."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        selector: Any = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def select_now(timeout: float | None) -> Any:
            if timeout:
                clock.sleep(timeout + 1e-6)
            return select(0)

        selector.select = select_now

    def time(self) -> float:
        return self._clock.now()


class Bench:
    """A service, and consumers of one kind. ``stop`` is that of the consumer that runs."""

    def __init__(self, model: ServiceModel, kind: str, **settings: Any) -> None:
        self.kind, self.clock = kind, VirtualClock()
        self.service = QueueService(model, self.clock, **settings)
        self.stop: Any = None

    def queue(self, records: int, users: int = 3) -> str:
        """A queue with so many aggregates."""
        queue = self.service.create()
        for number in range(records):
            self.service.put("a", aggregate(number, users))
        return queue

    @property
    def one_by_one(self) -> dict[str, Any]:
        """Options with which one Kinesis record at a time is handled."""
        return {} if self.kind == "threads" else {"concurrency": 1}

    async def pause(self, seconds: float) -> None:
        """For handlers: they take this long."""
        if self.kind == "threads":
            self.clock.sleep(seconds)
        else:
            await asyncio.sleep(seconds)

    @contextmanager
    def without_heartbeats(self) -> Iterator[None]:
        async def nothing(consumer: QueueConsumer) -> None: ...

        with mock.patch.object(QueueConsumer, "heartbeat", nothing):
            yield

    def consume(
        self,
        queue: str,
        handle: Callable[[Any], Coroutine[Any, Any, object]],
        *,
        once: Callable[[str, Callable[[], Any]], Coroutine[Any, Any, None]] | None = None,
        client: Any = None,
        **options: Any,
    ) -> QueueCounts:
        client = client or DirectClient(self.service)
        options = {"drain": True, **options}
        if self.kind == "threads":
            self.stop = Stop(self.clock)
            with mock.patch("kpl_codec.queues.threaded_consumer.heartbeats", self.clock.heartbeats):
                return process_queue_records(
                    client,
                    queue,
                    lambda given: run_sync(handle(given)),
                    once=None if once is None else lambda key, call: run_sync(once(key, call)),
                    stop=self.stop,
                    clock=self.clock.now,
                    sleep=self.clock.sleep,
                    **options,
                )

        async def in_this_thread(function: Callable[..., Any], **arguments: Any) -> Any:
            return function(**arguments)

        async def main() -> QueueCounts:
            self.stop = asyncio.Event()
            return await aio.process_queue_records(
                client, queue, handle, once=once, stop=self.stop, **options
            )

        with (
            closing(VirtualLoop(self.clock)) as loop,
            mock.patch("asyncio.to_thread", in_this_thread),
            mock.patch("kpl_codec.queues.aio.monotonic", self.clock.now),
        ):
            try:
                return loop.run_until_complete(main())
            finally:
                rest = asyncio.all_tasks(loop)
                for task in rest:
                    task.cancel()
                if rest:
                    loop.run_until_complete(asyncio.wait(rest))


class Store:
    """What ``once`` knows as handled; ``step`` is called around the call."""

    def __init__(self, *keys: str, step: Callable[[], None] = lambda: None) -> None:
        self.keys, self._step = {*keys}, step

    async def once(self, key: str, call: Callable[[], Any]) -> None:
        self._step()
        if key not in self.keys:
            await maybe_await(call())
            self._step()
            self.keys.add(key)
