"""The producer with asyncio and aiobotocore.

It drives the core of `kpl_codec.producer.Producer` in one event loop; in another loop its methods raise
ProducerClosed. `asyncio.run` closes a producer that nobody has closed. Cancelling a task that awaits a
delivery does not stop the delivery.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..aws_errors import region_named
from ..base.arguments import check_arguments
from ..format.records import Tag
from ..rendering.labels import plural
from . import Delivery, DeliveryError, Pending, ProducerClosed, RecordTooLarge
from .batch import AnyCall
from .config import async_session, new_async_client
from .driver import Answer, Driver, ProducerBase
from .mailbox import Mailbox
from .process import FORKED, StreamLog, check_start, log_at_once

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .config import ProducerOptions

#: Seconds until the next turn after somebody else than the producer has cancelled a call.
_AFTER_CANCELLING = 1.0
#: PRD-46: seconds of puts that did not wait, after which put lets the event loop run other tasks and send.
_LONGEST_RUN = 0.001


class AsyncProducer(ProducerBase):
    """A producer for one stream, its name or ARN, in one event loop. ``options``: see
    `kpl_codec.producer.config.ProducerOptions`."""

    _driver: _AsyncDriver

    def __init__(self, stream: str, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(stream, **options)
        if self._client is None:
            async_session()
        self._own_client = AsyncExitStack()
        schedule = weakref.WeakMethod(self._schedule)  # the finalizer keeps the mailbox, not the producer
        self._drive(_AsyncDriver(self._stream, self.config, self._options), lambda: (schedule() or bool)())
        self._driver.client, self._core.reports.lets_through = self._client, (KeyboardInterrupt,)
        weakref.finalize(self, _log_never_closed, self._mailbox, self._driver.stream_log)
        self._starting, self._turnstile = asyncio.Lock(), asyncio.Lock()
        self._thread: int | None = None  # the thread of its event loop
        self._blocked = 0  # puts that wait for room
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._ran_at = float("-inf")  # when the event loop last ran a turn or another task
        self._rests_until = float("-inf")
        self._tasks: dict[asyncio.Task[None], AnyCall] = {}
        self._loop_end: AsyncGenerator[None, None] | None = None
        FORKED.add(self)

    async def __aenter__(self) -> AsyncProducer:
        await self._start()
        return self

    async def start(self) -> AsyncProducer:
        """As `kpl_codec.producer.Producer.start`, in the event loop that runs."""
        if self._mailbox.state != "running":
            check_start()
        await self._start()
        return self

    async def _start(self) -> None:
        """Make the client, and start in this event loop. Raises ProducerClosed."""
        self._check_loop()
        async with self._starting:
            if self._mailbox.state == "new":
                if self._client is None:
                    own = new_async_client(self.config, self._client_settings)
                    with region_named():
                        self._client = await self._own_client.enter_async_context(own)
                    self._driver.client = self._client
                if self._mailbox.state == "new":  # (it may have been closed meanwhile)
                    await asyncio.to_thread(self._driver.open_notes)
                    self._driver.loop, self._thread = asyncio.get_running_loop(), get_ident()
                    self._mailbox.becomes("start")
                    self._schedule()
                    self._loop_end = self._until_loop_ends()
                    await anext(self._loop_end)
        self._mailbox.check_open()

    def _check_open(self) -> None:
        self._check_loop()
        self._mailbox.check_open()

    async def _until_loop_ends(self) -> AsyncGenerator[None, None]:
        """An event loop that ends closes its asynchronous generators; this one closes the producer."""
        # PRD-75: "An event loop that ends MUST close the producers that nobody has closed, and log it; in
        # another event loop every method MUST raise ProducerClosed."
        try:
            yield
        finally:
            if self._mailbox.state not in ("closing", "closed") and self._loop_end is not None:
                text = "the event loop of a producer ends: it closes it, with %s outstanding"
                self._driver.stream_log.warning(
                    text, plural(self.outstanding, "user record"), extra={"user_records": self.outstanding}
                )
                await self._close(self.config.end_seconds)

    def _check_loop(self) -> None:
        """Raises ProducerClosed in another event loop than the one it started in."""
        if self._driver.loop is not None and asyncio.get_running_loop() is not self._driver.loop:
            raise ProducerClosed(code="loop-ended")

    def _after_fork_in_child(self) -> None:
        """Its event loop runs in the parent process, which delivers what is outstanding."""
        # PRD-39: "After a fork the child MUST NOT send the parent's user records, nor run their callbacks."
        if self._driver.loop is not None:
            mailbox, self._thread = self._mailbox, None
            mailbox.becomes("end")
            mailbox.inbox, mailbox.records, mailbox.bytes = [], 0, 0
            self._driver.unresolved.clear()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def put(
        self,
        partition_key: str | None,
        data: bytes,
        explicit_hash_key: str | int | None = None,
        tags: tuple[Tag, ...] = (),
    ) -> asyncio.Future[Delivery]:
        """Accept a user record. The future's result is a Delivery, or it raises a DeliveryError.

        As `kpl_codec.producer.Producer.put`; "block" waits without blocking the loop, in the order of the
        calls. Raises EncodeError, ProducerFull, NotStarted, ProducerClosed. A put that is cancelled while it
        waits may have been accepted or not.
        """
        try:
            pending = self._core.prepare(partition_key, data, explicit_hash_key, tags)
        except RecordTooLarge:
            self._check_open()
            await self.check(partition_key, data, explicit_hash_key, tags)
            pending = self._core.prepare(partition_key, data, explicit_hash_key, tags)
        mailbox, driver = self._mailbox, self._driver
        # (get_running_loop would make a system call for each put.)
        here = get_ident() == self._thread and driver.loop.is_running()
        if not here or mailbox.state != "running":
            self._check_open()
        future: asyncio.Future[Delivery] = driver.loop.create_future()
        pending.token = future
        if self._blocked or not mailbox.leave(pending, self._clock()):
            if self._in_callback:
                raise mailbox.full()
            self._blocked += 1
            try:
                async with self._turnstile:
                    mailbox.check_open()
                    while not mailbox.leave(pending, self._clock()):
                        await mailbox.space.wait()
                        mailbox.check_open()
            finally:
                self._blocked -= 1
        elif pending.accepted_at >= self._ran_at + _LONGEST_RUN:
            # PRD-46: "With asyncio put lets the event loop run at least every millisecond"
            if pending.accepted_at >= self._rests_until:
                self._schedule()
            await asyncio.sleep(0)
            self._ran_at = self._clock()
        return future

    async def check(
        self,
        partition_key: str | None,
        data: bytes,
        explicit_hash_key: str | int | None = None,
        tags: tuple[Tag, ...] = (),
    ) -> None:
        """As `kpl_codec.producer.Producer.check`. Raises EncodeError."""
        try:
            self._core.prepare(partition_key, data, explicit_hash_key, tags)
        except RecordTooLarge:
            await self._learn_size()
            self._core.prepare(partition_key, data, explicit_hash_key, tags)

    async def wait_ready(self, timeout: float | None = 10.0) -> bool:
        """As `kpl_codec.producer.Producer.wait_ready`."""
        check_arguments("AsyncProducer.wait_ready", {"timeout": timeout})
        self._may_wait("wait_ready")
        self._check_open()
        return await self._mailbox.wait_until(self._has_map, timeout)

    async def flush(self, timeout: float | None = None) -> None:
        """As `kpl_codec.producer.Producer.flush`."""
        check_arguments("AsyncProducer.flush", {"timeout": timeout})
        self._may_wait("flush")
        self._check_loop()
        await self._wait_flush(timeout)

    async def close(self, timeout: float | None = None) -> bool:
        """As `kpl_codec.producer.Producer.close`. If it is cancelled, every future still gets its result."""
        check_arguments("AsyncProducer.close", {"timeout": timeout})
        self._may_wait("close")
        try:
            self._check_loop()
        except ProducerClosed:
            if not self._mailbox.ended:
                raise
            return not self._driver.failed
        ended = await self._close(timeout)
        loop_end, self._loop_end = self._loop_end, None
        if loop_end is not None:
            await loop_end.aclose()
        return ended

    async def _close(self, timeout: float | None) -> bool:
        driver, mailbox = self._driver, self._mailbox

        async def finished() -> None:
            self._schedule()
            await mailbox.news.wait_for(lambda: mailbox.ended)

        mailbox.close(mailbox.give_up_at if timeout is None else self._clock() + timeout)
        try:
            await finished()
        finally:
            if not mailbox.ended:
                mailbox.close(self._clock())
                self._turn()
                await finished()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            async with self._starting:  # a start that is under way ends first
                await self._own_client.aclose()
            notes, driver.notes = driver.notes, None
            if notes is not None and mailbox.cause is None:
                await asyncio.to_thread(notes.close)
        return not driver.failed

    def _schedule(self) -> None:
        """Run the core soon; many puts in a row need one run."""
        if not self._scheduled and self._mailbox.driven:
            self._scheduled = True
            self._driver.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self._ran_at = self._clock()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        driver = self._driver
        if self._mailbox.ended:
            return
        if not driver.turn(self._make):
            driver.finish()
        else:
            rest = driver.rest()
            self._rests_until = self._ran_at + rest
            self._timer = driver.loop.call_later(rest, self._schedule_next)
        for task, call in self._tasks.items():
            if not self._core.is_under_way(call):  # the call was given up, or has its response
                task.cancel()

    def _schedule_next(self) -> None:
        wait = self._driver.wait()
        self._mailbox.awake = wait <= 0
        if wait <= 0:
            self._schedule()
        elif wait < float("inf"):
            self._timer = self._driver.loop.call_later(wait, self._schedule)

    def _make(self, call: AnyCall) -> None:
        task = self._driver.loop.create_task(self._call(call))
        self._tasks[task] = call
        task.add_done_callback(self._tasks.pop)

    async def _call(self, call: AnyCall) -> None:
        driver = self._driver
        try:
            answer: Answer = partial(self._core.receive, call, await driver.send(call))
        except BaseException as error:
            if driver.loop.is_closed():
                return  # the event loop has ended, and nobody waits for the response
            driver.answers.append(driver.call_failed(call, error))
            if not isinstance(error, Exception):
                # It was cancelled, or the program ends: an event loop that ends must get no more calls.
                driver.loop.call_later(_AFTER_CANCELLING, self._schedule)
                raise
        else:
            driver.answers.append(answer)
        self._schedule()


class _WakeUp(asyncio.Event):
    """An event with the methods of threading.Condition that `Mailbox` uses."""

    def notify_all(self, _count: int = 0) -> None:
        self.set()  # which wakes all that wait now
        self.clear()

    notify = notify_all

    async def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> None:
        async def until() -> None:
            while not predicate():
                await self.wait()

        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(until(), timeout)


class _AsyncDriver(Driver):
    """A driver that an event loop drives. on_undelivered is called in a task, or in another thread if it is a
    plain function."""

    loop: asyncio.AbstractEventLoop | Any = None
    log = staticmethod(log_at_once)

    @staticmethod
    def new_condition() -> Any:
        return _WakeUp()

    @staticmethod
    def this_caller() -> object:
        return asyncio.current_task()

    def end_futures(self, ended: list[Pending]) -> None:
        for pending in ended:
            future: asyncio.Future[Delivery] = pending.token
            result = pending.result
            if future.done():
                continue  # the caller has cancelled the future
            if isinstance(result, DeliveryError):
                future.set_exception(result)
                future.exception()  # the producer's log counts it: else asyncio logs each one, too
            else:
                future.set_result(result)

    def report_bug(self, error: BaseException) -> None:
        def bug() -> None:
            raise error

        self.loop.call_soon(bug)  # which reports it, or ends

    def close_notes(self) -> None:
        """Does nothing: `AsyncProducer.close` closes the ledger, in another thread."""

    def start_calling(self) -> None:
        self.callback.caller = self.loop.create_task(self._call_here())

    async def _call_here(self) -> None:
        callback = self.callback
        while batch := callback.take_waiting(asyncio.current_task()):
            remaining = iter(batch)
            try:
                if inspect.iscoroutinefunction(callback.function):
                    for pending in remaining:
                        await callback.finish(callback.call(pending.result))
                else:  # it may take long: not in the event loop
                    for result in await asyncio.to_thread(callback.call_all, remaining):
                        await callback.finish(result)
            except BaseException:
                rest = callback.take_waiting(None)
                text = "on_undelivered was not called for %s: its event loop ends"
                self.stream_log.user_records(len([*remaining, *rest]), text)
                batch += rest
                raise
            finally:
                self._called += batch
                self.end([])
        self.mailbox.wake()


def _log_never_closed(mailbox: Mailbox, log: StreamLog) -> None:
    text = "%s not delivered: the producer was never closed"
    log.user_records(mailbox.records, text, outcome="closed")
