"""The producer with threads and boto3.

    put (any thread) ──▶ mailbox ──▶ one thread drives the core ──▶ calls ──▶ workers (boto3)
      future ◀───────────────────────── results ◀───────────────── answers ◀──────┘

Only the driving thread uses the core. Signals go to the main thread, so Ctrl-C can interrupt a caller but not
the core. Forks and the end of the process: `process`.
"""

from __future__ import annotations

import queue
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Final

from ..aws.calls import run_sync
from ..base.arguments import check_arguments
from ..format.records import Tag
from . import ProducerClosed, RecordTooLarge
from .batch import AnyCall
from .config import import_boto3, new_client
from .driver import CROWD, CROWD_WAIT, Answer, Driver, ProducerBase
from .future import DeliveryFuture, new_future
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
Answers = queue.SimpleQueue[Answer | None]


class Threads:
    """The threads of one producer: one drives it and runs all callbacks; each call has one of its own."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._answers: Answers = queue.SimpleQueue()
        self._calls: queue.SimpleQueue[AnyCall | None] = queue.SimpleQueue()
        self._busy = 0  # calls whose responses were not taken yet
        self._workers: list[threading.Thread] = []

    def wake(self) -> None:
        """Wake the driving thread, because there is something to do. It takes no lock, because finalizers
        call it."""
        self._answers.put(None)

    def start(self) -> None:
        """Give the driver its turns from now on. Called with the lock held."""
        self._start_worker()
        name = f"kpl-codec producer {self._driver.stream.name}"
        threading.Thread(target=ends_with_a_fork(self._run), name=name, daemon=True).start()
        RUNNING.add(self._driver)

    def _run(self) -> None:
        driver = self._driver
        with LOCK:
            if driver.has_thread:  # Ctrl-C came in the start that has begun it
                return
            driver.has_thread = goes_on = driving.here = True
        while goes_on:
            with LOCK:
                wait = driver.wait()
                driver.mailbox.awake = wait <= 0
            self._take_answers(min(wait, _LONGEST_SLEEP))
            with LOCK:
                driver.mailbox.awake = True
                is_ready = driver.wait() <= 0
            if is_ready:
                goes_on = driver.turn(self._give)
            self._take_answers(driver.rest() if is_ready and goes_on else 0.0)
        for _ in self._workers:
            self._calls.put(None)
        with LOCK:
            RUNNING.discard(driver)
            driver.has_thread = False
            driver.finish()

    def _take_answers(self, seconds: float) -> None:
        try:
            answer = self._answers.get(timeout=seconds) if seconds else self._answers.get_nowait()
            while True:
                if answer is not None:
                    self._busy -= 1
                    self._driver.answers.append(answer)
                answer = self._answers.get_nowait()
        except queue.Empty:
            pass

    def _give(self, call: AnyCall) -> None:
        self._workers = [thread for thread in self._workers if thread.is_alive()]
        if len(self._workers) <= min(self._busy, _MOST_THREADS):
            self._start_worker()
        self._busy += 1
        self._calls.put(call)

    def _start_worker(self) -> None:
        thread = threading.Thread(target=ends_with_a_fork(self._work), name="kpl-codec calls", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no new threads while the interpreter exits; the existing ones suffice
            if not self._workers:
                raise
        else:
            self._workers.append(thread)

    def _work(self) -> None:
        driving.here = True  # a log handler that botocore calls must not wait for other calls
        while (call := self._calls.get()) is not None:
            self._make(call)

    def _make(self, call: AnyCall) -> None:
        driver = self._driver
        try:
            if not driver.core.is_under_way(call):  # given up while it waited for a thread
                raise TimeoutError
            answer: Answer = partial(driver.core.receive, call, driver.send(call))
        except BaseException as error:  # noqa: BLE001 - botocore may raise anything here
            answer = driver.call_failed(call, error)
        self._answers.put(answer)


class Producer(ProducerBase):
    """A producer for one stream, its name or its ARN. All methods are thread-safe.

    ``options``: see `kpl_codec.producer.config.ProducerOptions`. ``exit_timeout``: seconds that whatever ends
    the producer waits for deliveries (a ``with`` block, `close`, a process that ends), and a process as long
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
        exit_timeout: float | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__(stream, **options)
        check_arguments("Producer", {"exit_timeout": exit_timeout})
        if self._client is None:  # not in `start`: the main thread may have ended
            import_boto3()
        self._exit_timeout = exit_timeout
        self._forked = False
        self._begin()
        FORKED.add(self)

    def _begin(self) -> None:
        """Make the state that a forked child makes anew. Threads start when they are needed."""
        driver = Driver(self._stream, self.config, self._options)
        self._threads = Threads(driver)
        self._drive(driver, self._threads.wake)
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

        ``partition_key`` None: no key, the partitioner chooses a shard. When the producer is full put waits
        or raises ProducerFull, as ``when_full`` says. Raises EncodeError for a user record that cannot be
        written, NotStarted, ProducerClosed. A put that Ctrl-C interrupts may have been accepted or not. A put
        of a user record of more than 1 MiB waits, at most 10 s, until the stream's limit has been read.
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
                if self._in_callback:
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
        """Raise what `put` raises for a user record that cannot be written, EncodeError, and put nothing. It
        waits as `put` does for the stream's limit."""
        try:
            self._core.prepare(partition_key, data, explicit_hash_key, tags)
        except RecordTooLarge:
            with LOCK:
                run_sync(self._learn_size())
            self._core.prepare(partition_key, data, explicit_hash_key, tags)

    @property
    def _in_callback(self) -> bool:
        return driving.here or super()._in_callback

    def wait_ready(self, timeout: float | None = 10.0) -> bool:
        """Wait until there is a shard map, without which nothing is aggregated. Calling it is optional.
        Returns whether there is one within ``timeout`` seconds. Raises NotStarted, and ProducerClosed, also
        where it is closed meanwhile."""
        check_arguments("Producer.wait_ready", {"timeout": timeout})
        self._may_wait("wait_ready")
        with LOCK:
            self._mailbox.check_open()
            return run_sync(self._mailbox.wait_until(self._has_map, timeout))

    def flush(self, timeout: float | None = None) -> None:
        """Send everything at once and wait until all earlier puts have ended, delivered or failed: at most
        ``timeout`` seconds, an hour if that is None: records may have a longer time to live. Which of them
        were delivered their futures say.
        """
        check_arguments("Producer.flush", {"timeout": timeout})
        self._may_wait("flush")
        with LOCK:
            run_sync(self._wait_flush(timeout))

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
            most = None if timeout is None else timeout + driver.exit_timeout
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
            client = self._client or new_client(self.config, _MOST_THREADS, self._client_settings)
            with LOCK:
                if mailbox.state == "new":
                    close_at_exit()
                    driver.client = client
                    self._finalizer = weakref.finalize(self, _let_go, driver)
                    self._finalizer.atexit = False
                    self._threads.start()
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


def _let_go(driver: Driver) -> None:
    """Have outstanding user records delivered after the Producer object was garbage-collected. Finalizers
    call it, so it takes no lock."""
    driver.mailbox.let_go = driver.mailbox.unread = True
    driver.mailbox.wake()
