"""The producer with threads and boto3.

    put (any thread) ──▶ mailbox ──▶ one thread drives the core ──▶ calls ──▶ workers (boto3)
      future ◀───────────────────────── results ◀───────────────── answers ◀──────┘

Only the driving thread uses the core. Signals go to the main thread, so Ctrl-C can interrupt a caller but not
the core. Forks and the end of the process: `process`.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ..arguments import check_arguments
from ..aws.calls import run_sync
from ..format.records import Tag
from . import ProducerClosed, ProducerConfig, RecordTooLarge
from .config import import_boto3, new_client
from .driver import CROWD, CROWD_WAIT, Answer, Call, Driver, ProducerBase
from .future import DeliveryFuture, may_wait, new_future
from .process import (
    FORKED,
    LOCK,
    RUNNING,
    check_start,
    check_threads,
    close_at_exit,
    driving,
    ends_with_a_fork,
    log_thread,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .config import ProducerOptions

#: Seconds that the driving thread sleeps at most: a wait may not be longer than threading.TIMEOUT_MAX.
_LONGEST_SLEEP: Final = 3600.0
#: The most threads that make calls, those with a call that does not return included.
_MOST_THREADS: Final = 1000
#: Responses for the driving thread; None only wakes it. Finalizers may put into this queue: it has no lock.
Answers = queue.SimpleQueue[tuple[Driver, Answer] | None]


class Workers:
    def __init__(self) -> None:
        self.busy = 0  # calls whose responses were not taken yet
        self.answers: Answers = queue.SimpleQueue()
        self._calls: queue.SimpleQueue[tuple[Driver, Call] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def give(self, driver: Driver, call: Call) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) <= min(self.busy, _MOST_THREADS):
            self.start_one()
        self.busy += 1
        self._calls.put((driver, call))

    def start_one(self) -> None:
        target = ends_with_a_fork(self._work)
        thread = threading.Thread(target=target, name="kpl-codec PutRecords", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no new threads while the interpreter exits; the existing ones suffice
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def stop(self) -> None:
        for _ in self._threads:
            self._calls.put(None)

    def _work(self) -> None:
        driving.here = True  # a log handler that botocore calls must not wait for other calls
        while (item := self._calls.get()) is not None:
            self._make(*item)
            item = None  # so that an idle thread keeps no producer alive

    def _make(self, driver: Driver, call: Call) -> None:
        try:
            if not driver.core.is_under_way(call):  # given up while it waited for a thread
                raise TimeoutError
            answer: Answer = partial(driver.core.receive, call, driver.send(call))
        except BaseException as error:  # noqa: BLE001 - botocore may raise anything here
            answer = driver.call_failed(call, error)
        self.answers.put((driver, answer))


class ProducerThreads:
    """Threads that several producers share, one producer for each stream.

        threads = ProducerThreads()
        with Producer("orders", threads=threads) as orders, Producer("clicks", threads=threads) as clicks:
            ...

    They live from the first start until the last producer is closed. One thread drives all producers and runs
    all callbacks; each call has a thread of its own, so a stream that hangs takes nothing from the others.
    Producers with equal settings share a boto3 client. The methods are for the producers.
    """

    def __init__(self) -> None:
        self._clients: list[tuple[Any, Any]] = []
        self._after_fork_in_child()
        FORKED.add(self)

    def _after_fork_in_child(self) -> None:
        self.drivers: list[Driver] = []
        self.thread: threading.Thread | None = None
        self._answers: Answers = queue.SimpleQueue()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "ProducerThreads belong to one process: make them in the function that uses them there"
        )

    def client(self, config: ProducerConfig, settings: Mapping[str, Any]) -> Any:
        """The boto3 client for these settings. Making it takes long: not to be called with the lock held."""
        key = os.getpid(), config, settings  # (a forked child must not use the parent's connections)
        for client_key, client in self._clients:
            if client_key == key:
                return client
        # It keeps a connection for each call that was under way at a time; several producers may share it.
        client = new_client(config, _MOST_THREADS, settings)
        self._clients.append((key, client))
        return client

    def wake(self) -> None:
        """Wake the driving thread, because a driver has something to do. It takes no lock, because finalizers
        call it."""
        self._answers.put(None)

    def drive(self, driver: Driver) -> None:
        """Give ``driver`` its turns from now on. Called with the lock held."""
        if self.thread is None:
            workers, name = Workers(), f"kpl-codec producer {driver.stream.name}"
            workers.start_one()
            target = ends_with_a_fork(self._run, workers)
            threading.Thread(target=target, name=name, daemon=True).start()
        self.drivers.append(driver)
        RUNNING.add(driver)
        self.wake()

    def _run(self, workers: Workers) -> None:
        driving.here = True
        with LOCK:
            # Two producers began at once (and may have ended), or Ctrl-C came while one did.
            if self.thread is not None or not self.drivers:
                workers.stop()
                return
            self.thread = threading.current_thread()
            # Earlier workers may still answer calls that were given up, in a queue that nobody reads.
            self._answers = workers.answers
        while True:
            with LOCK:
                wait = min([driver.wait() for driver in self.drivers], default=_LONGEST_SLEEP)
                for driver in self.drivers:
                    driver.mailbox.awake = wait <= 0
            self._take_answers(workers, min(wait, _LONGEST_SLEEP))
            with LOCK:
                for driver in self.drivers:
                    driver.mailbox.awake = True
                ready = [driver for driver in self.drivers if driver.wait() <= 0]
            for driver in ready:
                if not driver.turn(partial(workers.give, driver)) and self._end(driver):
                    workers.stop()
                    return
            self._take_answers(workers, min([driver.rest() for driver in ready], default=0.0))

    def _take_answers(self, workers: Workers, seconds: float) -> None:
        try:
            item = self._answers.get(timeout=seconds) if seconds else self._answers.get_nowait()
            while True:
                if item is not None:
                    driver, answer = item
                    workers.busy -= 1
                    driver.answers.append(answer)
                item = self._answers.get_nowait()
        except queue.Empty:
            pass

    def _end(self, driver: Driver) -> bool:
        """Remove a driver after its last turn. Returns whether no driver is left: then the threads end."""
        with LOCK:
            self.drivers.remove(driver)
            RUNNING.discard(driver)
            driver.finish()
            if not self.drivers:
                self.thread = None
            return not self.drivers


class Producer(ProducerBase):
    """A producer for one stream, its name or its ARN. All methods are thread-safe.

    ``options``: see `kpl_codec.producer.config.ProducerOptions`. ``threads``: to share with producers of
    other streams; by default the producer has its own. ``exit_timeout``: seconds that whatever ends the
    producer waits for deliveries (a ``with`` block, `close`, a process that ends), and a process as long
    again for on_undelivered; None: until each user record has its result, which is record_ttl_ms and 3
    seconds at most. Raises TypeError and ValueError for other values of the two.

    It takes user records within its ``with`` block, or from `start` to `close`. Callbacks of futures run in
    the thread that drives the producer: they must be short, and cannot wait for any producer (WouldDeadlock).
    A producer that is garbage-collected without `close` delivers what is outstanding, too. In AWS Lambda
    decorate the handler with `delivers`.
    """

    def __init__(
        self,
        stream: str,
        *,
        threads: ProducerThreads | None = None,
        exit_timeout: float | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(stream, **options)
        check_arguments("Producer", {"exit_timeout": exit_timeout, "threads": threads})
        if self._client is None:  # not in `start`: the main thread may have ended
            import_boto3()
        self._exit_timeout, self._threads = exit_timeout, threads or ProducerThreads()
        self._forked = False
        self._begin()
        FORKED.add(self)

    def _begin(self) -> None:
        """Make the state that a forked child makes anew. Threads start when they are needed."""
        self._drive(Driver(self._stream, self.config, self._options), self._threads.wake)
        # PRD-90: "A with block, close without a timeout, a process and an event loop that end MUST wait
        # equally long for deliveries: exit_timeout seconds, or until each user record has its result."
        timeout = self._exit_timeout
        self._driver.exit_timeout = self.config.end_seconds if timeout is None else timeout
        self._finalizer: weakref.finalize[..., Producer] | None = None

    def put(
        self,
        partition_key: str | None,
        data: bytes,
        explicit_hash_key: str | int | None = None,
        tags: tuple[Tag, ...] = (),
    ) -> DeliveryFuture:
        """Accept a user record. The future's result is a Delivery, or it raises a DeliveryError.

        ``partition_key`` None: no key, the partitioner chooses a shard. When the producer is full
        put waits, raises ProducerFull, or returns a future that fails as "dropped", as ``when_full`` says;
        with `on_undelivered` it raises ProducerFull, too, while as many dropped user records wait for that
        callback. Raises EncodeError for a user record that cannot be written, NotStarted, ProducerClosed. A
        put that Ctrl-C interrupts may have been accepted or not. A put of a too large user record waits, at
        most 10 s and once a minute, until the stream's limit has been read again.
        """
        try:
            pending = self._core.prepare(partition_key, data, explicit_hash_key, tags)
        except RecordTooLarge:
            self._mailbox.check_open()
            self.check(partition_key, data, explicit_hash_key, tags)
            pending = self._core.prepare(partition_key, data, explicit_hash_key, tags)
        future = pending.token = new_future()
        mailbox, clock = self._mailbox, self._clock
        with LOCK:
            if mailbox.state != "running":
                mailbox.check_open()
            while not mailbox.leave(pending, clock()):
                if self._cannot_wait():
                    raise mailbox.full()
                mailbox.space.wait()
                mailbox.check_open()
            # PRD-46: "with threads it waits, at most 10 ms, while 1000 puts are not taken yet"
            if len(mailbox.inbox) >= CROWD and not driving.here:
                mailbox.wake()
                mailbox.news.wait_for(lambda: len(mailbox.inbox) < CROWD, CROWD_WAIT)
        return future

    def check(
        self,
        partition_key: str | None,
        data: bytes,
        explicit_hash_key: str | int | None = None,
        tags: tuple[Tag, ...] = (),
    ) -> None:
        """Raise what `put` raises for a user record that cannot be written, EncodeError, and put nothing. For
        a too large one it waits as `put` does, until the stream's limit has been read again."""
        try:
            self._core.prepare(partition_key, data, explicit_hash_key, tags)
        except RecordTooLarge:
            if not self._read_limit():
                raise
            self._core.prepare(partition_key, data, explicit_hash_key, tags)

    def _cannot_wait(self) -> bool:
        return driving.here or self._in_callback

    def _read_limit(self) -> bool:
        """As `_size_read`. False also if the limit is a setting, if `put` cannot wait, and if the producer
        does not run."""
        if self.config.max_record_size is not None or self._cannot_wait():
            return False
        with LOCK:
            return self._mailbox.state == "running" and run_sync(self._size_read())

    def _may_wait(self, method: str) -> None:
        may_wait(method)
        super()._may_wait(method)

    def wait_ready(self, timeout: float | None = 10.0) -> bool:
        """Wait until there is a shard map, without which nothing is aggregated. Calling it is optional.
        Returns whether there is one within ``timeout`` seconds. Raises NotStarted, and ProducerClosed, also
        where it is closed meanwhile."""
        check_arguments("Producer.wait_ready", {"timeout": timeout})
        self._may_wait("wait_ready")
        with LOCK:
            self._mailbox.check_open()
            return run_sync(self._mailbox.wait_until(self._has_map, _within_limit(timeout)))

    def flush(self, timeout: float | None = None) -> None:
        """Send everything at once and wait until all earlier puts have ended, delivered or failed: at most
        ``timeout`` seconds, an hour if that is None: records may have a longer time to live. Which of them
        were delivered their futures say.
        """
        check_arguments("Producer.flush", {"timeout": timeout})
        self._may_wait("flush")
        with LOCK:
            run_sync(self._wait_flush(_within_limit(timeout)))

    def close(self, timeout: float | None = None) -> bool:
        """Accept nothing more, deliver what is outstanding, end the threads unless other producers use them.

        After ``timeout`` seconds (exit_timeout unless given) the user records without a result fail as
        "closed", and on_undelivered has as long as when a process ends. With neither, close returns when
        each user record has its result (in an outage after record_ttl_ms and 3 seconds) and on_undelivered
        has returned. Returns whether every user record ever accepted was delivered.
        """
        check_arguments("Producer.close", {"timeout": timeout})
        timeout = self._exit_timeout if timeout is None else timeout
        self._may_wait("close")
        driver, mailbox = self._driver, self._mailbox
        with LOCK:
            mailbox.close(mailbox.give_up_at if timeout is None else self._clock() + timeout)
            mailbox.wake()
            # (The thread is not joined: a handler that has interrupted a join would wait for itself.)
            most = _within_limit(None if timeout is None else timeout + driver.exit_timeout)
            ended = mailbox.news.wait_for(lambda: mailbox.ended, most)
        log_thread.wait()
        # PRD-60: "Closing MUST report that everything was delivered only if every accepted user record was."
        return ended and not driver.failed

    def start(self) -> Producer:
        """Take user records from now on, until `close`. Returns the producer; one that has started stays as
        it is. Raises NotStarted in a task of PySpark and in AWS Lambda, where nothing would close it, and
        ProducerClosed."""
        if self._mailbox.state != "running":
            check_start()
            self._start()
        return self

    def __enter__(self) -> Producer:
        """Start. Raises ProducerClosed."""
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        driver, mailbox = self._driver, self._mailbox
        if mailbox.state == "new":
            check_threads()
            if self._forked and self._client is not None:  # the client's connections are the parent's
                raise ProducerClosed(code="forked")
            # Not with the lock held: it takes long, and botocore may log.
            client = self._client or self._threads.client(self.config, self._client_settings)
            with LOCK:
                if mailbox.state == "new":
                    close_at_exit()
                    driver.client = client
                    self._finalizer = weakref.finalize(self, _let_go, driver)
                    self._finalizer.atexit = False
                    self._threads.drive(driver)
                    mailbox.becomes("start")
        mailbox.check_open()

    def _after_fork_in_child(self) -> None:
        """Empty the producer in a forked child: the parent delivers the earlier puts."""
        if self._finalizer is not None:
            self._finalizer.detach()
        parents, self._forked = self._mailbox, True
        self._begin()
        self._mailbox.state, self._mailbox.cause = parents.state, parents.cause
        self._mailbox.becomes("fork")
        self._mailbox.forked = parents.forked or parents.state == "running"


def _within_limit(timeout: float | None) -> float | None:
    """``timeout``, but not longer than a thread can wait."""
    return None if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX)


def _let_go(driver: Driver) -> None:
    """Have outstanding user records delivered after the Producer object was garbage-collected. Finalizers
    call it, so it takes no lock."""
    driver.mailbox.let_go = driver.mailbox.unread = True
    driver.mailbox.wake()
