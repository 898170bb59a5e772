"""The threads of thread producers: one that drives them, and workers that make their calls.

driving thread ──▶ Workers.give ──▶ a worker makes the call ──▶ answers ──▶ driving thread

And what happens to thread producers when the process forks or ends:

ends as                                           | what closes the producers
--------------------------------------------------+-----------------------------------------------------
a program, or a child of os.fork that returns     | an exit handler
a child of multiprocessing or billiard, its pools | a finalizer of that module: of its children some run
                                                  | no exit handlers
a worker of Celery's pool                         | its signal worker_process_shutdown
os._exit, kill -9, Pool.terminate, a signal       | nothing: accepted user records are lost
without a handler (SIGTERM), a job of RQ          |
"""

from __future__ import annotations

import atexit
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from . import ProducerConfig, lock, producer_logging
from .delivery import undelivered
from .driver import CallUnderWay, Driver, call, what_failed
from .lock import LOCK, driving
from .producer_base import client_config, import_boto3
from .producer_logging import in_background, log_failure, log_user_records, logger, wait_for_log

#: Seconds that the driving thread sleeps at most: a wait may not be longer than threading.TIMEOUT_MAX.
_LONGEST_SLEEP: Final = 3600.0
#: Those whose threads run: it keeps them until they end. With the lock held.
RUNNING: Final[set[ProducerThreads]] = set()
#: None only wakes the driving thread. A finalizer may put into it: it has no lock.
Answers = queue.SimpleQueue[tuple[Driver, CallUnderWay, Callable[[float], None]] | None]
#: Threads that make calls, at most, calls included that do not return.
_MOST_THREADS: Final = 1000


class Workers:
    """As many threads as calls are under way. Only the driving thread calls it."""

    def __init__(self) -> None:
        self.busy = 0  # calls whose answers were not taken yet
        self.answers: Answers = queue.SimpleQueue()
        self._calls: queue.SimpleQueue[tuple[Driver, CallUnderWay] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def give(self, driver: Driver, call: CallUnderWay) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) <= min(self.busy, _MOST_THREADS):
            self.start_one()
        self.busy += 1
        self._calls.put((driver, call))

    def start_one(self) -> None:
        thread = threading.Thread(target=self._work, name="kpl-codec PutRecords", daemon=True)
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
            item = None  # an idle thread keeps no producer alive

    def _make(self, driver: Driver, under_way: CallUnderWay) -> None:
        request = under_way.request
        try:
            if under_way not in driver.calls:  # it had to wait for a thread for so long
                raise TimeoutError
            answer = call(driver.client, request, driver.stream)
        except BaseException as error:  # noqa: BLE001 - botocore raises anything for an answer that is no JSON
            failure, answered = what_failed(error, request)
            fail = partial(driver.core.fail, request, failure, answered=answered)
            self.answers.put((driver, under_way, fail))
            driver.log(partial(log_failure, request, failure, answered))
        else:
            self.answers.put((driver, under_way, partial(driver.core.receive, request, answer)))


class ProducerThreads:
    """Threads that several producers share, one producer for each stream.

        threads = ProducerThreads()
        with Producer("orders", threads=threads) as orders, Producer("clicks", threads=threads) as clicks:
            ...

    They start with the first put, and end when the last of the producers is closed. One thread drives all
    producers and runs all callbacks; calls are made by as many threads as calls are under way, so a stream
    that hangs takes nothing from the others. Producers with equal settings share a boto3 client. An error in
    one producer breaks that one only. The methods are for the producers.
    """

    def __init__(self) -> None:
        self._clients: list[tuple[Any, Any]] = []
        self.begin()

    def begin(self) -> None:
        """Set everything that a forked child needs anew."""
        self.drivers: list[Driver] = []
        self.thread: threading.Thread | None = None
        self._answers: Answers = queue.SimpleQueue()

    def client(self, config: ProducerConfig, settings: Mapping[str, Any]) -> Any:
        """The boto3 client for these settings. The first takes long: not to be called with the lock held."""
        key = os.getpid(), config, settings  # (a forked child must not use the parent's connections)
        for client_key, client in self._clients:
            if client_key == key:
                return client
        from botocore.config import Config

        # `boto3.client` shares a session that is not thread-safe. The client keeps a connection for each call
        # that was under way at a time, and several producers may share it.
        merged = Config(**client_config(config, _MOST_THREADS, settings.get("config")))
        client = import_boto3().session.Session().client("kinesis", **{**settings, "config": merged})
        self._clients.append((key, client))
        return client

    def wake(self) -> None:
        """There is something for a driver to do. Called with the lock held."""
        self._answers.put(None)

    def let_go(self, driver: Driver) -> None:
        """Its producer was dropped without `close`: deliver what is outstanding, then end. May be called
        anywhere, as finalizers are."""
        driver.mailbox.closing = driver.mailbox.unread = True
        self._answers.put(None)

    def drive(self, driver: Driver, name: str) -> None:
        """Give ``driver`` its turns from now on. Called with the lock held."""
        if self.thread is None:
            workers = Workers()
            workers.start_one()
            threading.Thread(target=self._run, args=(workers,), name=name, daemon=True).start()
        RUNNING.add(self)
        driver.wake = self.wake
        self.drivers.append(driver)
        self.wake()

    def _run(self, workers: Workers) -> None:
        driving.here = True
        with LOCK:
            # Two producers began at once (and may have ended), or Ctrl-C came while one did.
            if self.thread is not None or not self.drivers:
                workers.stop()
                return
            self.thread = threading.current_thread()
            # Of these workers only: earlier ones may still answer calls that were given up.
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
        """Sleep until there is something, and take all answers."""
        try:
            item = self._answers.get(timeout=seconds) if seconds else self._answers.get_nowait()
            while True:
                if item is not None:
                    driver, call, answer = item
                    workers.busy -= 1
                    driver.answers.append((call, answer))
                item = self._answers.get_nowait()
        except queue.Empty:
            pass

    def _end(self, driver: Driver) -> bool:
        """A driver has had its last turn. Whether it was the last of all: then the threads end."""
        with LOCK:
            self.drivers.remove(driver)
            driver.finish()
            if self.drivers:
                return False
            self.thread = None
            RUNNING.discard(self)
            return True


#: They are reset in a forked child.
PRODUCERS: weakref.WeakSet[Any] = weakref.WeakSet()
_registered = False  # in this process


def close_at_exit() -> None:
    """A producer of this process starts: see that all are closed at its end. Called with the lock held."""
    global _registered
    if _registered:
        return
    _registered = True
    # PRD-61: "A process that ends MUST close the producers that nobody has closed, and a producer that is
    # dropped MUST deliver what it has accepted: in children of multiprocessing, too."
    for name in ("multiprocessing", "billiard"):
        process, util = (sys.modules.get(f"{name}.{part}") for part in ("process", "util"))
        if process is not None and util is not None and process.current_process()._parent_pid is not None:
            util.Finalize(None, _close_all, exitpriority=100)
    if (signals := sys.modules.get("celery.signals")) is not None:
        signals.worker_process_shutdown.connect(_close_all, weak=False, dispatch_uid=__name__)
    if "rq" in sys.modules and "RQ_JOB_ID" in os.environ:
        text = "RQ ends this process without exit handlers: call flush() or close() before the job returns"
        in_background(partial(logger.warning, text))


def _close_all(**_of_the_signal: object) -> None:
    begun = time.monotonic()
    with LOCK:
        drivers = [driver for threads in RUNNING for driver in threads.drivers]
        for driver in drivers:
            driver.mailbox.close(driver.clock() + driver.exit_timeout)
            driver.wake()
        for driver in drivers:
            _wait_for_end(driver, begun)
    wait_for_log()


def _wait_for_end(driver: Driver, begun: float) -> None:
    """Wait for a driver that closes since ``begun``: exit_timeout seconds for deliveries, and as long again
    for on_undelivered of what was given up; but not for a call of it that takes all that time."""
    # PRD-73: "A process that ends MUST NOT wait longer than exit_timeout for one call of on_undelivered, nor
    # longer than twice that for anything; what has no result then MUST be logged."
    mailbox = driver.mailbox
    for until in (begun + driver.exit_timeout, begun + 2 * driver.exit_timeout):
        called_at = driver.hook.called_at
        mailbox.news.wait_for(lambda: mailbox.finished, max(0.0, until - time.monotonic()))
        if mailbox.finished:
            return
        if called_at is not None and called_at == driver.hook.called_at:
            break
    text = "%d user records have no result: the process ends; on_undelivered or a callback has not returned"
    in_background(partial(log_user_records, mailbox.records, text))


def _after_fork_in_child() -> None:
    """Nothing of the parent's threads is believed: neither locks, nor what they were about to do."""
    global _registered
    _registered = False
    lock.after_fork()
    producer_logging.after_fork()
    for threads in RUNNING:
        for driver in threads.drivers:
            for pending in [*driver.unresolved, *driver.mailbox.inbox]:
                pending.token.orphan(undelivered(driver.core.config, pending, "closed", "forked").result)
        threads.begin()
    RUNNING.clear()
    for producer in list(PRODUCERS):
        producer._after_fork_in_child()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
