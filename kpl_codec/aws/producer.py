"""The producer with threads and boto3.

    with Producer("orders", config=ProducerConfig(record_max_buffered_time=50)) as producer:
        future = producer.put("customer-17", b"...")          # a future, at once
        producer.put(None, b"...")                            # no key: the partitioner chooses
        delivery = future.result()                            # Delivery, or raises DeliveryError

    put (any thread) ──▶ inbox ──▶ one thread owns the core ──▶ calls ──▶ worker threads (boto3)
      future ◀────────────────────── results ◀───────────────── answers ◀──────┘

`kpl_codec.producer` makes all decisions. Only the owning thread uses the core (producer_owner.py). Signals go
to the main thread, so Ctrl-C can interrupt a caller but not the core, and a signal handler may call every
method. Producers of several streams may share their threads (`ProducerThreads`).

* Leaving the ``with`` block, or `close`, delivers what is outstanding: at most the records' time to live
  and one request's timeouts.
* On interpreter exit without `close`, an exit handler closes with ``exit_timeout`` seconds and logs how
  many user records it had to give up. ``kill -9`` loses only user records whose futures have no result yet.
* In AWS Lambda call `flush` before the handler returns: threads do not run between invocations.
* After a fork the child has its own producer, empty and with new connections. Records put before belong to
  the parent; in the child their futures fail with code "forked".
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from ..format.records import Tag
from ..producer import ProducerClosed, ProducerFull
from ..shards.live_shard_map import State
from .calls import KinesisClient
from .delivery_future import DeliveryFuture
from .fork_and_exit import remember, remember_in_child
from .producer_base import Flush, ProducerBase
from .producer_owner import CROWD, LONGEST_WAIT, Mailbox, Owner
from .producer_threads import ProducerThreads, shared

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .producer_base import ProducerOptions


class Producer(ProducerBase):
    """A producer for one stream. All methods are thread-safe, and may be called from signal handlers.

    ``options``: see `kpl_codec.aws.producer_base.ProducerOptions`. ``threads``: those to share with producers
    of other streams, else it has its own. ``exit_timeout``: seconds, see the module.

    Callbacks of its futures run in the owning thread: they must be short and must not wait.
    """

    def __init__(
        self,
        stream_name: str | None = None,
        *,
        threads: ProducerThreads | None = None,
        exit_timeout: float = 10.0,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(stream_name, **options)
        self._exit_timeout = exit_timeout
        self._threads = shared(threads)
        self._forked = False
        self._begin()
        remember(self)

    def _begin(self) -> None:
        """Set everything that a forked child needs anew. Threads start when they are needed."""
        self._core = self._new_core()
        self._box = Mailbox(self._threads.lock, self._threads.wake)
        self._owner = Owner(self._core, self._box, self._clock, self._broken_off)
        self._started = False

    # -- putting ------------------------------------------------------------------------------

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
        box, size = self._box, pending.size
        if not self._started:
            self._connect()
        with self._threads.lock:
            if box.closing or box.broken is not None or not self._started:
                self._ensure_running()
            while not self._has_room(size):
                if self.config.when_full == "drop":
                    self._drop(future)
                    return future
                if self.config.when_full == "fail" or self._threads.is_current():
                    raise ProducerFull(records=self.outstanding, bytes=box.put_bytes - box.ended_bytes)
                box.space.wait()
                self._ensure_running()
            pending.accepted_at = self._clock()
            box.put_records += 1
            box.put_bytes += size
            # Here the record is accepted, by one append that no signal can interrupt.
            box.inbox.append(pending)
            if box.finished and pending in box.inbox:
                # A signal handler has closed the producer since the check: nobody will take it.
                box.inbox.remove(pending)
                box.put_records -= 1
                box.put_bytes -= size
                self._ensure_running()
            self._threads.wake()
            # PRD-46: "with threads it waits, at most 10 ms, while 1000 puts are not taken yet"
            if len(box.inbox) >= CROWD and not self._threads.is_current():
                box.taken.wait(LONGEST_WAIT)
        return future

    def _has_room(self, size: int) -> bool:
        box, config = self._box, self.config
        return box.put_records - box.ended_records < config.max_outstanding_records and (
            box.put_bytes - box.ended_bytes + size <= config.max_outstanding_bytes
        )

    @property
    def outstanding(self) -> int:
        """User records accepted that have not ended yet."""
        return self._box.put_records - self._box.ended_records

    # -- waiting ------------------------------------------------------------------------------

    def wait_ready(self, timeout: float = 10.0) -> bool:
        """Start, and wait until there is a shard map. User records put before are sent one by one.

        Returns whether there is one within ``timeout`` seconds.
        """
        self._not_from_callback("wait_ready")
        self._connect()
        live, box = self._core.live, self._box
        with self._threads.lock:
            self._ensure_running()
            return box.news.wait_for(
                lambda: live.state is State.READY or box.broken is not None or box.closing, timeout
            ) and (live.state is State.READY)

    def refresh_shard_map(self) -> None:
        """Request the shard map now, for example after a permanent error was fixed."""
        self._connect()
        with self._threads.lock:
            self._ensure_running()
            self._box.refresh_wanted = self._box.told = True
            self._threads.wake()

    def flush(self, timeout: float | None = None) -> bool:
        """Send everything at once and wait until all earlier puts have ended, delivered or failed.

        Returns whether they did within ``timeout`` seconds. It always ends, because records expire.
        """
        self._not_from_callback("flush")
        flush, box = Flush(), self._box
        with self._threads.lock:
            if not self._running:
                return not self.outstanding
            box.inbox.append(flush)
            self._threads.wake()
            box.news.wait_for(lambda: flush.done or box.finished, timeout)
            return flush.done or (box.finished and not self.outstanding)

    def close(self, timeout: float | None = None) -> bool:
        """Accept nothing more, deliver what is outstanding, end the threads unless other producers use them.
        After ``timeout`` seconds the rest fails as "closed". Returns whether all were delivered in time.
        Closing twice is allowed.
        """
        self._not_from_callback("close")
        box, owner = self._box, self._owner
        with self._threads.lock:
            box.closing = box.told = True
            if timeout is not None:
                box.give_up_at = self._clock() + timeout
            self._threads.wake()
            box.space.notify_all()
            box.news.notify_all()
            box.news.wait_for(lambda: box.finished or not self._started)
            thread = owner.ended_thread
        if thread is not None:
            thread.join()  # it no longer takes the lock
        return self._core.outstanding == 0 and not owner.gave_up and box.broken is None

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _not_from_callback(self, what: str) -> None:
        if self._threads.is_current():
            raise RuntimeError(f"{what} would wait for the thread it is called in")

    # -- starting -----------------------------------------------------------------------------

    @property
    def _running(self) -> bool:
        return self._started and not self._box.finished

    def _connect(self) -> None:
        """Make the client, which takes long, without the lock."""
        if self._owner.client is None and not (self._box.closing or self._given_client_forked):
            client: KinesisClient = self._client or self._threads.client(self.config, self._client_settings)
            self._owner.client = client

    @property
    def _given_client_forked(self) -> bool:
        """Whether the caller gave a client before a fork: its connections are the parent's."""
        return self._forked and self._client is not None

    def _ensure_running(self) -> None:
        """Called with the lock held, after `_connect`. Raises ProducerClosed."""
        if self._box.broken is not None:
            raise ProducerClosed(code="broken") from self._box.broken
        if self._box.closing:
            raise ProducerClosed(code="closed")
        if self._given_client_forked:
            raise ProducerClosed(code="forked")
        if self._started:
            return
        if self._forked:
            remember_in_child(self)
        self._owner.stream = self._stream
        self._threads.drive(self._owner, f"kpl-codec producer {next(iter(self._stream.values()))}")
        self._started = True

    def _after_fork_in_child(self) -> None:
        """Empty the child's producer; earlier puts belong to the parent."""
        orphans, closing = self._owner.orphans(), self._box.closing
        self._forked = True
        self._begin()
        self._box.closing = closing
        for pending in orphans:
            pending.token.orphan()
