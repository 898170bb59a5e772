"""The producer with threads and boto3.

    with Producer("orders", config=ProducerConfig(record_max_buffered_time_ms=50)) as producer:
        future = producer.put("customer-17", b"...")          # a future, at once
        producer.put(None, b"...")                            # no key: the partitioner chooses
        delivery = future.result()                            # Delivery, or raises DeliveryError

    put (any thread) ──▶ inbox ──▶ one thread owns the core ──▶ calls ──▶ worker threads (boto3)
      future ◀────────────────────── results ◀───────────────── answers ◀──────┘

`kpl_codec.producer` makes all decisions. Only the thread that drives it uses the core (driver.py).
Signals go to the main thread, so Ctrl-C can interrupt a caller but not the core. Producers of several streams
may share their threads (`ProducerThreads`).

Leaving the ``with`` block, or `close`, delivers what is outstanding: at most the records' time to live and
one request's timeouts. A producer that is dropped without `close` does this, too. Signals, forks and the end
of the process: spec/guides/services.md, and `threads`. In AWS Lambda call `flush` before the handler
returns: threads do not run between invocations.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from ..aws.calls import run_sync
from ..format.records import Tag
from . import RecordTooLarge
from .delivery import undelivered
from .delivery_future import DeliveryFuture, new_future
from .driver import CROWD, LONGEST_WAIT, Driver
from .lock import driving, in_log, locked, may_wait, within_limit
from .producer_base import ProducerBase, import_boto3
from .producer_logging import wait_for_log
from .threads import PRODUCERS, ProducerThreads, close_at_exit

if TYPE_CHECKING:
    from uuid import UUID

    from typing_extensions import Unpack

    from .producer_base import ProducerOptions


class Producer(ProducerBase):
    """A producer for one stream, its name or its ARN. All methods are thread-safe.

    ``options``: see `kpl_codec.producer.producer_base.ProducerOptions`. ``threads``: those to share with
    producers
    of other streams, else it has its own. ``exit_timeout``: seconds that a process which ends waits for
    deliveries, and as long again for on_undelivered.

    Callbacks of its futures run in the thread that drives it: they must be short, and cannot wait for any
    producer. Every method may raise WouldDeadlock in a signal handler and in a finalizer. In a log call (a
    handler may put) `put` raises ProducerFull instead of waiting, and `flush`, `close` and `wait_ready`
    return after 5 seconds at most.
    """

    def __init__(
        self,
        stream: str,
        *,
        threads: ProducerThreads | None = None,
        exit_timeout: float = 10.0,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(stream, **options)
        if self._client is None:  # not in the first put: that may come when the main thread has ended
            import_boto3()
        self._exit_timeout = exit_timeout
        self._threads = threads or ProducerThreads()
        self._begin()
        PRODUCERS.add(self)

    def _begin(self) -> None:
        """Set everything that a forked child needs anew. Threads start when they are needed."""
        self._core = self._new_core()
        self._driver = Driver(self._core, self._clock, self._on_undelivered, self._new_notes)
        self._driver.exit_timeout, self._driver.stream = self._exit_timeout, self._stream.argument
        self._mailbox, self._wake = self._driver.mailbox, self._threads.wake
        self._started = False
        self._connecting: set[int] = set()  # threads that make the client
        self._finalizer: weakref.finalize[..., Producer] | None = None

    def put(
        self,
        partition_key: str | None,
        data: bytes,
        explicit_hash_key: str | int | None = None,
        tags: tuple[Tag, ...] = (),
        *,
        schema: UUID | str | None = None,
    ) -> DeliveryFuture:
        """Accept a user record; its future gives a Delivery or raises a DeliveryError.

        ``schema``: a schema version id of Glue Schema Registry; ``data``, its payload, is framed with it as
        by the KPL. ``partition_key`` None: no key, the partitioner chooses a shard. When the producer is full
        it waits, raises ProducerFull, or gives a future that fails as "dropped", as configured; with
        `on_undelivered` it raises ProducerFull, too, while as many dropped ones wait for that.
        Raises EncodeError for a user record that cannot be written, ProducerClosed. A put that Ctrl-C
        interrupts may have been accepted or not. One that is too large waits, at most 10 s and once a minute,
        until the stream's limit has been read again.
        """
        try:
            pending = self._core.prepare(partition_key, data, explicit_hash_key, tags, schema=schema)
        except RecordTooLarge:
            if not self._size_again():
                raise
            pending = self._core.prepare(partition_key, data, explicit_hash_key, tags, schema=schema)
        future = pending.token = new_future()
        mailbox = self._mailbox
        if not self._started:
            self._connect()
        with locked("put"):
            if mailbox.closing or mailbox.broken is not None or not self._started:
                self._ensure_running()
            while not self._leave(pending):
                mailbox.space.wait()
                self._ensure_running()
            # PRD-46: "with threads it waits, at most 10 ms, while 1000 puts are not taken yet"
            if len(mailbox.inbox) >= CROWD and not driving.here:
                self._wake()
                mailbox.news.wait_for(lambda: len(mailbox.inbox) < CROWD, LONGEST_WAIT)
        return future

    def _size_again(self) -> bool:
        """See `_size_read`. False also where the limit is a setting, and in a callback or a log call, which
        must not wait."""
        if self.config.max_record_size is not None or driving.here or self._in_hook or in_log():
            return False
        may_wait("put")
        self._connect()
        with locked("put"):
            self._ensure_running()
            return run_sync(self._size_read())

    @property
    def _in_hook(self) -> bool:
        return self._driver.hook.caller == threading.get_ident()

    def _may_wait(self, method: str) -> None:
        may_wait(method)
        super()._may_wait(method)

    def wait_ready(self, timeout: float | None = 10.0) -> bool:
        """Start, and wait until there is a shard map, without which user records are not aggregated.

        Returns whether there is one within ``timeout`` seconds. Calling it is optional. Raises
        ProducerClosed, also where the producer is closed meanwhile.
        """
        self._may_wait("wait_ready")
        self._connect()
        with locked("wait_ready"):
            self._ensure_running()
            return run_sync(self._have_map(within_limit(timeout)))

    def flush(self, timeout: float | None = None) -> bool:
        """Send everything at once and wait until all earlier puts have ended, delivered or failed.

        Returns whether they did within ``timeout`` seconds, an hour if that is None: records may have a
        longer time to live. Calls that never return end, too.
        """
        self._may_wait("flush")
        with locked("flush"):
            return run_sync(self._wait_flush(within_limit(timeout)))

    def close(self, timeout: float | None = None) -> bool:
        """Accept nothing more, deliver what is outstanding, end the threads unless other producers use them.

        After ``timeout`` seconds the rest fails as "closed", and on_undelivered has exit_timeout seconds for
        it. Without one it lasts until each user record has its result, in an outage as long as
        record_ttl_ms and 3 seconds, and until on_undelivered has returned. Returns whether every user record
        that the producer has ever accepted was delivered. Closing twice is allowed.
        """
        self._may_wait("close")
        driver, mailbox = self._driver, self._mailbox
        with locked("close"):
            mailbox.close(mailbox.give_up_at if timeout is None else self._clock() + timeout)
            self._wake()
            # (The thread is not joined: a handler that has interrupted a join would wait for itself.)
            most = within_limit(None if timeout is None else timeout + self._exit_timeout)
            ended = mailbox.news.wait_for(lambda: mailbox.finished or not self._started, most)
        if not in_log():
            wait_for_log()
        # PRD-60: "Closing MUST report that everything was delivered only if every accepted user record was."
        return ended and not driver.failed

    def __enter__(self) -> Producer:
        """Start. Raises ProducerClosed."""
        self._connect()
        with locked("with"):
            self._ensure_running()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self) -> None:
        driver, thread = self._driver, threading.get_ident()
        unusable = self._mailbox.closing or (self._forked and self._client)
        if driver.client is not None or unusable or thread in self._connecting:
            return
        self._connecting.add(thread)
        try:
            driver.client = self._client or self._threads.client(self.config, self._client_settings)
        except BaseException:
            self._end_unsent()
            raise
        finally:
            self._connecting.discard(thread)

    def _end_unsent(self) -> None:
        """There is no client: end what log handlers have put while it was made."""
        driver, mailbox = self._driver, self._mailbox
        with locked("put"):
            unsent, mailbox.inbox = ([], mailbox.inbox) if self._started else (mailbox.inbox, [])
        driver.failed += len(unsent)
        driver.end([undelivered(self.config, pending, "closed", "not-started") for pending in unsent])

    def _ensure_running(self) -> None:
        self._check_open()
        # (botocore logs while it makes the client, and a log handler may put: the outer put starts.)
        if self._started or threading.get_ident() in self._connecting:
            return
        close_at_exit()
        self._finalizer = weakref.finalize(self, self._threads.let_go, self._driver)
        self._finalizer.atexit = False
        self._threads.drive(self._driver, f"kpl-codec producer {self._stream.name}")
        self._started = True

    def _after_fork_in_child(self) -> None:
        """Empty the child's producer; earlier puts belong to the parent."""
        if self._finalizer is not None:
            self._finalizer.detach()
        closing = self._mailbox.closing
        self._forked = True
        self._begin()
        self._mailbox.closing = closing
