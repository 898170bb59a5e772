"""The producer for asyncio: that of `threads`, with the tasks of one event loop as its callers.

The thread that drives the producer tells the event loop of results and of room, so a task that keeps the loop
busy does not keep user records from being sent. In another loop the methods raise ProducerClosed.
`asyncio.run` closes a producer that nobody has closed. Cancelling a task that awaits a delivery does not stop
the delivery.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import wait
from contextlib import suppress
from inspect import isawaitable
from threading import get_ident
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from ..base.arguments import check_arguments
from ..format.records import Tag
from ..rendering.labels import plural
from . import Delivery, DeliveryError, Pending, ProducerClosed, RecordTooLarge
from .batch import AnyCall
from .driver import CROWD, CROWD_WAIT, Driver
from .process import LOCK, LOG_WAIT, LOOK_AGAIN, check_start, log_thread
from .threads import ProducerBase

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .config import ProducerOptions

#: PRD-46: seconds of puts that did not wait, after which put lets the event loop run other tasks.
_LONGEST_RUN = 0.001


class LoopEnded(RuntimeError):
    """The event loop that was to await something is closed."""


class _AsyncDriver(Driver):
    """A driver whose callers are tasks of ``loop``, which runs in ``thread``. ``loop_end``: see
    `until_loop_ends`. ``loop_is_over``: nothing more is awaited in it."""

    loop: asyncio.AbstractEventLoop | Any = None
    thread: int | None = None
    loop_end: AsyncGenerator[None, None] | None = None
    loop_is_over = False

    def this_caller(self) -> object:
        return asyncio.current_task()

    def end_futures(self, ended: list[Pending]) -> None:
        with suppress(RuntimeError):  # the event loop is closed, and nobody waits any more
            self.loop.call_soon_threadsafe(_give_results, ended)

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        self.loop = self.thread = None

    def send(self, call: AnyCall) -> Any:
        """As `Driver.send`; a client of aiobotocore makes its call in the event loop."""
        answer = super().send(call)
        return self._await(answer) if isawaitable(answer) else answer

    def end_call(self, result: Any) -> None:
        if isawaitable(result):
            self._await(result, calls=True)

    def _await(self, given: Any, *, calls: bool = False) -> Any:
        """The result of an awaitable, which the event loop awaits while this thread waits. ``calls``: it is
        of on_undelivered."""

        async def awaited() -> tuple[Any, SystemExit | None]:
            if calls:
                self.callback.caller = asyncio.current_task()
            try:
                return await given, None
            except SystemExit as raised:  # it would end the event loop
                return None, raised

        steps, ended = awaited(), None
        try:
            if self.loop_is_over or self.loop.is_closed():
                raise LoopEnded
            ended = asyncio.run_coroutine_threadsafe(steps, self.loop)
            while not ended.done():
                if self.loop.is_closed():
                    raise LoopEnded
                wait([ended], LOOK_AGAIN)
            result, raised = ended.result()
        finally:
            ended = None  # it leads to its error, which leads here, and so to the user records of a call
            for one in (steps, given):
                if isinstance(one, CoroutineType):
                    one.close()  # else Python warns that nobody has awaited it
        if raised is not None:
            raise raised
        return result

    async def until_loop_ends(self) -> AsyncGenerator[None, None]:
        """An event loop that ends closes its asynchronous generators; this one closes the producer, and waits
        for one that is closing."""
        # PRD-75: "An event loop that ends MUST close the producers that nobody has closed, and log it; in
        # another event loop every method MUST raise ProducerClosed."
        mailbox = self.mailbox
        try:
            yield
        finally:
            if not mailbox.ended and not self.forked:
                count = mailbox.records
                text = "the event loop of a producer ends: it closes it, with %s outstanding"
                self.stream_log.warning(text, plural(count, "user record"), extra={"user_records": count})
                with LOCK:
                    mailbox.close(self.clock() + self.exit_timeout)
                await _wait(lambda: mailbox.ended, 2 * self.exit_timeout)
                if not mailbox.ended and isinstance(self.callback.caller, asyncio.Task):
                    self.loop_is_over = True  # it does not return, and the next ones would not
                    self.callback.caller.cancel()
                    await _wait(lambda: mailbox.ended, LOOK_AGAIN)


def _give_results(ended: list[Pending]) -> None:
    try:
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
    except BaseException:  # Ctrl-C: the others get theirs if the event loop goes on
        asyncio.get_running_loop().call_soon(_give_results, ended)
        raise


async def _wait(condition: Callable[[], bool], timeout: float | None) -> None:
    """Wait in the event loop until ``condition`` is true, at most ``timeout`` seconds.

    The task looks again by itself, after an eighth of the time that it has waited, at least 1 ms and at most
    20 ms: so no thread needs to wake it, in a loop that may have ended.
    """
    time = asyncio.get_running_loop().time
    begun = time()
    while not condition() and (timeout is None or time() < begun + timeout):
        await asyncio.sleep(min(max(0.001, (time() - begun) / 8), 0.02))
    await asyncio.sleep(0)  # futures that had their results before have them when this returns


class AsyncProducer(ProducerBase):
    """A producer for one stream, its name or ARN, in one event loop. ``options``: see
    `kpl_codec.producer.config.ProducerOptions`."""

    _driver: _AsyncDriver
    _driver_class = _AsyncDriver

    def __init__(self, stream: str, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(stream, **options)

    def _begin(self) -> None:
        self._turnstile = asyncio.Lock()
        self._blocked = 0  # puts that wait for room
        self._ran_at = float("-inf")  # when a put last let other tasks run
        super()._begin()

    async def __aenter__(self) -> AsyncProducer:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> AsyncProducer:
        """As `kpl_codec.producer.Producer.start`, in the event loop that runs."""
        if self._mailbox.state != "running":
            check_start()
        await self._start()
        return self

    async def _start(self) -> None:
        self._check_loop()
        if self._mailbox.state == "new":
            client = await asyncio.to_thread(self._new_client)
            self._check_loop()
            driver = self._driver
            driver.loop, driver.thread = asyncio.get_running_loop(), get_ident()
            self._run(client)
            if driver.loop_end is None:
                driver.loop_end = driver.until_loop_ends()
                await anext(driver.loop_end)
        self._mailbox.check_open()

    async def _wait(self, condition: Callable[[], bool], timeout: float | None) -> None:
        await _wait(condition, timeout)

    def _check_loop(self) -> None:
        """Raises ProducerClosed in another event loop than the one it started in."""
        if self._driver.loop is not None and asyncio.get_running_loop() is not self._driver.loop:
            raise ProducerClosed(code="loop-ended")

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
        driver, mailbox = self._driver, self._mailbox
        try:
            pending = self._core.prepare(partition_key, data, explicit_hash_key, tags)
        except RecordTooLarge:
            self._check_loop()
            mailbox.check_open()
            pending = await self._prepare_again(partition_key, data, explicit_hash_key, tags)
        # (get_running_loop would make a system call for each put.)
        if get_ident() != driver.thread or not driver.loop.is_running():
            self._check_loop()
            mailbox.check_open()
        future: asyncio.Future[Delivery] = driver.loop.create_future()
        pending.token = future
        if self._blocked or not self._leave(pending):
            if self._in_callback:
                raise mailbox.full()
            self._blocked += 1
            try:
                async with self._turnstile:
                    await _wait(lambda: self._leave(pending), None)
            finally:
                self._blocked -= 1
        elif len(mailbox.inbox) >= CROWD:
            with LOCK:
                mailbox.wake()
            await _wait(lambda: len(mailbox.inbox) < CROWD, CROWD_WAIT)
        elif pending.accepted_at >= self._ran_at + _LONGEST_RUN:
            # PRD-46: "with asyncio it lets the event loop run at least every millisecond, too"
            await asyncio.sleep(0)
            self._ran_at = self._clock()
        return future

    def _leave(self, pending: Pending) -> bool:
        with LOCK:
            self._mailbox.check_open()
            return self._mailbox.leave(pending, self._clock())

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
            await self._prepare_again(partition_key, data, explicit_hash_key, tags)

    async def wait_ready(self, timeout: float | None = 10.0) -> bool:
        """As `kpl_codec.producer.Producer.wait_ready`."""
        check_arguments("AsyncProducer.wait_ready", {"timeout": timeout})
        self._may_wait("wait_ready")
        self._check_loop()
        return await self._wait_open(self._has_map, timeout)

    async def flush(self, timeout: float | None = None) -> None:
        """As `kpl_codec.producer.Producer.flush`."""
        check_arguments("AsyncProducer.flush", {"timeout": timeout})
        self._may_wait("flush")
        self._check_loop()
        await self._flush(timeout)

    async def close(self, timeout: float | None = None) -> bool:
        """As `kpl_codec.producer.Producer.close`. If it is cancelled, every future still gets its result."""
        check_arguments("AsyncProducer.close", {"timeout": timeout})
        self._may_wait("close")
        if not self._mailbox.ended:
            self._check_loop()
        driver = self._driver
        try:
            ended = await self._close(timeout)
        except asyncio.CancelledError:
            await self._close(0.0)
            raise
        if self._mailbox.ended and driver.loop is asyncio.get_running_loop():
            loop_end, driver.loop_end = driver.loop_end, None
            if loop_end is not None:
                await loop_end.aclose()
            await _wait(log_thread.made().is_set, LOG_WAIT)
        return ended
