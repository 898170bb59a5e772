"""A consumer of a queue on asyncio: the Kinesis records of an answer in parallel, user records in order.

    from kpl_codec.aws_lambda.aio_queues import process_queue_records

    counts = await process_queue_records(client, queue_arn, handle)      # until SIGTERM

``client``: aiobotocore's where it is built on botocore 1.44, or boto3's, whose calls then run in threads.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..aws.calls import CALL_ERRORS, failure_of
from ..aws.queues import BACKOFF, Attempts, QueueUnavailable, check_client, incomplete
from ..deaggregation.records import DeaggregatedRecord
from .aio import AsyncOnce
from .batch import Call, log, settle_poison
from .queue_core import QueueConsumer, QueueCounts, QueueOptions, Received

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Takes a user record; with ``batch`` a list of them. A plain function may be given, too.
AsyncQueueHandler = Callable[[Any], Awaitable[object]]


async def process_queue_records(
    client: Any,
    queue: str,
    handle: AsyncQueueHandler,
    *,
    concurrency: int = 10,
    once: AsyncOnce | None = None,
    stop: asyncio.Event | None = None,
    **options: Unpack[QueueOptions],
) -> QueueCounts:
    """Like `queues.process_queue_records`, with up to ``concurrency`` Kinesis records in parallel. SIGTERM
    ends all that run in the main thread. Raises what that raises."""
    check_client(client)
    if concurrency < 1:
        raise ValueError("concurrency: 1 or more")
    consumer = QueueConsumer(queue, once=once is not None, **options)
    stop = stop or asyncio.Event()
    skin = _Skin(client, consumer, handle, once, stop, asyncio.Semaphore(concurrency))
    with _SIGTERM.sets(stop):
        while not stop.is_set():
            # Once ``stop`` is set, no failing call is repeated.
            answer = await skin.call(consumer.calls.receive, consumer.receive(), until=stop)
            records = answer.get("QueueRecords", ())
            if records:
                await skin.consume(consumer.take(answer, time.monotonic()))
            consumer.tell()
            if consumer.drain and not records:
                break
    return consumer.counts


class _Skin:
    """The calls, the clock and the handler of one consumer; the rules are `QueueConsumer`'s."""

    def __init__(
        self,
        client: Any,
        consumer: QueueConsumer,
        handle: AsyncQueueHandler,
        once: AsyncOnce | None,
        stop: asyncio.Event,
        gate: asyncio.Semaphore,
    ) -> None:
        self._client, self._consumer, self._stop, self._gate = client, consumer, stop, gate
        self._handle, self._once = handle, once

    async def call(
        self,
        operation: str,
        arguments: dict[str, Any],
        *,
        patience: float | None = None,
        until: asyncio.Event | None = None,
    ) -> Any:
        """The answer of a call, after retries; empty if ``until`` is set meanwhile. Raises
        QueueUnavailable."""
        patience = self._consumer.patience if patience is None else patience
        attempts = Attempts(self._consumer.queue, operation, patience)
        method = getattr(self._client, operation)
        while True:
            try:
                # boto3's blocks, and aiobotocore's only makes an awaitable: nothing but the call tells.
                answer = await asyncio.to_thread(method, **arguments)
                if hasattr(answer, "__await__"):
                    answer = await answer
                failure = incomplete(operation, answer)
            except CALL_ERRORS as error:
                failure = failure_of(error)
            if failure is None:
                return answer
            pause = attempts.pause(failure, time.monotonic())
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for((until or asyncio.Event()).wait(), pause)
                return {}

    async def consume(self, records: list[Received]) -> None:
        consumer = self._consumer
        beats = asyncio.create_task(self._beats())
        try:
            await asyncio.gather(*map(self._one, records))
        finally:
            beats.cancel()
            await asyncio.wait([beats])
            await self._acknowledge(all_of_them=True)
            entries = consumer.give_back()
            if entries:
                arguments = {"QueueARN": consumer.queue, "Entries": entries}
                await self.call(consumer.calls.update_visibility, arguments)

    async def _one(self, received: Received) -> None:
        async with self._gate:
            # QUE-9, QUE-5, as in `queues`
            if self._stop.is_set() or not self._consumer.may_begin(received, time.monotonic()):
                return
            for group in self._consumer.groups(received):
                try:
                    if self._once is None:
                        await self._run(group[-1], [call.record for call in group], received)
                    else:
                        await self._claim(self._once, group, 0, [], received)
                except Exception:  # noqa: BLE001 - the caller's code: whatever it raises, the records failed
                    received.batch.fail(*group)
            self._consumer.settle(received, time.monotonic())

    async def _claim(
        self, once: AsyncOnce, group: list[Call], at: int, todo: list[DeaggregatedRecord], received: Received
    ) -> None:
        """Handle what of the group was not handled before, within a call of ``once`` for each."""
        if at == len(group):
            if todo:
                await self._run(group[-1], todo, received)
            return
        first = len(todo)

        async def claimed() -> None:
            todo.append(group[at].record)
            await self._claim(once, group, at + 1, todo, received)

        await once(group[at].key, claimed)
        if len(todo) == first:
            self._consumer.counts.skipped += 1
            await self._claim(once, group, at + 1, todo, received)

    async def _run(self, last: Call, todo: list[DeaggregatedRecord], received: Received) -> None:
        consumer = self._consumer
        try:
            made = self._handle(todo if consumer.in_batches else todo[0])
            if hasattr(made, "__await__"):  # a plain handler has already run
                await made
            consumer.counts.user_records += len(todo)
        except Exception as error:
            poison = consumer.poison(last, error, received)
            if poison is None or not settle_poison(poison, consumer.on_poison):
                raise
            consumer.counts.put_aside += 1

    async def _beats(self) -> None:
        """Extend and acknowledge what is due. What fails is tried again at the next beat."""
        consumer = self._consumer
        while True:
            await asyncio.sleep(consumer.beat)
            now = time.monotonic()
            try:
                if chosen := consumer.extend(now):
                    arguments = consumer.entries(chosen, visibility=True)
                    answer = await self.call(consumer.calls.update_visibility, arguments, patience=0)
                    consumer.extended(chosen, answer, now)
                await self._acknowledge(patience=0)
            except QueueUnavailable as error:
                log("%s", error)

    async def _acknowledge(self, *, all_of_them: bool = False, patience: float | None = None) -> None:
        consumer, failures = self._consumer, 0
        while chosen := consumer.acknowledge(time.monotonic(), all_of_them=all_of_them):
            arguments = consumer.entries(chosen)
            try:
                answer = await self.call(consumer.calls.acknowledge, arguments, patience=patience)
            except BaseException:
                consumer.not_yet(chosen)
                raise
            if consumer.acknowledged(chosen, answer):
                if not all_of_them:
                    return
                await asyncio.sleep(BACKOFF.seconds(failures))
                failures += 1


class _Sigterm:
    """Sets the events of all consumers in the main thread's loop, while there are any."""

    def __init__(self) -> None:
        self._stops: set[asyncio.Event] = set()
        self._before: Any = None

    def _came(self) -> None:
        for stop in self._stops:
            stop.set()

    @contextmanager
    def sets(self, stop: asyncio.Event) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        before = self._before if self._stops else signal.getsignal(signal.SIGTERM)
        try:
            loop.add_signal_handler(signal.SIGTERM, self._came)
        except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
            yield
            return
        self._before = before
        self._stops.add(stop)
        try:
            yield
        finally:
            self._stops.discard(stop)
            if not self._stops:
                loop.remove_signal_handler(signal.SIGTERM)
                signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)


_SIGTERM = _Sigterm()
