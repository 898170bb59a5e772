"""The future that `Producer.put` returns; and what all thread producers of a process share: one lock, the
rules where a caller must not wait, and the handling of forks and of the end of the process.

A signal handler or a finalizer may interrupt its thread where that has the lock. The lock is never held while
anything else is called or waited for, so no other code meets it again. But a caller may hold locks of others
that the producers' threads need: a log handler's, while botocore logs. So in a log call `put` does not wait,
all other waits are short, and the producers' threads leave their own log calls to another thread.

The process ends as                               | what closes the producers
--------------------------------------------------+-----------------------------------------------------
a program, or a child of os.fork that returns     | an exit handler
a child of multiprocessing or billiard, pools of  | a finalizer of multiprocessing: of its children some run
the former                                        | no exit handlers
a worker of Celery's pool                         | its signal worker_process_shutdown
a Python worker of PySpark                        | `hosts`: each of its tasks ends by a flush, also one that
                                                  | fails or that Spark ends early
another host that ends it without exit handlers   | nothing, but the first put logs what to do (`hosts`)
os._exit, another program by os.exec              | nothing, but the log says how many user records are lost
kill -9, a signal without a handler (SIGTERM)     | nothing: accepted user records are lost
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NoReturn

from ..arguments import check_arguments
from ..compiled import prefer_compiled
from ..errors import KplError, place_of
from . import Delivery, Pending, hosts
from .delivery import (
    LOCK,
    StreamLog,
    log_thread,
    logger,
    run_in_thread,
    undelivered,
)
from .private_names import (
    WAITS,
    begin_anew,
    caller,
    future_with,
    is_owned,
    locks_of_logging,
    take_waiters,
    tell_waiters,
)

#: Seconds that `flush`, `close` and `wait_ready` wait at most inside a log call.
LOG_WAIT: Final = 5.0


class WouldDeadlock(KplError, RuntimeError):
    """``method`` was called where it could never return. Nothing was done. ``instead``: what to do.

    ``code`` is "in-signal-handler" for a signal handler or finalizer that interrupted its own thread in a
    producer or in a wait for its futures, "in-callback" for a callback of a future or of on_undelivered,
    "in-log" where a log call is under way in this thread: the producer's threads may need the same handler.
    """

    code: str
    requirement = "PRD-40"
    method: str
    instead: str
    text = "{method} would wait for itself ({code}): {instead}"
    todo = (
        "Call the method from another thread, or when the callback, signal handler or log call under way has "
        "returned. In a callback, use add_done_callback instead of waiting."
    )
    codes = ("in-signal-handler", "in-callback", "in-log")


class _Driving(threading.local):
    """``here``: whether this thread drives producers and runs the callbacks of their futures, or makes their
    calls to Kinesis."""

    here = False


driving: Final = _Driving()
#: Drivers whose threads run. Used with the lock held.
RUNNING: Final[set[Any]] = set()
#: Producers that an event loop drives, which have started in this process.
IN_LOOPS: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
#: Producers and other objects whose ``_after_fork_in_child`` is called in a forked child.
FORKED: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_registered = False  # whether this process closes all producers at its end
_warned = 0  # the process that was told what ends it
#: Seconds after which a flush ends, whatever the time to live and `on_undelivered`.
LONGEST_FLUSH: Final = 3600.0


def locked(method: str) -> threading.RLock:
    """The lock, to be taken for ``method``. Raises WouldDeadlock if this thread has it."""
    # PRD-40: "A signal handler MAY call every method of the thread producer and wait for its futures; where
    # that could never return it MUST raise an error that says what to do instead."
    if is_owned(LOCK):
        raise _interrupted(method)
    return LOCK  # type: ignore[no-any-return]


def _interrupted(method: str) -> WouldDeadlock:
    instead = "a signal handler or finalizer has interrupted a producer; set a flag there, and act later"
    return WouldDeadlock(code="in-signal-handler", method=method, instead=instead)


def in_log() -> bool:
    """Whether this thread holds a lock of `logging`: that of any handler, or of the module."""
    return any(map(is_owned, locks_of_logging()))


def may_wait(method: str) -> None:
    """Raises WouldDeadlock in a callback: this thread must not wait for itself."""
    if driving.here:
        instead = "a callback must not wait; let another thread do it"
        raise WouldDeadlock(code="in-callback", method=method, instead=instead)


def _may_wait_for_result(method: str, timeout: float | None = None) -> None:
    """Raises WouldDeadlock in a callback; and in a log call, unless ``timeout`` is short."""
    may_wait(method)
    if (timeout is None or timeout > LOG_WAIT) and in_log():
        instead = "a log call is under way in this thread, and the producer may have to log, too; wait later"
        raise WouldDeadlock(code="in-log", method=method, instead=instead)


def within_limit(timeout: float | None) -> float | None:
    """The seconds to wait for a producer's thread; None: as long as it takes."""
    # PRD-70: "In a log call put MUST NOT wait, and flush, close and wait_ready MUST return within seconds."
    most = LOG_WAIT if in_log() else threading.TIMEOUT_MAX
    if timeout is None:
        return None if most > LOG_WAIT else most
    return min(max(0.0, timeout), most)


class DeliveryFuture(Future[Delivery]):
    """A `concurrent.futures.Future` of a Delivery. It is running from the first, and cannot be cancelled: the
    record may be sent already.

    An exception of a callback in the producer's thread is only logged, also SystemExit and KeyboardInterrupt.
    Waiting for a future without a result raises WouldDeadlock where the wait could never end: in a callback,
    in a log call, and in a signal handler that interrupted its own thread in a producer; `wait` and
    `as_completed` of concurrent.futures also in a signal handler that interrupted one of the two.

    A Future makes a condition and two lists when it is made: a third of what a put costs. Here `__getattr__`
    makes them on first use, and all conditions share the producers' lock. The garbage collector need not
    visit a future that refers to nothing but its Delivery, which does not refer back.
    """

    _outcome: Delivery | BaseException | None = None
    _whole = False  # whether it has all that a Future has
    _callbacks: list[Callable[[Future[Delivery]], object]]

    def __init__(self) -> None:
        """Nothing; see the class."""

    def __reduce__(self) -> NoReturn:
        # A copy in another process would never get a result.
        raise TypeError("a future of a producer belongs to one process: give the other one its result()")

    def __setattr__(self, name: str, value: object) -> None:
        _track(self)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """An attribute that only a whole future has."""
        self._make_whole()
        return object.__getattribute__(self, name)

    def _make_whole(self) -> None:
        _track(self)
        with LOCK:
            if not self._whole:
                whole = future_with(LOCK, _Waiters() if self._outcome is None else [])
                whole.set_running_or_notify_cancel()
                _give(whole, self._outcome)
                # At once: until then all others come to this method.
                vars(self).update(vars(whole), _callbacks=[], _whole=True)

    def _finish(self) -> list[Any]:
        """Let those go on that wait for a whole future, now that it has its outcome. Returns what `wait` and
        `as_completed` have put into it, which were not told. Called with the lock held."""
        waiters = take_waiters(self)
        _give(super(), self._outcome)
        self._waiters += waiters
        return waiters

    def done(self) -> bool:
        return self._outcome is not None

    def result(self, timeout: float | None = None) -> Delivery:
        error = self.exception(timeout)
        if error is None:
            return self._outcome  # type: ignore[return-value]
        try:
            raise error
        finally:
            del self, error  # else the traceback keeps them alive

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._outcome is None:
            locked("result")
            check_arguments("DeliveryFuture.result", {"timeout": timeout})
            if timeout is None or timeout > 0:
                _may_wait_for_result("result", timeout)
            super().exception(timeout)
        return self._outcome if isinstance(self._outcome, BaseException) else None

    def set_result(self, result: Delivery) -> None:
        if self.done():
            raise InvalidStateError(f"{self!r} has its result")
        end_all([SimpleNamespace(token=self, result=result)])

    def set_exception(self, exception: BaseException | None) -> None:
        self.set_result(exception)  # type: ignore[arg-type]

    def add_done_callback(self, fn: Callable[[Future[Delivery]], object]) -> None:
        check_arguments("DeliveryFuture.add_done_callback", {"fn": fn})
        if self._outcome is None:
            with locked("add_done_callback"):
                if self._outcome is None:
                    self._make_whole()
                    self._callbacks.append(fn)
                    return
        super().add_done_callback(fn)


#: A new DeliveryFuture.
new_future: Final[Callable[[], DeliveryFuture]] = partial(
    prefer_compiled("untracked", lambda kind: kind()), DeliveryFuture
)
_track: Final[Callable[[DeliveryFuture], object]] = prefer_compiled("track", lambda _: None)
_set: Final = object.__setattr__


class _Waiters(list[Any]):
    """The waiters that `wait` and `as_completed` of concurrent.futures put into a future. In a signal handler
    that has interrupted a producer, or one of these two, they would wait for a lock of their own thread."""

    def append(self, waiter: Any) -> None:
        _may_wait_for_result("wait")
        frame = caller(3)  # that of `wait`
        while frame is not None and frame.f_code is not end_all.__code__:  # (a fork in a callback)
            if frame.f_code in WAITS or frame.f_globals.get("__package__") == __package__:
                raise _interrupted("wait")
            frame = frame.f_back
        super().append(waiter)


def _give(future: Any, outcome: Delivery | BaseException | None) -> None:
    """Give a `Future` that has no waiters the outcome that one of ours has."""
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    elif outcome is not None:
        future.set_result(outcome)


def end_all(ended: Sequence[Pending | Any], log: logging.Logger | StreamLog = logger) -> None:
    """Give the futures of these user records their results, then run their callbacks."""
    whole: list[DeliveryFuture] = []
    with_waiters: list[tuple[DeliveryFuture, list[Any]]] = []
    with LOCK:
        for pending in ended:
            future: DeliveryFuture = pending.token
            if future._outcome is not None:
                continue
            result = pending.result
            if isinstance(result, BaseException):
                future._outcome = result
            else:
                _set(future, "_outcome", result)  # so that the garbage collector does not track it
            if future._whole:
                whole.append(future)
                if waiters := future._finish():
                    with_waiters.append((future, waiters))
    if with_waiters:
        # A signal handler may have interrupted `wait` where it holds locks, and wait for this thread.
        run_in_thread("waiters", partial(tell_waiters, with_waiters))
    for future in whole:
        for fn in future._callbacks:
            # PRD-38: "Whatever a callback raises MUST NOT cost another user record its result."
            try:
                fn(future)
            except BaseException as error:  # noqa: BLE001 - see above
                log_thread.add(partial(log.error, "a callback of a delivery failed: %s", place_of(error)))


def close_at_exit() -> None:
    """Have all producers closed when this process ends. Called with the lock held when a producer starts."""
    global _registered
    if _registered:
        return
    _registered = True
    atexit.register(_close_all)  # (Airflow 3 forgets in a forked child what its parent has registered)
    # PRD-61: "A process that ends MUST close the producers that nobody has closed, and a producer that is
    # dropped MUST deliver what it has accepted: in children of multiprocessing, too."
    if (util := sys.modules.get("multiprocessing.util")) is not None:  # (billiard calls its finalizers, too)
        util.Finalize(None, _close_all, exitpriority=100)
    if (signals := sys.modules.get("celery.signals")) is not None:
        signals.worker_process_shutdown.connect(_close_all, weak=False, dispatch_uid=__name__)
    prepare_for_ends()


def prepare_for_ends() -> None:
    """Have what exit handlers do not see done where tasks, and this process, end."""
    hosts.deliver_with_tasks(flush_all)
    hosts.tell_before_end(_tell_of_loss)


def warn_of_end() -> None:
    """Log, once in a process, if what is put in it is lost when it ends. Called without the lock, where no
    ``with`` block ends with deliveries."""
    global _warned
    if _warned == os.getpid():
        return
    _warned = os.getpid()
    # PRD-78: "Where a program ends the process without exit handlers, and can be known, the first put
    # outside of a with block MUST log it, with what to do."
    if (text := hosts.text_of_host()) is not None:
        call = partial(logger.warning, text)
        log_thread.add(call) if in_log() else call()  # at once: the process may end at once


def flush_all() -> None:
    """Return when each user record that was put in this process has its result."""
    from ..aws.calls import run_sync  # imported here, because it needs botocore

    with LOCK:
        for driver in list(RUNNING):
            run_sync(driver.mailbox.flush(LONGEST_FLUSH))
    for producer in list(IN_LOOPS):
        producer.flush_from_outside()


def _tell_of_loss(function: str) -> None:
    """Log how many user records have no result: ``function`` of os ends this process now."""
    # PRD-91: "Where a call of os._exit or os.exec ends the process, the log MUST say how many user records
    # have no result."
    text = f"%s without a result: {function} ends this process without exit handlers; call flush() before it"
    for driver in [*list(RUNNING), *(producer._driver for producer in list(IN_LOOPS))]:
        if count := driver.mailbox.records:  # in a thread, which a log handler that hangs may hold up
            log_thread.add(partial(driver.stream_log.user_records, count, text))
    log_thread.wait()


def _close_all(**_of_the_signal: object) -> None:
    begun = time.monotonic()
    with LOCK:
        drivers = list(RUNNING)
        for driver in drivers:
            driver.mailbox.close(driver.clock() + driver.exit_timeout)
            driver.mailbox.wake()
        for driver in drivers:
            _wait_for_end(driver, begun)
    log_thread.wait()


def _wait_for_end(driver: Any, begun: float) -> None:
    """Wait for a driver that has begun to close at ``begun``: exit_timeout seconds for deliveries and as long
    for on_undelivered, but not for one call of it that takes all that time."""
    # PRD-73: "A process that ends MUST NOT wait longer than exit_timeout for one call of on_undelivered, nor
    # longer than twice that for anything; what has no result then MUST be logged."
    mailbox, callback = driver.mailbox, driver.callback
    for until in (begun + driver.exit_timeout, begun + 2 * driver.exit_timeout):
        called_at = callback.called_at
        mailbox.news.wait_for(lambda: mailbox.ended, max(0.0, until - time.monotonic()))
        if mailbox.ended:
            return
        if called_at is not None and called_at == callback.called_at:
            break
    text = "%s without a result: the process ends; on_undelivered or a callback has not returned"
    log_thread.add(partial(driver.stream_log.user_records, mailbox.records, text))


def _after_fork_in_child() -> None:
    """Make new locks and state: in the child the parent's threads, which may have held locks, do not
    exist."""
    global _registered
    _registered = False
    if not is_owned(LOCK):  # the lock's owner is not in the child, unless it was the thread that forked
        begin_anew(LOCK)
    driving.here = False
    log_thread.begin()
    for driver in RUNNING:
        for pending in [*driver.unresolved, *driver.mailbox.inbox]:
            # PRD-39: "After a fork the child MUST NOT send the parent's user records, nor run their
            # callbacks."
            if not pending.token.done():
                config, stream = driver.core.config, driver.stream.name
                pending.token._outcome = undelivered(config, stream, pending, "closed", "forked").result
                if pending.token._whole:
                    pending.token._finish()
    RUNNING.clear()
    IN_LOOPS.clear()
    for forked in list(FORKED):
        forked._after_fork_in_child()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
