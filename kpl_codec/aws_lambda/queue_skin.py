"""What a consumer of a queue does in threads and on asyncio alike: calls, handlers, acknowledgements.

It is written once, as coroutines. In threads they never wait (see `kpl_codec.aws.calls.finished`). What
differs is in the methods at the end, which `queues` and `aio_queues` override.
"""

from __future__ import annotations

import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from ..aws.calls import settled
from ..aws.queues import BACKOFF, QueueUnavailable, call
from ..deaggregation.records import DeaggregatedRecord
from .batch import Call, log, settle_poison
from .queue_core import QueueConsumer, QueueCounts, Received


class Sigterm:
    """Calls the ``stop`` of every consumer in the main thread; without any, SIGTERM means what it meant."""

    def __init__(self) -> None:
        self._stops: dict[object, Callable[[], object]] = {}
        self._before: Any = None

    def _came(self, *_: object) -> None:
        for stop in list(self._stops.values()):
            stop()

    @contextmanager
    def calls(self, stop: Callable[[], object]) -> Iterator[None]:
        """While something runs, call ``stop``."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        if not self._stops:
            self._before = signal.signal(signal.SIGTERM, self._came)
        me = object()
        self._stops[me] = stop
        try:
            yield
        finally:
            del self._stops[me]
            if not self._stops:
                signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)


SIGTERM = Sigterm()


class Skin(ABC):
    """One consumer. ``handle`` and ``once`` are the caller's; ``stop`` is an event."""

    def __init__(
        self,
        client: Any,
        consumer: QueueConsumer,
        handle: Callable[[Any], object],
        once: Callable[[str, Callable[[], Any]], object] | None,
        stop: Any,
        clock: Callable[[], float],
    ) -> None:
        self._client, self.consumer, self.stop, self.clock = client, consumer, stop, clock
        self._handle, self._once = handle, once

    async def run(self) -> QueueCounts:
        """Until ``stop`` is set, or with `drain` until an answer is empty."""
        consumer = self.consumer
        while not self.stop.is_set():
            # Once ``stop`` is set, no failing call is repeated.
            answer = await self._call(consumer.calls.receive, consumer.receive(), sleep=self.wait)
            records = answer.get("QueueRecords", ())
            if records:
                try:
                    await self.all_of(consumer.take(answer, self.clock()))
                finally:
                    await self.acknowledge(all_of_them=True)
                    # What is refused here comes again as well, when its visibility ends.
                    entries = consumer.give_back()
                    if entries:
                        arguments = {"QueueARN": consumer.queue, "Entries": entries}
                        await self._call(consumer.calls.update_visibility, arguments)
            consumer.tell()
            if consumer.drain and not records:
                break
        return consumer.counts

    async def _call(self, operation: str, arguments: dict[str, Any], **how: Any) -> Any:
        given = {"patience": self.consumer.patience, "clock": self.clock, "sleep": self.sleep, **how}
        return await call(self._client, operation, arguments, **given)

    # -- one record -----------------------------------------------------------------------------

    async def one(self, received: Received) -> None:
        """Handle a record, if it may still be begun."""
        # QUE-9: "After SIGTERM a record that was begun MUST be handled to its end, and every other one given
        # back at once."
        if self.stop.is_set() or not self.consumer.may_begin(received, self.clock()):
            return
        for group in self.consumer.groups(received):
            try:
                if self._once is None:
                    await self._run(group[-1], [call.record for call in group], received)
                else:
                    await self._claim(group, 0, [], received)
            except Exception:  # noqa: BLE001 - the caller's code: whatever it raises, the records failed
                received.batch.fail(*group)
        self.consumer.settle(received, self.clock())

    async def _claim(
        self, group: list[Call], at: int, todo: list[DeaggregatedRecord], received: Received
    ) -> None:
        """Handle what of the group was not handled before, within a call of ``once`` for each."""
        assert self._once is not None
        if at == len(group):
            if todo:
                await self._run(group[-1], todo, received)
            return
        first = len(todo)

        def claimed() -> Any:
            todo.append(group[at].record)
            return self.nested(self._claim(group, at + 1, todo, received))

        await self.result(self._once(group[at].key, claimed))
        if len(todo) == first:
            self.consumer.counts.skipped += 1
            await self._claim(group, at + 1, todo, received)

    async def _run(self, last: Call, todo: list[DeaggregatedRecord], received: Received) -> None:
        consumer = self.consumer
        try:
            await self.result(self._handle(todo if consumer.in_batches else todo[0]))
            consumer.counts.user_records += len(todo)
        except Exception as error:
            poison = consumer.poison(last, error, received)
            if poison is None or not settle_poison(poison, consumer.on_poison):
                raise
            consumer.counts.put_aside += 1

    # -- meanwhile ------------------------------------------------------------------------------

    async def beat(self) -> None:
        """Extend and acknowledge what is due. What fails is tried again at the next beat."""
        consumer, now = self.consumer, self.clock()
        try:
            if chosen := consumer.extend(now):
                arguments = consumer.entries(chosen, visibility=True)
                answer = await self._call(consumer.calls.update_visibility, arguments, patience=0)
                consumer.extended(chosen, answer, now)
            await self.acknowledge(patience=0)
        except QueueUnavailable as error:
            log("%s", error)

    async def acknowledge(self, *, all_of_them: bool = False, **how: Any) -> None:
        """Acknowledge what was handled, if it is time; ``all_of_them`` in any case."""
        consumer, failures = self.consumer, 0
        while chosen := consumer.acknowledge(self.clock(), all_of_them=all_of_them):
            try:
                answer = await self._call(consumer.calls.acknowledge, consumer.entries(chosen), **how)
            except BaseException:
                consumer.not_yet(chosen)
                raise
            if consumer.acknowledged(chosen, answer):
                if not all_of_them:
                    return
                await settled(self.sleep(BACKOFF.seconds(failures)))
                failures += 1

    # -- what differs ---------------------------------------------------------------------------

    @abstractmethod
    async def result(self, made: object) -> None:
        """Take what a handler or ``once`` has returned. Raises TypeError for what must not be."""

    @abstractmethod
    def nested(self, steps: Coroutine[Any, Any, None]) -> Any:
        """What the call that ``once`` is given returns."""

    @abstractmethod
    async def all_of(self, records: list[Received]) -> None:
        """`one` for each, and meanwhile `beat` every ``consumer.beat`` seconds."""

    @abstractmethod
    def sleep(self, seconds: float) -> Any:
        """Wait; on asyncio an awaitable of that."""

    @abstractmethod
    def wait(self, seconds: float) -> Any:
        """The same, but until ``stop`` is set. Gives whether it is."""
