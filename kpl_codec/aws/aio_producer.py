"""The producer with asyncio and aiobotocore.

    async with AsyncProducer("orders") as producer:
        future = await producer.put("customer-17", b"...")    # waits only while the producer is full
        delivery = await future                               # Delivery, or raises DeliveryError

The same core as `kpl_codec.aws.producer`, driven by one event loop; use it from that loop only.
Leaving the block, or `close`, delivers what is outstanding; a producer that goes away with its event loop
and was never closed logs how many user records it had left. A task that is cancelled while it awaits a
delivery does not take the record back: it is still delivered (and its result seen by nobody).
"""

from __future__ import annotations

import asyncio
import random
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from ..format.records import Tag
from ..producer import Delivery, Pending, ProducerClosed, ProducerConfig, ProducerFull
from ..producer.collector import PutRecordsRequest
from ..producer.metrics import Observe
from ..shards.live_shard_map import Request, State
from .calls import CALL_ERRORS
from .producer_common import (
    call,
    client_config,
    drop,
    end,
    guarded,
    log_failure,
    log_never_closed,
    log_not_delivered,
    new_core,
    stream_argument,
    what_failed,
)


class AsyncProducer:
    """A producer for one stream, in one event loop.

    Give ``stream_name`` or ``stream_arn``. ``client_settings`` go to aiobotocore's create_client
    (endpoint_url, region_name ...); or give ``client``, made with retries switched off, which stays the
    caller's to close. ``observe(name, value, attributes)`` is told the metrics.
    """

    def __init__(
        self,
        stream_name: str | None = None,
        *,
        stream_arn: str | None = None,
        config: ProducerConfig | None = None,
        client: Any = None,
        client_settings: Mapping[str, Any] | None = None,
        observe: Observe | None = None,
        chance: Callable[[int], int] = random.randrange,
    ) -> None:
        self.config = config or ProducerConfig()
        self._stream = stream_argument(stream_name, stream_arn)
        self._client = client
        self._client_settings = dict(client_settings or {})
        self._own_client: Any = None
        self._observe = guarded(observe)
        self._core = new_core(self._stream, self.config, chance, self._observe)
        weakref.finalize(self, log_never_closed, self._core)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._calls: set[asyncio.Task[None]] = set()
        self._waiters: list[asyncio.Future[None]] = []  # of put, for room
        self._map_waiters: list[asyncio.Future[None]] = []  # of wait_ready
        self._pending: set[Pending] = set()
        self._flushes: list[tuple[set[Pending], asyncio.Future[None]]] = []
        self._closed = False

    async def __aenter__(self) -> AsyncProducer:
        self._loop = asyncio.get_running_loop()
        if self._client is None:
            from aiobotocore.config import AioConfig
            from aiobotocore.session import get_session

            settings = {"config": AioConfig(**client_config(self.config)), **self._client_settings}
            self._own_client = get_session().create_client("kinesis", **settings)
            self._client = await self._own_client.__aenter__()
        self._core.start(self._loop.time())
        self._schedule()
        return self

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
    ) -> asyncio.Future[Delivery]:
        """Accept a user record; the future gives a Delivery or raises a DeliveryError.

        As `kpl_codec.aws.Producer.put`; "block" waits here without blocking the loop. Raises EncodeError,
        ProducerFull, ProducerClosed.
        """
        pending = self._core.prepare(partition_key, data, explicit_hash_key, tags)
        loop = self._running()
        future: asyncio.Future[Delivery] = loop.create_future()
        pending.token = future
        while not self._core.has_room(pending.size):
            if self.config.when_full == "drop":
                drop(future, self._observe)
                return future
            if self.config.when_full == "fail":
                raise ProducerFull(records=self._core.outstanding, bytes=self._core.outstanding_bytes)
            waiter = loop.create_future()
            self._waiters.append(waiter)
            await waiter
            self._running()
        self._core.accept(pending, loop.time())
        self._pending.add(pending)
        self._schedule()
        return future

    async def wait_ready(self, timeout: float = 10.0) -> bool:
        """Wait until there is a shard map, without which user records are not aggregated.

        Whether there is one within ``timeout`` seconds. Works without being called, too.
        """
        live, loop = self._core.live, self._running()
        end = loop.time() + timeout
        while live.state is not State.READY and loop.time() < end and not self._closed:
            news = loop.create_future()
            self._map_waiters.append(news)
            await asyncio.wait([news], timeout=end - loop.time())
        return live.state is State.READY

    @property
    def outstanding(self) -> int:
        """User records accepted that have not ended yet."""
        return self._core.outstanding

    async def flush(self, timeout: float | None = None) -> bool:
        """Send everything at once and wait until all that was put before has ended, well or not.

        Whether it did within ``timeout`` seconds.
        """
        if self._loop is None or not self._pending:
            return True
        # Not the futures: one that its owner has cancelled is done long before its record is.
        done = self._loop.create_future()
        self._flushes.append((set(self._pending), done))
        self._core.flush()
        self._schedule()
        return bool((await asyncio.wait([done], timeout=timeout))[0])

    async def close(self, timeout: float | None = None) -> bool:
        """Accept nothing more, deliver what is outstanding; after ``timeout`` seconds the rest fails as
        "closed". Whether nothing had to."""
        self._closed = True
        self._let_go(self._waiters)
        self._let_go(self._map_waiters)
        delivered = False
        try:
            self._core.close()
            delivered = await self.flush(timeout)
        finally:
            # Also when the task that closes is cancelled: every future gets its result.
            if self._loop is not None:
                self._core.abandon(self._loop.time())
                self._resolve()
            if self._timer is not None:
                self._timer.cancel()
            for task in self._calls:
                task.cancel()
            if self._calls:
                await asyncio.wait(self._calls)
            if self._own_client is not None:
                own, self._own_client = self._own_client, None
                await own.__aexit__(None, None, None)
        return delivered

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._closed or self._loop is None:
            raise ProducerClosed(code="closed")
        return self._loop

    # -- driving the core ---------------------------------------------------------------------

    def _schedule(self) -> None:
        """Let the core act soon; many puts in a row cost one turn."""
        if not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        loop = self._loop
        assert loop is not None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for request in self._core.requests(loop.time()):
            task = loop.create_task(self._call(request))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        self._resolve()
        timer = self._core.timer()
        if timer is not None and (self._core.outstanding or not self._closed):
            self._timer = loop.call_at(max(timer, loop.time()), self._schedule)

    async def _call(self, request: PutRecordsRequest | Request) -> None:
        assert self._loop is not None
        try:
            answer = await call(self._client, request, self._stream)
        except BaseException as error:
            failure, answered = what_failed(error)
            log_failure(request, failure, answered)
            self._core.fail(request, failure, self._loop.time(), answered=answered)
            self._schedule()
            if not isinstance(error, CALL_ERRORS):
                raise
        else:
            self._core.receive(request, answer, self._loop.time())
            self._schedule()
        if isinstance(request, Request):
            self._let_go(self._map_waiters)

    def _resolve(self) -> None:
        results = self._core.results()
        log_not_delivered(results)
        for pending, result in results:
            future = pending.token
            self._pending.discard(pending)
            for left, done in self._flushes:
                left.discard(pending)
                if not left and not done.done():
                    done.set_result(None)
            if not future.done():  # or it was cancelled by whoever awaited it
                end(future, result)
        if results:
            self._flushes = [flush for flush in self._flushes if flush[0]]
            self._let_go(self._waiters)

    @staticmethod
    def _let_go(waiters: list[asyncio.Future[None]]) -> None:
        going = waiters.copy()
        waiters.clear()
        for waiter in going:
            if not waiter.done():
                waiter.set_result(None)
