"""The producer with threads and boto3.

    with Producer("orders", config=ProducerConfig(record_max_buffered_time=50)) as producer:
        future = producer.put("customer-17", b"...")          # a future, at once
        producer.put(None, b"...")                            # no key: the partitioner chooses
        delivery = future.result()                            # Delivery, or raises DeliveryError

    put (any thread) ──▶ inbox ──▶ one thread owns the core ──▶ calls ──▶ worker threads (boto3)
      future ◀────────────────────── results ◀───────────────── answers ◀──────┘

`kpl_codec.producer` makes all decisions. Only the owning thread uses the core. Signals go to the main thread,
so Ctrl-C can interrupt a caller but not the core, and a signal handler may call every method.

* Leaving the ``with`` block, or `close`, delivers what is outstanding: at most the records' time to live
  and one request's timeouts.
* On interpreter exit without `close`, an exit handler closes with ``exit_timeout`` seconds and logs how
  many user records it had to give up. ``kill -9`` loses only user records whose futures have no result yet.
* In AWS Lambda call `flush` before the handler returns: threads do not run between invocations.
* After a fork the child has its own producer, empty and with new connections. Records put before belong to
  the parent; in the child their futures fail with code "forked".
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from ..format.records import Tag
from ..producer import DeliveryError, Outcome, Pending, ProducerClosed, ProducerConfig, ProducerFull
from ..producer.collector import PutRecordsRequest
from ..producer.metrics import Observe
from ..shards.live_shard_map import Failure, Request, State
from .calls import KinesisClient
from .delivery_future import DeliveryFuture
from .fork_and_exit import remember, remember_in_child
from .producer_base import Flush, ProducerBase, Result, boto3_client, end
from .producer_log import log_left_behind, log_not_delivered
from .workers import Workers

#: Seconds that the owning thread sleeps at most: a wait may not be longer than threading.TIMEOUT_MAX.
_LONGEST_SLEEP = 3600.0


class Producer(ProducerBase):
    """A producer for one stream. All methods are thread-safe, and may be called from signal handlers.

    Give ``stream_name`` or ``stream_arn``. ``client_settings`` go to ``boto3.client("kinesis", ...)``
    (endpoint_url, region_name ...); or give ``client``, made without retries; then it cannot be used after a
    fork. ``observe(name, value, attributes)`` gets the metrics of `kpl_codec.producer.METRICS`: see
    `kpl_codec.aws.telemetry` and `kpl_codec.outlets.producer_metrics`. ``exit_timeout``: seconds.
    ``chance(n)``: one of 0..n-1. ``clock``: seconds, monotonic.

    Callbacks of its futures run in the producer's thread: they must be short and must not wait.
    """

    def __init__(
        self,
        stream_name: str | None = None,
        *,
        stream_arn: str | None = None,
        config: ProducerConfig | None = None,
        client: KinesisClient | None = None,
        client_settings: Mapping[str, Any] | None = None,
        observe: Observe | None = None,
        exit_timeout: float = 10.0,
        chance: Callable[[int], int] = random.randrange,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            stream_name,
            stream_arn=stream_arn,
            config=config,
            client=client,
            client_settings=client_settings,
            observe=observe,
            chance=chance,
            clock=clock,
        )
        self._exit_timeout = exit_timeout
        self._forked = False
        self._begin()
        remember(self)

    def _begin(self) -> None:
        """Set everything that a forked child needs anew. Threads start when they are needed."""
        # PRD-40: "Every method of the thread producer MUST work in a signal handler, whatever the handler has
        # interrupted."
        # A signal handler may run inside a method that holds the lock, in the same thread. So the lock is
        # re-entrant, and waiting uses its conditions, which release it completely.
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)  # the owning thread sleeps here
        self._space = threading.Condition(self._lock)  # blocked callers of put
        self._news = threading.Condition(self._lock)  # callers that wait for the map, a flush, or the end
        self._core = self._new_core()
        # Outstanding: put minus ended. Callers change the first, the owning thread the second.
        self._put_records = self._put_bytes = 0
        self._ended_records = self._ended_bytes = 0
        self._inbox: list[Pending | Flush] = []
        self._answers: list[tuple[PutRecordsRequest | Request, Any, Failure | None, bool]] = []
        self._refresh_wanted = False
        self._closing = False
        self._give_up_at: float | None = None
        self._broken: BaseException | None = None
        self._finished = self._started = False
        self._asleep = False  # the owning thread
        self._thread: threading.Thread | None = None
        self._workers: Workers | None = None
        # Used only by the owning thread.
        self._taken: list[Pending | Flush] = []
        self._unresolved: set[Pending] = set()
        self._flushes: list[Flush] = []
        self._told_to_close = self._gave_up = False

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
                    self._drop(future)
                    return future
                if self.config.when_full == "fail" or threading.current_thread() is self._thread:
                    raise ProducerFull(records=self.outstanding, bytes=self._put_bytes - self._ended_bytes)
                self._space.wait()
                self._ensure_running()
            pending.accepted_at = self._clock()
            self._put_records += 1
            self._put_bytes += pending.size
            # Here the record is accepted, by one append that no signal can interrupt.
            self._inbox.append(pending)
            if self._finished and pending in self._inbox:
                # A signal handler has closed the producer since the check: nobody will take it.
                self._inbox.remove(pending)
                self._put_records -= 1
                self._put_bytes -= pending.size
                self._ensure_running()
            if self._asleep:
                self._wake.notify()
        return future

    def wait_ready(self, timeout: float = 10.0) -> bool:
        """Start, and wait until there is a shard map. User records put before are sent one by one.

        Returns whether there is one within ``timeout`` seconds.
        """
        self._not_from_callback("wait_ready")
        live = self._core.live
        with self._lock:
            self._ensure_running()
            return self._news.wait_for(
                lambda: live.state is State.READY or self._broken is not None or self._closing, timeout
            ) and (live.state is State.READY)

    def refresh_shard_map(self) -> None:
        """Request the shard map now, for example after a permanent error was fixed."""
        with self._lock:
            self._ensure_running()
            self._refresh_wanted = True
            self._wake.notify()

    @property
    def outstanding(self) -> int:
        """User records accepted that have not ended yet."""
        return self._put_records - self._ended_records

    def flush(self, timeout: float | None = None) -> bool:
        """Send everything at once and wait until all earlier puts have ended, delivered or failed.

        Returns whether they did within ``timeout`` seconds. It always ends, because records expire.
        """
        self._not_from_callback("flush")
        flush = Flush()
        with self._lock:
            if not self._started or self._finished:
                return not self.outstanding
            self._inbox.append(flush)
            self._wake.notify()
            self._news.wait_for(lambda: flush.done or self._finished, timeout)
            return flush.done or (self._finished and not self.outstanding)

    def close(self, timeout: float | None = None) -> bool:
        """Accept nothing more, deliver what is outstanding, end the threads. After ``timeout`` seconds the
        rest fails as "closed". Returns whether all were delivered in time. Closing twice is allowed.
        """
        self._not_from_callback("close")
        with self._lock:
            self._closing = True
            if timeout is not None:
                self._give_up_at = self._clock() + timeout
            self._wake.notify()
            self._space.notify_all()
            self._news.notify_all()
            self._news.wait_for(lambda: self._finished or not self._started)
            thread = self._thread
        if thread is not None:
            thread.join()  # it no longer takes the lock
        return self._core.outstanding == 0 and not self._gave_up and self._broken is None

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _not_from_callback(self, what: str) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError(f"{what} would wait for the thread it is called in")

    def _has_room(self, size: int) -> bool:
        return self._put_records - self._ended_records < self.config.max_outstanding_records and (
            self._put_bytes - self._ended_bytes + size <= self.config.max_outstanding_bytes
        )

    def _ensure_running(self) -> None:
        """Called with the lock held. Raises ProducerClosed."""
        if self._broken is not None:
            raise ProducerClosed(code="broken") from self._broken
        if self._closing:
            raise ProducerClosed(code="closed")
        if self._forked and self._client is not None:
            raise ProducerClosed(code="forked")  # its connections are the parent's
        if self._started:
            return
        if self._workers is None:
            client = self._client or boto3_client(self.config, self._client_settings)
            workers = Workers(client, self._stream, self.config.max_connections, self._report)
            self._workers = self._workers or workers
        if self._forked:
            remember_in_child(self)
        self._workers.start_one()
        name = next(iter(self._stream.values()))
        threading.Thread(
            target=self._run, args=(self._workers,), name=f"kpl-codec producer {name}", daemon=True
        ).start()
        self._started = True  # only now: a signal handler in between would start one, too

    # -- the owning thread --------------------------------------------------------------------

    def _run(self, workers: Workers) -> None:
        with self._lock:
            if self._thread is not None:
                return  # the second of two, see `_ensure_running`
            self._thread = threading.current_thread()
        try:
            self._core.start(self._clock())
            for request in self._core.requests(self._clock()):  # request the map before the first record
                workers.give(request)
            while self._turn(workers):
                pass
        except BaseException as error:
            # A bug: every waiting caller must get an error.
            self._fall_apart(error)
            raise
        finally:
            workers.stop()
            with self._lock:
                self._finished = True
                self._space.notify_all()
                self._news.notify_all()

    def _turn(self, workers: Workers) -> bool:
        """Take puts and answers, let the core decide, make its calls. False: closed and nothing left."""
        core = self._core
        with self._lock:
            news = self._inbox or self._answers or self._refresh_wanted
            if not news and self._closing == self._told_to_close and not self._all_done():
                self._asleep = True
                self._wake.wait(self._sleep())
                self._asleep = False
            self._taken, self._inbox = self._inbox, []
            answers, self._answers = self._answers, []
            refresh, self._refresh_wanted = self._refresh_wanted, False
            closing = self._closing
        now = self._clock()
        if refresh:
            core.live.refresh(now)
        workers.taken(len(answers))
        for request, answer, failure, answered in answers:
            if failure is None:
                core.receive(request, answer, now)
            else:
                core.fail(request, failure, now, answered=answered)
        refused = self._accept_taken(now)
        if closing:
            core.close()
            self._told_to_close = True
        if self._give_up_at is not None and now >= self._give_up_at and core.outstanding:
            self._gave_up = True
            core.abandon(now)
        for request in core.requests(now):
            workers.give(request)
        self._resolve([*refused, *core.results()])
        if any(isinstance(request, Request) for request, *_ in answers):
            with self._lock:
                self._news.notify_all()
        return not self._all_done()

    def _accept_taken(self, now: float) -> list[Result]:
        """Give the puts to the core. Returns the results of those it refused: puts that were interrupted by a
        put or close in a signal handler."""
        refused: list[Result] = []
        for item in self._taken:
            if isinstance(item, Flush):
                item.begin(self._core, len(self._unresolved))
                self._flushes.append(item)
                continue
            self._unresolved.add(item)
            try:
                self._core.accept(item, now, item.accepted_at)
            except (ProducerClosed, ProducerFull) as error:
                refused.append((item, DeliveryError(outcome=Outcome.DROPPED, code=error.code, attempts=())))
        self._taken = []
        return refused

    def _all_done(self) -> bool:
        return self._told_to_close and not self._inbox and not self._core.outstanding

    def _sleep(self) -> float:
        """Seconds until there is something to do if nothing else happens."""
        times = [at for at in (self._core.timer(), self._give_up_at) if at is not None]
        return max(0.0, min(min(times, default=float("inf")) - self._clock(), _LONGEST_SLEEP))

    def _resolve(self, results: list[Result]) -> None:
        if results:
            with self._lock:
                self._ended_records += len(results)
                self._ended_bytes += sum(pending.size for pending, _ in results)
                self._space.notify(len(results))
            log_not_delivered(results)
        for pending, result in results:
            end(pending.token, result)
            self._unresolved.discard(pending)  # not before: a forked child ends those that are left
        done = [flush for flush in self._flushes if flush.ended(results)]
        if done:
            self._flushes = [flush for flush in self._flushes if not flush.done]
            with self._lock:
                self._news.notify_all()

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
            waiting, self._inbox = self._inbox, []
        log_left_behind(self.outstanding, "the producer has broken")
        never_sent = [item for item in (*self._taken, *waiting) if isinstance(item, Pending)]
        for pending in self._unresolved:
            end(pending.token, self._broken_off(pending, error))
        for pending in never_sent:
            end(pending.token, DeliveryError(outcome=Outcome.CLOSED, code="broken", attempts=()))
        with self._lock:
            self._ended_records, self._ended_bytes = self._put_records, self._put_bytes

    def _after_fork_in_child(self) -> None:
        """Empty the child's producer; earlier puts belong to the parent."""
        orphans = [item for item in (*self._taken, *self._inbox) if isinstance(item, Pending)]
        futures = {pending.token for pending in (*orphans, *self._unresolved)}
        closing = self._closing
        self._forked = True
        self._begin()
        self._closing = closing
        for future in futures:
            # A thread of the parent may have held the lock, and cannot release it in the child.
            future._condition = threading.Condition()
            # PRD-39: "After a fork the child MUST NOT run the callbacks of the parent's user records."
            future._done_callbacks = []
            if not future.done():
                future.set_exception(DeliveryError(outcome=Outcome.CLOSED, code="forked", attempts=()))
