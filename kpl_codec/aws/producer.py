"""The producer with threads and boto3.

    with Producer("orders", config=ProducerConfig(record_max_buffered_time=50)) as producer:
        future = producer.put("customer-17", b"...")          # a future, at once
        producer.put(None, b"...")                            # no key: the partitioner chooses
        delivery = future.result()                            # Delivery, or raises DeliveryError

    put (any thread) ──▶ inbox ──▶ one thread owns the core ──▶ calls ──▶ worker threads (boto3)
      future ◀────────────────────── results ◀───────────────── answers ◀──────┘

All that decides is in `kpl_codec.producer`. Only the owning thread touches the core, and signals go to
the main thread, so Ctrl-C can interrupt a caller but never the middle of a decision.

* Leaving the ``with`` block, or `close`, delivers what is outstanding: at most the records' time to live
  and one request's timeouts.
* On interpreter exit without `close`, an exit handler closes with ``exit_timeout`` seconds and logs how
  many user records it had to give up. ``kill -9`` loses what no future has confirmed, nothing else.
* In AWS Lambda call `flush` before the handler returns: threads stand still between invocations.
* After a fork the child has a producer of its own, empty and with new connections; the records put
  before belong to the parent, and their futures, seen from the child, fail with code "forked".
"""

from __future__ import annotations

import atexit
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from ..format.records import Tag
from ..producer import Delivery, DeliveryError, Outcome, Pending, ProducerClosed, ProducerConfig, ProducerFull
from ..producer.collector import PutRecordsRequest
from ..producer.metrics import Observe
from ..shards.live_shard_map import Failure, Request, State
from .producer_common import (
    client_config,
    drop,
    end,
    guarded,
    log_not_delivered,
    logger,
    new_core,
    stream_argument,
)
from .workers import Workers


class DeliveryFuture(Future[Delivery]):
    """A `concurrent.futures.Future` of a Delivery. It cannot be cancelled: the record is on its way."""

    def cancel(self) -> bool:
        return False


class _Flush:
    """A flush that is waited for: done when the user records outstanding at its time have ended."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.waiting_for: set[DeliveryFuture] = set()


class Producer:
    """A producer for one stream. All methods are thread-safe.

    Give ``stream_name`` or ``stream_arn``. ``client_settings`` go to ``boto3.client("kinesis", ...)``
    (endpoint_url, region_name ...); or give ``client``, made with retries switched off, which then cannot
    be used after a fork. ``observe(name, value, attributes)`` is told the metrics of
    `kpl_codec.producer.METRICS` (see `kpl_codec.aws.telemetry`). Times are seconds.

    Callbacks added to its futures run in the producer's thread: keep them short, and never wait there.
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
        exit_timeout: float = 10.0,
        chance: Callable[[int], int] = random.randrange,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config or ProducerConfig()
        self._stream = stream_argument(stream_name, stream_arn)
        self._given_client = client
        self._client_settings = dict(client_settings or {})
        self._observe = guarded(observe)
        self._exit_timeout = exit_timeout
        self._chance = chance
        self._clock = clock
        self._forked = False
        self._begin()
        _PRODUCERS.add(self)
        atexit.register(_close_at_exit, weakref.ref(self))

    def _begin(self) -> None:
        """Everything that a forked child needs anew. No thread is started before it is needed."""
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)  # the owning thread sleeps here
        self._space = threading.Condition(self._lock)  # blocked callers of put
        self._news = threading.Condition(self._lock)  # those who wait for the map
        self._core = new_core(self._stream, self.config, self._chance, self._observe)
        self._inbox: list[Pending] = []
        self._inbox_bytes = 0
        self._taken: list[Pending] = []
        self._taken_bytes = 0
        self._in_core = 0, 0  # user records and bytes in the core, when the lock was last held
        self._answers: list[tuple[PutRecordsRequest | Request, Any, Failure | None, bool]] = []
        self._flushes: list[_Flush] = []
        self._new_flushes: list[_Flush] = []
        self._futures: set[DeliveryFuture] = set()
        self._closing = False
        self._told_to_close = False
        self._gave_up = False
        self._give_up_at: float | None = None
        self._broken: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._workers: Workers | None = None

    # -- callers ------------------------------------------------------------------------------

    def put(
        self,
        partition_key: str | None,
        data: bytes,
        explicit_hash_key: str | int | None = None,
        tags: tuple[Tag, ...] = (),
    ) -> DeliveryFuture:
        """Accept a user record; its future gives a Delivery or raises a DeliveryError.

        ``partition_key`` None: no key, the partitioner chooses a shard. When the producer is full it
        waits, raises ProducerFull, or gives a future that has failed as "dropped", as configured.
        Raises EncodeError for a user record that cannot be written, ProducerClosed. A put that Ctrl-C
        interrupts may have been accepted or not.
        """
        pending = self._core.prepare(partition_key, data, explicit_hash_key, tags)
        future = pending.token = DeliveryFuture()
        with self._lock:
            self._ensure_running()
            while not self._has_room(pending.size):
                if self.config.when_full == "drop":
                    drop(future, self._observe)
                    return future
                if self.config.when_full == "fail" or threading.current_thread() is self._thread:
                    records, size = self._held()
                    raise ProducerFull(records=records, bytes=size)
                self._space.wait()
                self._ensure_running()
            # From here the record is accepted: one append, which no signal can halve.
            self._inbox.append(pending)
            self._inbox_bytes += pending.size
            self._wake.notify()
        return future

    def wait_ready(self, timeout: float = 10.0) -> bool:
        """Start, and wait until there is a shard map: user records put before it go out one by one.

        Whether there is one within ``timeout`` seconds. Without it everything works, unaggregated.
        """
        self._not_from_callback("wait_ready")
        live = self._core.live
        with self._lock:
            self._ensure_running()
            return self._news.wait_for(
                lambda: live.state is State.READY or self._broken is not None or self._closing, timeout
            ) and (live.state is State.READY)

    @property
    def outstanding(self) -> int:
        """User records accepted that have not ended yet."""
        with self._lock:
            return self._held()[0]

    def flush(self, timeout: float | None = None) -> bool:
        """Send everything at once and wait until all that was put before has ended, well or not.

        Whether it did within ``timeout`` seconds. Ends by itself: no record outlives its time to live.
        """
        self._not_from_callback("flush")
        flush = _Flush()
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                return not self._held()[0]
            self._new_flushes.append(flush)
            self._wake.notify()
        return flush.done.wait(timeout)

    def close(self, timeout: float | None = None) -> bool:
        """Accept nothing more, deliver what is outstanding, end the threads.

        After ``timeout`` seconds what is left fails as "closed". Whether nothing had to. Closing twice
        does no harm.
        """
        self._not_from_callback("close")
        with self._lock:
            self._closing = True
            if timeout is not None:
                self._give_up_at = self._clock() + timeout
            self._wake.notify()
            self._space.notify_all()
            self._news.notify_all()
            thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join()
        return self._core.outstanding == 0 and not self._gave_up

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _not_from_callback(self, what: str) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError(f"{what} would wait for the thread it is called in")

    def _held(self) -> tuple[int, int]:
        """User records and bytes held. Each counts once: those being accepted are not in the core yet."""
        records, size = self._in_core
        return (
            records + len(self._taken) + len(self._inbox),
            size + self._taken_bytes + self._inbox_bytes,
        )

    def _has_room(self, size: int) -> bool:
        records, held = self._held()
        return records < self.config.max_outstanding_records and (
            held + size <= self.config.max_outstanding_bytes
        )

    def _ensure_running(self) -> None:
        """Called with the lock held. Raises ProducerClosed."""
        if self._broken is not None:
            raise ProducerClosed(code="broken") from self._broken
        if self._closing:
            raise ProducerClosed(code="closed")
        if self._forked and self._given_client is not None:
            raise ProducerClosed(code="forked")  # its connections are the parent's
        if self._thread is None:
            if self._workers is None:
                client = self._given_client or self._new_client()
                self._workers = Workers(client, self._stream, self.config.max_connections, self._report)
            self._workers.start_one()
            name = next(iter(self._stream.values()))
            self._thread = threading.Thread(
                target=self._run, args=(self._workers,), name=f"kpl-codec producer {name}", daemon=True
            )
            self._thread.start()

    def _new_client(self) -> Any:
        import boto3
        from botocore.config import Config

        settings = {"config": Config(**client_config(self.config)), **self._client_settings}
        return boto3.session.Session().client("kinesis", **settings)

    # -- the owning thread --------------------------------------------------------------------

    def _run(self, workers: Workers) -> None:
        try:
            self._core.start(self._clock())
            for request in self._core.requests(self._clock()):  # the map, before the first record
                workers.give(request)
            while self._turn(workers):
                pass
        except BaseException as error:
            # A bug of ours: nobody may wait for ever for it.
            self._fall_apart(error)
            raise
        finally:
            workers.stop()

    def _turn(self, workers: Workers) -> bool:
        """Take what has come, let the core decide, carry it out. False: closed and nothing left."""
        core = self._core
        with self._lock:
            news = self._inbox or self._answers or self._new_flushes
            if not news and self._closing == self._told_to_close and not self._finished():
                timer = self._next_time()
                self._wake.wait(None if timer is None else max(0.0, timer - self._clock()))
            self._taken, self._inbox = self._inbox, []
            self._taken_bytes, self._inbox_bytes = sum(p.size for p in self._taken), 0
            answers, self._answers = self._answers, []
            flushes, self._new_flushes = self._new_flushes, []
            closing = self._closing
        now = self._clock()
        workers.taken(len(answers))
        map_answered = False
        for request, answer, failure, answered in answers:
            map_answered = map_answered or isinstance(request, Request)
            if failure is None:
                core.receive(request, answer, now)
            else:
                core.fail(request, failure, now, answered=answered)
        left: list[Pending] = []
        for pending in self._taken:
            if left or not core.has_room(pending.size):
                left.append(pending)
            else:
                self._futures.add(pending.token)
                core.accept(pending, now)
        with self._lock:
            self._taken, self._taken_bytes = [], 0
            self._in_core = core.outstanding, core.outstanding_bytes
            if map_answered:
                self._news.notify_all()
            self._inbox[:0] = left
            self._inbox_bytes += sum(pending.size for pending in left)
            inbox_empty = not self._inbox
        for flush in flushes:
            core.flush()
            flush.waiting_for = set(self._futures)
            flush.waiting_for.update(pending.token for pending in left)
            self._flushes.append(flush)
        if closing and inbox_empty:
            core.close()
            self._told_to_close = True
        if self._give_up_at is not None and now >= self._give_up_at and core.outstanding:
            self._gave_up = True
            core.abandon(now)
        for request in core.requests(now):
            workers.give(request)
        self._resolve(core.results())
        return not (closing and inbox_empty and not core.outstanding)

    def _finished(self) -> bool:
        return self._closing and not self._core.outstanding

    def _next_time(self) -> float | None:
        times = [at for at in (self._core.timer(), self._give_up_at) if at is not None]
        return min(times, default=None)

    def _resolve(self, results: list[tuple[Pending, Delivery | DeliveryError]]) -> None:
        if results:
            with self._lock:
                self._in_core = self._core.outstanding, self._core.outstanding_bytes
                self._space.notify_all()
            log_not_delivered(results)
        for pending, result in results:
            future = pending.token
            self._futures.discard(future)
            for flush in self._flushes:
                flush.waiting_for.discard(future)
            end(future, result)
        if self._flushes:
            for flush in [flush for flush in self._flushes if not flush.waiting_for]:
                self._flushes.remove(flush)
                flush.done.set()

    def _report(
        self, request: PutRecordsRequest | Request, answer: Any, failure: Failure | None, answered: bool
    ) -> None:
        """Called by workers."""
        with self._lock:
            self._answers.append((request, answer, failure, answered))
            self._wake.notify()

    def _fall_apart(self, error: BaseException) -> None:
        with self._lock:
            self._broken = error
            self._space.notify_all()
            self._news.notify_all()
            waiting = self._futures | {pending.token for pending in (*self._taken, *self._inbox)}
            flushes = self._flushes + self._new_flushes
        for future in waiting:
            if not future.done():
                broken = DeliveryError(outcome=Outcome.CLOSED, code="broken", attempts=())
                broken.__cause__ = error
                future.set_exception(broken)
        for flush in flushes:
            flush.done.set()

    # -- fork and exit ------------------------------------------------------------------------

    def _after_fork_in_child(self) -> None:
        orphans = self._futures | {pending.token for pending in (*self._taken, *self._inbox)}
        closing = self._closing
        self._forked = True
        self._begin()
        self._closing = closing
        for future in orphans:
            # Another thread of the parent may have held its lock: that thread is not here to give it back.
            future._condition = threading.Condition()
            if not future.done():
                future.set_exception(DeliveryError(outcome=Outcome.CLOSED, code="forked", attempts=()))


_PRODUCERS: weakref.WeakSet[Producer] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for producer in list(_PRODUCERS):
        producer._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _close_at_exit(reference: weakref.ref[Producer]) -> None:
    producer = reference()
    if producer is None or producer._thread is None or not producer._thread.is_alive():
        return
    outstanding = producer.outstanding
    if not producer.close(producer._exit_timeout):
        logger.error(
            "interpreter exit: user records were given up",
            extra={"outcome": "closed", "user_records": outstanding},
        )
