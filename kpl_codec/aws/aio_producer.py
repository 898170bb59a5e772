"""The producer with asyncio and aiobotocore.

    async with AsyncProducer("orders") as producer:
        future = await producer.put("customer-17", b"...")    # waits only while the producer is full
        delivery = await future                               # Delivery, or raises DeliveryError

The same core as `kpl_codec.aws.Producer`, driven by one event loop; use it from that loop only. It starts
with the block, or with the first `put`. Leaving the block, or `close`, delivers what is outstanding. A
producer that is never closed logs how many user records were left when its event loop ends. Cancelling a task
that awaits a delivery does not stop the delivery.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..format.records import Tag
from ..lazy import needing_extras
from ..ledger import Notes
from ..producer import Delivery, DeliveryError, Pending, ProducerClosed, ProducerFull, RecordTooLarge
from ..producer.kinesis_record import PutRecordsRequest
from ..shards.live_shard_map import Request
from .aio_undelivered import AsyncUndelivered
from .calls import call, what_failed
from .producer_base import Flush, ProducerBase, broken_off, client_config, take_notes
from .producer_log import log_failure, log_left_behind, log_never_closed, log_not_delivered, not_delivered

if TYPE_CHECKING:
    from uuid import UUID

    from typing_extensions import Unpack

    from .producer_base import ProducerOptions

#: Seconds until the producer goes on by itself when a call was cancelled that it has not cancelled.
_AFTER_CANCELLING = 1.0
#: Seconds for which puts that need not wait keep the event loop from its other tasks, and from sending.
_LONGEST_RUN = 0.001


class AsyncProducer(ProducerBase):
    """A producer for one stream, its name or its ARN, in one event loop. ``options``: see
    `kpl_codec.aws.producer_base.ProducerOptions`."""

    def __init__(self, stream: str, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(stream, **options)
        if self._client is None:
            _session()
        self._own_client: Any = None
        self._notes: Notes | None = None
        self._core = self._new_core()
        self._forgotten = weakref.finalize(self, log_never_closed, self._core)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._due_at = float("inf")  # when the next turn is
        self._ran_at = float("-inf")  # when the event loop was last seen to run
        self._calls: set[asyncio.Task[None]] = set()
        self._waiting: deque[tuple[Pending, asyncio.Future[None]]] = deque()  # puts, for room
        self._map_waiters: list[asyncio.Future[None]] = []  # of wait_ready
        self._unresolved: set[Pending] = set()
        self._records = self._bytes = 0  # of these; what is dropped has no bytes
        self._hook = AsyncUndelivered(self._on_undelivered, self._clock, self._give, self._carefully)
        self._flushes: list[tuple[Flush, asyncio.Future[None]]] = []
        self._closed = False
        self._failed = False  # whether any user record was not delivered
        self._broken: BaseException | None = None

    async def __aenter__(self) -> AsyncProducer:
        """Start. Raises ProducerClosed."""
        await self._start()
        self._running()
        return self

    async def _start(self) -> None:
        """Make the client, and begin in this event loop, unless that was done or the producer is closed."""
        async with self._starting:
            if self._loop is not None or self._closed:
                return
            if self._client is None:
                from aiobotocore.config import AioConfig

                connections = self.config.max_connections + 1
                ours = AioConfig(**client_config(self.config), max_pool_connections=connections)
                settings = {"config": ours, **self._client_settings}
                own = _session().create_client("kinesis", **settings)
                self._client = await own.__aenter__()
                self._own_client = own
            if self._closed:  # meanwhile
                return
            self._notes = await asyncio.to_thread(self._new_notes)
            self._core.start(self._clock())
            self._loop = asyncio.get_running_loop()
            self._schedule()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def put(
        self,
        partition_key: str | None,
        data: bytes,
        explicit_hash_key: str | int | None = None,
        tags: tuple[Tag, ...] = (),
        *,
        schema: UUID | str | None = None,
    ) -> asyncio.Future[Delivery]:
        """Accept a user record; the future gives a Delivery or raises a DeliveryError.

        As `kpl_codec.aws.Producer.put`; "block" waits without blocking the loop, in the order of the calls.
        Raises EncodeError, ProducerFull, ProducerClosed. A put that is cancelled while it waits may have been
        accepted or not.
        """
        try:
            pending = self._core.prepare(partition_key, data, explicit_hash_key, tags, schema=schema)
        except RecordTooLarge:
            if self._core.preparation.size_is_known or not await self.wait_ready():
                raise
            pending = self._core.prepare(partition_key, data, explicit_hash_key, tags, schema=schema)
        loop = self._loop
        if loop is None or self._closed or self._broken is not None:
            await self._start()
            loop = self._running()
        future: asyncio.Future[Delivery] = loop.create_future()
        pending.token = future
        if not self._waiting and self._has_room(pending.size):
            if self._accept(pending) >= self._ran_at + _LONGEST_RUN:
                # PRD-46: "With asyncio put lets the event loop run at least every millisecond"
                await asyncio.sleep(0)
                self._ran_at = self._clock()
        elif self.config.when_full == "drop" and self._hook.may_drop(self.config):
            pending.size = 0  # what is dropped takes no room from others
            self._unresolved.add(pending)
            self._records += 1
            self._core.drop(pending, self._clock())
            self._carefully(self._resolve)
        elif self.config.when_full != "block" or self._hook.is_here:
            raise ProducerFull(records=self._records, bytes=self._bytes)
        else:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiting.append((pending, waiter))
            await waiter
        return future

    def _accept(self, pending: Pending) -> float:
        """Returns when it was put."""
        now = self._clock()
        due_at = self._core.accept(pending, now)
        self._unresolved.add(pending)
        self._records += 1
        self._bytes += pending.size
        if due_at < self._due_at or self._due_at <= now:
            self._schedule()
        return now

    def _has_room(self, size: int) -> bool:
        config = self.config
        return (
            self._records - self._hook.dropped < config.max_outstanding_records
            and self._bytes + size <= config.max_outstanding_bytes
        )

    def _let_in(self) -> None:
        """Accept waiting user records while there is room; each waiting task is woken once."""
        while self._waiting:
            pending, waiter = self._waiting[0]
            if not waiter.done():  # or its task was cancelled
                if not self._has_room(pending.size):
                    return
                self._accept(pending)
                waiter.set_result(None)
            self._waiting.popleft()

    async def wait_ready(self, timeout: float | None = 10.0) -> bool:
        """Start, and wait until there is a shard map, without which user records are not aggregated.

        Returns whether there is one within ``timeout`` seconds. Calling it is optional. Raises
        ProducerClosed, also where the producer is closed meanwhile.
        """
        self._hook.may_wait("wait_ready")
        await self._start()
        live, loop = self._core.live, self._running()
        until = loop.time() + (float("inf") if timeout is None else timeout)
        while live.state != "READY" and loop.time() < until:
            news = loop.create_future()
            self._map_waiters.append(news)
            await asyncio.wait([news], timeout=None if timeout is None else until - loop.time())
            self._running()
        return live.state == "READY"

    def refresh_shard_map(self) -> None:
        """Request the shard map now, for example after a permanent error was fixed. Before the start there
        is nothing to do. Raises ProducerClosed."""
        if self._closed or self._loop is not None:
            self._running()
            self._core.live.refresh(self._clock())
            self._schedule()

    @property
    def outstanding(self) -> int:
        """User records accepted that have not ended yet."""
        return self._records

    async def flush(self, timeout: float | None = None) -> bool:
        """Send everything at once and wait until all earlier puts have ended, delivered or failed.

        Returns whether they did within ``timeout`` seconds. It always ends, because records expire.
        """
        self._hook.may_wait("flush")
        if self._loop is None or not self._unresolved:
            return True
        flush, done = Flush(), self._loop.create_future()
        if self._broken is None:
            self._core.flush()
        flush.begin(self._core.accepted, len(self._unresolved))
        self._flushes.append((flush, done))
        self._schedule()
        await asyncio.wait([done], timeout=timeout)
        return flush.done

    async def close(self, timeout: float | None = None) -> bool:
        """Accept nothing more, deliver what is outstanding.

        After ``timeout`` seconds the rest fails as "closed". Returns whether every user record that the
        producer has ever accepted was delivered. Closing twice is allowed.
        """
        self._hook.may_wait("close")
        self._closed = True
        self._refuse_waiting()
        self._wake_map_waiters()
        try:
            if self._broken is None:
                self._core.close()
            await self.flush(timeout)
        finally:
            # Even if the closing task is cancelled, every future gets its result.
            if self._loop is not None and self._broken is None:
                self._carefully(lambda: self._core.abandon(self._clock()))
                self._carefully(self._resolve)
            await self._hook.ended()
            if self._timer is not None:
                self._timer.cancel()
            for task in self._calls:
                task.cancel()
            if self._calls:
                await asyncio.wait(self._calls)
            async with self._starting:  # a start that is under way ends first
                own, self._own_client = self._own_client, None
            if own is not None:
                await own.__aexit__(None, None, None)
            if self._notes is not None and self._broken is None:
                await asyncio.to_thread(self._notes.close)
        # PRD-60: "Closing MUST tell that all was delivered only if every user record that was accepted was."
        return not self._failed

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._broken is not None:
            raise ProducerClosed(code="broken") from self._broken
        if self._closed or self._loop is None:
            raise ProducerClosed(code="closed")
        return self._loop

    # -- driving the core ---------------------------------------------------------------------

    def _schedule(self) -> None:
        """Let the core run soon; many puts in a row need one run."""
        if not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_soon(self._carefully, self._turn)

    def _carefully(self, step: Callable[[], None]) -> None:
        """Run a step of the core. If it raises (a bug), every waiting caller gets an error."""
        try:
            if self._broken is None:
                step()
        except BaseException as error:
            self._fall_apart(error)
            raise

    def _turn(self) -> None:
        self._scheduled = False
        loop = self._loop
        assert loop is not None
        self._ran_at = self._clock()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # A closed producer has calls to make only for what is outstanding.
        for request in self._core.requests(self._clock()) if self._has_work() else ():
            task = loop.create_task(self._call(request))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        self._resolve()
        timer = self._core.timer()
        self._due_at = float("inf") if timer is None else timer
        if timer is not None and self._has_work():
            self._timer = loop.call_later(max(0.0, timer - self._clock()), self._schedule)

    def _has_work(self) -> bool:
        return self._core.outstanding > 0 or not self._closed

    async def _call(self, request: PutRecordsRequest | Request) -> None:
        assert self._client is not None
        core = self._core
        try:
            answer = await call(self._client, request, self._stream.argument)
        except BaseException as error:
            if self._loop is None or self._loop.is_closed():
                return  # its event loop has left it behind, and nobody asks what the client makes of that
            failure, answered = what_failed(error)
            self._carefully(lambda: core.fail(request, failure, self._clock(), answered=answered))
            if isinstance(error, Exception):
                self._schedule()
            elif self._has_work():
                # It was cancelled, or the program ends: an event loop that ends must get no more calls.
                self._loop.call_later(_AFTER_CANCELLING, self._schedule)
            log_failure(request, failure, answered)
            if not isinstance(error, Exception):
                raise
        else:
            self._carefully(lambda: core.receive(request, answer, self._clock()))
            self._schedule()
        if isinstance(request, Request):
            self._wake_map_waiters()

    def _resolve(self) -> None:
        ended = self._core.results()
        take_notes(self._notes, self._core, ended, self._clock)
        failures = not_delivered(ended)
        self._failed = self._failed or bool(failures)
        self._end(ended)
        # Not before: a log that raises costs nobody a result.
        log_not_delivered(failures)

    def _end(self, ended: list[Pending]) -> None:
        """User records have ended, or will when on_undelivered has returned."""
        self._give(self._hook.take(ended))
        self._hook.start()

    def _give(self, ended: list[Pending]) -> None:
        """User records have ended: give them their results."""
        self._records -= len(ended)
        self._bytes -= sum([pending.size for pending in ended])
        _end_all(ended, handed_over=self._hook.function is not None)
        self._unresolved.difference_update(ended)
        done = [waiter for flush, waiter in self._flushes if flush.ended(ended)]
        self._flushes = [entry for entry in self._flushes if not entry[0].done]
        self._wake(done)
        if ended and not self._closed:
            self._let_in()

    def _fall_apart(self, error: BaseException) -> None:
        self._broken = error
        self._forgotten.detach()
        now = self._clock()
        left = self._unresolved - self._hook.held
        self._refuse_waiting()
        self._failed = self._failed or bool(left)
        self._end([broken_off(self.config, pending, error, now) for pending in left])
        self._wake_map_waiters()
        log_left_behind(len(left), "the producer has broken")

    def _refuse_waiting(self) -> None:
        """The puts that wait for room fail: there will be none."""
        waiting = [waiter for _, waiter in self._waiting if not waiter.done()]
        self._waiting.clear()
        for waiter in waiting:
            waiter.set_exception(ProducerClosed(code="closed" if self._broken is None else "broken"))

    def _wake_map_waiters(self) -> None:
        waiters, self._map_waiters = self._map_waiters, []
        self._wake(waiters)

    @staticmethod
    def _wake(waiters: list[asyncio.Future[None]]) -> None:
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _session() -> Any:
    """A session of aiobotocore. Raises ModuleNotFoundError with the name of the extra."""
    with needing_extras("kpl_codec.aws.AsyncProducer"):
        from aiobotocore.session import get_session
    return get_session()


def _end_all(ended: Iterable[Pending], *, handed_over: bool) -> None:
    """Give the futures of user records their results, unless their owners have cancelled them."""
    for pending in ended:
        future: asyncio.Future[Delivery] = pending.token
        if future.done():
            continue
        result = pending.result
        if isinstance(result, DeliveryError):
            future.set_exception(result)
            if handed_over:
                future.exception()  # else asyncio tells of each that nobody has asked for
        else:
            future.set_result(result)
