"""The future that `Producer.put` gives."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError, as_completed, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, NamedTuple

from ..producer import Delivery, DeliveryError, Outcome, Pending
from .one_lock import LOCK, interrupted, locked, may_wait, within_limit
from .producer_log import logger

_WAITS: Final = (wait.__code__, as_completed.__code__)
#: Futures that end while the lock is held once.
_AT_ONCE: Final = 1000


class DeliveryFuture(Future[Delivery]):
    """A `concurrent.futures.Future` of a Delivery. It cannot be cancelled: the record may be sent already.

    An exception of a callback in the producer's thread is only logged, also SystemExit and KeyboardInterrupt.
    Waiting raises WouldDeadlock where the wait could never end: in a callback, and in a signal handler that
    interrupted its own thread in a producer, or in `wait` or `as_completed` of concurrent.futures while it
    calls them itself.

    A Future makes a condition and two lists when it is made: a third of what a put costs. Here all futures
    share the producers' lock, and have what only waiting needs from when somebody waits.
    """

    _outcome: Delivery | BaseException | None = None
    _expected = False  # somebody waits, or has added a callback: what follows is there
    _callbacks: list[Callable[[Future[Delivery]], object]]
    _ended: threading.Condition
    #: What `wait` and `as_completed` need, and whether they may see the end.
    _waited: threading.Condition | None
    _waiters: list[Any]
    _told: bool

    def __init__(self) -> None:
        """Nothing; see the class."""

    def _expect(self) -> None:
        """Called with the lock held."""
        if not self._expected:
            self._callbacks = []
            self._ended = threading.Condition(LOCK)
            self._waited = None
            self._waiters = []
            self._told = False
            self._expected = True

    @property
    def _state(self) -> str:  # type: ignore[override]
        """For `wait` and `as_completed`, which have asked for the condition before."""
        return "FINISHED" if self._told else "PENDING"

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return self._outcome if isinstance(self._outcome, BaseException) else None

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return False

    def done(self) -> bool:
        return self._outcome is not None

    def __repr__(self) -> str:
        return f"<DeliveryFuture {'ended' if self.done() else 'pending'}>"

    def result(self, timeout: float | None = None) -> Delivery:
        outcome = self._outcome or self._wait("result", timeout)
        if not isinstance(outcome, BaseException):
            return outcome
        try:
            raise outcome
        finally:
            del self, outcome  # else the traceback keeps them alive

    def exception(self, timeout: float | None = None) -> BaseException | None:
        outcome = self._outcome or self._wait("exception", timeout)
        return outcome if isinstance(outcome, BaseException) else None

    def _wait(self, method: str, timeout: float | None) -> Delivery | BaseException:
        if timeout is None or timeout > 0:
            may_wait(method)
            with locked(method):
                self._expect()
                self._ended.wait_for(self.done, within_limit(timeout))
        if self._outcome is None:
            raise FutureTimeoutError
        return self._outcome

    def add_done_callback(self, fn: Callable[[Future[Delivery]], object]) -> None:
        with locked("add_done_callback"):
            if not self.done():
                self._expect()
                self._callbacks.append(fn)
                return
        self._call_back([fn])

    def _call_back(self, callbacks: Iterable[Callable[[Future[Delivery]], object]]) -> None:
        for fn in callbacks:
            # PRD-38: "Whatever a callback raises MUST NOT cost another user record its result."
            try:
                fn(self)
            except BaseException as error:
                in_main = threading.current_thread() is threading.main_thread()
                if in_main and not isinstance(error, Exception):
                    raise  # added after the record had ended: it runs in its caller
                logger.exception("a callback of a delivery failed")

    def set_result(self, result: Delivery) -> None:
        self._set(result)

    def set_exception(self, exception: BaseException | None) -> None:
        assert exception is not None
        self._set(exception)

    def _set(self, outcome: Delivery | BaseException) -> None:
        if self.done():
            raise InvalidStateError(f"{self!r}")
        _end([(_Token(self), outcome)])

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """For `wait` and `as_completed`. They hold it, and locks of their own, without the producers' lock;
        so the thread that drives the producer does not wait for it (see `_tell_all`).

        It is refused for a future that has ended, too: `wait` takes the conditions of its futures in turn,
        and would keep those that it has if a later one were refused."""
        may_wait("wait")
        if _nested_waits():
            raise interrupted("wait")
        with locked("wait"):
            self._expect()
            if self._waited is None:
                self._waited, self._told = threading.Condition(), self.done()
            return self._waited

    def _tell(self) -> None:
        """Tell `wait` and `as_completed`. They may see the end only while they do not hold the condition."""
        assert self._waited is not None
        with self._waited:
            self._told = True
            for waiter in self._waiters:
                if self._exception is None:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)

    def _get_snapshot(self) -> tuple[bool, bool, Delivery | None, BaseException | None]:
        """What asyncio asks for, from Python 3.14."""
        failure = self._exception
        return self.done(), False, None if failure else self._outcome, failure  # type: ignore[return-value]

    def orphan(self) -> None:
        """In a forked child: fail, without the parent's callbacks. Called with the lock held."""
        # PRD-39: "After a fork the child MUST NOT run the callbacks of the parent's user records."
        self._outcome = self._outcome or DeliveryError(outcome=Outcome.CLOSED, code="forked", attempts=())
        # A thread of the parent may have held the condition, and cannot release it in the child.
        self._expected = False


def _nested_waits() -> bool:
    """Whether a signal handler has interrupted `wait` or `as_completed`, and calls one of them. Both may need
    the same locks."""
    frame, running = sys._getframe(), 0
    while frame.f_back is not None:
        frame = frame.f_back
        running += frame.f_code in _WAITS
    return running > 1


class _Token(NamedTuple):
    """In place of a user record."""

    token: DeliveryFuture


def end_all(results: list[tuple[Pending, Delivery | DeliveryError]]) -> None:
    """Give the futures of user records their results, unless they have one. Their tokens are the futures."""
    for start in range(0, len(results), _AT_ONCE):
        _end(results[start : start + _AT_ONCE])


def _end(results: Sequence[tuple[Pending | _Token, Any]]) -> None:
    expected: list[DeliveryFuture] = []
    with LOCK:
        for pending, outcome in results:
            future: DeliveryFuture = pending.token
            if future._outcome is None:
                future._outcome = outcome
                if future._expected:
                    expected.append(future)
                    future._ended.notify_all()
        waited = [future for future in expected if future._waited is not None]
    if waited:
        _tell_all(waited)
    for future in expected:
        callbacks, future._callbacks = future._callbacks, []
        future._call_back(callbacks)


def _tell_all(futures: list[DeliveryFuture]) -> None:
    """Tell `wait` and `as_completed`, in a thread of its own: a signal handler may have interrupted them
    where they hold locks, and wait for the thread that is here."""

    def tell() -> None:
        for future in futures:
            future._tell()

    try:
        threading.Thread(target=tell, name="kpl-codec waited", daemon=True).start()
    except RuntimeError:  # no more threads, as when the interpreter ends
        tell()
