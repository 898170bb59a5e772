"""What all producers of a process share: one lock, the log and its thread, forks, and the end.

Who closes a producer: its owner, by the end of a ``with`` block or by `close`. Where a process ends before,
its exit handlers close what has started in it, in children of multiprocessing, too. Nothing is delivered by
a process that ends without them: by os._exit, by a signal without a handler, by kill -9.

The lock is re-entrant: a signal handler that interrupts a put may put. It is never held while anything of a
caller is called. A fork waits for it, so that no child finds it taken by a thread that it does not have.

Specification: spec/05-producer.md, PRD-39, PRD-61, PRD-73 and PRD-78.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ..rendering.labels import plural
from .mailbox import NotStarted
from .results import DeliveryError

# PRD-34: "Log lines MUST NOT hold data, partition keys or explicit hash keys."
logger: Final = logging.getLogger("kpl_codec.producer")
#: The one lock of all producers of the process.
LOCK: Final[Any] = threading.RLock()
#: Seconds after which a waiting caller looks for himself whether what he waits for has come.
LOOK_AGAIN: Final = 1.0
#: The most seconds that a caller who closes a producer waits for its log.
LOG_WAIT: Final = 1.0
#: Gives the number of this process; a forked child has another one.
process_id: Final = os.getpid
#: The most log calls that wait while a log handler does not return.
_MOST_LOG_CALLS: Final = 10_000
#: Drivers whose threads run. Used with the lock held.
RUNNING: Final[set[Any]] = set()
_GREENLETS: Final[weakref.WeakSet[Any]] = weakref.WeakSet()  # of our threads
_forks = 0  # between this process and the first one
_registered = False  # whether this process closes all producers at its end


class _Driving(threading.local):
    """``here``: whether this thread drives producers and runs the callbacks of their futures, or makes their
    calls to Kinesis. ``log``: of the producer that it drives."""

    here = False
    log: Any = logger


driving: Final = _Driving()


class Condition(threading.Condition):
    """A condition of the one lock. A signal handler that waits where it has interrupted a caller who is about
    to wait takes the notification that this one needs: so all look again now and then."""

    def __init__(self) -> None:
        super().__init__(LOCK)

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(LOOK_AGAIN if timeout is None else min(LOOK_AGAIN, timeout))

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        with LOCK:
            return super().wait_for(predicate, timeout)


def check_start() -> None:
    """Raises NotStarted where a producer that has no ``with`` block would lose what it holds."""
    # PRD-78: "Where a process ends or stands still without a sign, and that can be known, start() MUST be
    # refused with what to do instead."
    task = getattr(sys.modules.get("pyspark.taskcontext"), "TaskContext", None)
    if task is not None and task.get() is not None:
        raise NotStarted(code="spark-task")
    # (With a number of concurrent invocations a process of Lambda runs between them, too.)
    names = {"AWS_LAMBDA_RUNTIME_API", "AWS_LAMBDA_FUNCTION_NAME"} & os.environ.keys()
    if names and "AWS_LAMBDA_MAX_CONCURRENCY" not in os.environ:
        raise NotStarted(code="lambda")


def check_threads() -> None:
    """Raises NotStarted if a library has replaced threads by greenlets after the import of this module."""
    if type(threading.RLock()) is not type(LOCK) or threading.local not in _Driving.__mro__:
        raise NotStarted(code="late-patch")


def call(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function in one of our threads. In a child that is forked in it, the thread goes on no more: it
    is the parent's, and the module threading does not know it."""
    forks = _forks
    try:
        return function(*arguments)
    finally:
        if forks != _forks:
            threading.Event().wait()


def start_thread(name: str, target: Callable[[], object]) -> threading.Thread:
    """Start ``target`` in a new thread. A fork copies greenlets into the child: there it goes on no more.
    Raises RuntimeError if no thread can start, as when the interpreter ends."""

    def run() -> None:
        monkey = sys.modules.get("gevent.monkey")
        if monkey is not None and monkey.is_module_patched("threading"):
            _GREENLETS.add(sys.modules["gevent"].getcurrent())
        call(target)

    thread = threading.Thread(target=run, name=f"kpl-codec {name}", daemon=True)
    thread.start()
    return thread


class StreamLog(logging.LoggerAdapter):  # type: ignore[type-arg]  # (Python 3.10 gives it none)
    """The log of one producer, written in the log thread. Each line begins with the stream, which is an
    attribute of the log record, too."""

    def __init__(self, stream: str) -> None:
        super().__init__(logger, {"stream": stream})

    def log(self, *arguments: Any, **named: Any) -> None:
        """As `logging.LoggerAdapter.log`."""
        log_thread.add(partial(super().log, *arguments, **named))

    def process(self, msg: object, kwargs: Any) -> tuple[object, Any]:
        """As `logging.LoggerAdapter.process`."""
        facts = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return f"stream {facts['stream']}: {msg}", {**kwargs, "extra": facts}

    def user_records(self, count: int, text: str, *facts: object, **extra: object) -> None:
        """One line about ``count`` user records, unless that is 0. ``count`` fills the first %s of
        ``text``."""
        if count:
            self.error(text, plural(count, "user record"), *facts, extra={"user_records": count, **extra})

    def undelivered(self, errors: Sequence[DeliveryError]) -> None:
        """A line for each outcome and code; those that may be stored apart, as a ledger has them, too."""
        kinds = Counter((error.outcome, error.reason, error.may_be_stored) for error in errors)
        words = {error.reason: error.explanation for error in errors}
        for (outcome, code, stored), count in kinds.items():
            text = "%s not delivered: %s (%s)" + stored * "; may be on the stream all the same"
            facts = {"outcome": outcome, "error_code": code, "may_be_stored": stored}
            self.user_records(count, text, outcome, words[code], **facts)


class _LogThread:
    """Makes log calls in a thread of its own. A driver that logged itself could wait for a log handler whose
    caller waits in `put`."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin without calls and thread. Also in a forked child: its parent makes the calls of before the
        fork."""
        self._calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._has_thread = False

    def add(self, call: Callable[[], object]) -> None:
        """Have ``call`` made in the log thread."""
        if self._calls.qsize() < _MOST_LOG_CALLS:
            self._calls.put(call)
        try:
            with LOCK:
                if not self._has_thread:
                    start_thread("log", self._run)
                    self._has_thread = True
        except RuntimeError:  # no new threads while the interpreter exits
            with suppress(queue.Empty):  # (another thread may have come here)
                while True:
                    self._make(self._calls.get_nowait())

    def _run(self) -> None:
        while True:
            self._make(self._calls.get())

    def _make(self, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException:  # noqa: BLE001 - a filter or handler of the caller's
            sys.excepthook(*sys.exc_info())

    def made(self) -> threading.Event:
        """It is set when the log calls so far were made. (A log handler may never return.)"""
        made = threading.Event()
        if self._has_thread:
            self.add(made.set)
        else:
            made.set()
        return made


log_thread: Final = _LogThread()


def close_at_exit() -> None:
    """Have all producers closed when this process ends. Called with the lock held when a producer starts."""
    global _registered
    if _registered:
        return
    _registered = True
    # PRD-61: "A process that ends by its exit handlers MUST close the producers that have started in it, in
    # children of multiprocessing, too; and a producer that is dropped MUST deliver what it has accepted."
    atexit.register(_close_all)
    if (util := sys.modules.get("multiprocessing.util")) is not None:  # some of its children run no others
        util.Finalize(None, _close_all, exitpriority=100)


def _close_all() -> None:
    begun = time.monotonic()
    with LOCK:
        drivers = list(RUNNING)
        for driver in drivers:
            driver.mailbox.close(driver.clock() + driver.exit_timeout)
        for driver in drivers:
            _wait_for_end(driver, begun)
    log_thread.made().wait(LOG_WAIT)


def _wait_for_end(driver: Any, begun: float) -> None:
    """Wait for a driver that has begun to close at ``begun``: exit_timeout seconds for deliveries and as long
    for on_undelivered, but for no call of it longer than exit_timeout."""
    # PRD-73: "A process that ends MUST NOT wait longer than exit_timeout for one call of on_undelivered, nor
    # longer than twice that for anything; what has no result then MUST be logged."
    mailbox, longest = driver.mailbox, driver.exit_timeout
    while not mailbox.ended:
        now, called_at = time.monotonic(), driver.callback.called_at
        until = begun + 2 * longest if called_at is None else max(begun, called_at) + longest
        left = min(until, begun + 2 * longest) - now
        if left <= 0:
            text = "%s without a result: the process ends; on_undelivered or a callback has not returned"
            driver.stream_log.user_records(mailbox.records, text)
            return
        mailbox.news.wait_for(lambda: mailbox.ended, min(left, LOOK_AGAIN))


def _after_fork_in_child() -> None:
    """Begin anew: the parent's threads do not exist here, and the parent delivers what was put in it."""
    global _registered, _forks
    try:
        _registered = driving.here = False
        _forks += 1
        for greenlet in [one for one in _GREENLETS if one is not sys.modules["gevent"].getcurrent()]:
            sys.modules["gevent"].kill(greenlet)  # before it can read an answer of the parent's
        _GREENLETS.clear()
        log_thread.begin()
        for driver in RUNNING:
            driver.after_fork_in_child()
        RUNNING.clear()
    finally:
        LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=_after_fork_in_child
    )
