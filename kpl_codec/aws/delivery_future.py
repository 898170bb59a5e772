"""The future that `Producer.put` gives."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError, as_completed, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final

from ..producer import Delivery, DeliveryError, Outcome, Pending
from .one_lock import LOCK, interrupted, locked, may_wait, within_limit
from .producer_log import logger

_FINISHED: Final = "FINISHED"
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

    _state = "PENDING"
    _result: Delivery | None = None
    _exception: DeliveryError | BaseException | None = None
    _expected = False  # somebody waits, or has added a callback: what follows is there
    _done_callbacks: list[Callable[[Future[Delivery]], object]]
    _ended: threading.Condition
    #: What `wait` and `as_completed` need.
    _waited: threading.Condition | None
    _waiters: list[Any]

    def __init__(self) -> None:
        """Nothing; see the class."""

    def _expect(self) -> None:
        """Called with the lock held."""
        if not self._expected:
            self._done_callbacks = []
            self._ended = threading.Condition(LOCK)
            self._waited = None
            self._waiters = []
            self._expected = True

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return False

    def done(self) -> bool:
        return self._result is not None or self._exception is not None

    def __repr__(self) -> str:
        return f"<DeliveryFuture {'ended' if self.done() else 'pending'}>"

    def result(self, timeout: float | None = None) -> Delivery:
        if self._result is None and self._exception is None:
            self._wait("result", timeout)
        if self._result is not None:
            return self._result
        assert self._exception is not None
        try:
            raise self._exception
        finally:
            del self  # else the traceback keeps it alive

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._result is None and self._exception is None:
            self._wait("exception", timeout)
        return self._exception

    def _wait(self, method: str, timeout: float | None) -> None:
        if timeout is None or timeout > 0:
            may_wait(method)
            with locked(method):
                self._expect()
                self._ended.wait_for(self.done, within_limit(timeout))
        if not self.done():
            raise FutureTimeoutError

    def add_done_callback(self, fn: Callable[[Future[Delivery]], object]) -> None:
        with locked("add_done_callback"):
            if not self.done():
                self._expect()
                self._done_callbacks.append(fn)
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
            raise InvalidStateError(f"{self._state}: {self!r}")
        _end([(self, outcome)])

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """For `wait` and `as_completed`. They hold it, and locks of their own, without the producers' lock;
        so the thread that drives the producer does not wait for it (see `_tell_all`)."""
        if not self.done():
            may_wait("wait")
            if _nested_waits():
                raise interrupted("wait")
        with locked("wait"):
            self._expect()
            self._waited = self._waited or threading.Condition()
            return self._waited

    def _tell(self) -> None:
        """Tell `wait` and `as_completed`. They may see the end only while they do not hold the condition."""
        assert self._waited is not None
        with self._waited:
            self._state = _FINISHED
            for waiter in self._waiters:
                if self._exception is None:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)

    def _get_snapshot(self) -> tuple[bool, bool, Delivery | None, BaseException | None]:
        """What asyncio asks for, from Python 3.14."""
        return self.done(), False, self._result, self._exception

    def orphan(self) -> None:
        """In a forked child: fail, without the parent's callbacks. Called with the lock held."""
        # PRD-39: "After a fork the child MUST NOT run the callbacks of the parent's user records."
        if self._result is None and self._exception is None:
            self._exception = DeliveryError(outcome=Outcome.CLOSED, code="forked", attempts=())
        # A thread of the parent may have held the condition, and cannot release it in the child.
        self._expected, self._state = False, _FINISHED


def _nested_waits() -> bool:
    """Whether a signal handler has interrupted `wait` or `as_completed`, and calls one of them. Both may need
    the same locks."""
    frame, running = sys._getframe(), 0
    while frame.f_back is not None:
        frame = frame.f_back
        running += frame.f_code in _WAITS
    return running > 1


def end_all(results: Iterable[tuple[Pending, Delivery | DeliveryError]]) -> None:
    """Give the futures of user records their results, unless they have one. Their tokens are the futures."""
    _end([(pending.token, result) for pending, result in results])


def _end(outcomes: list[tuple[DeliveryFuture, Any]]) -> None:
    for start in range(0, len(outcomes), _AT_ONCE):
        expected: list[DeliveryFuture] = []
        waited: list[DeliveryFuture] = []
        with LOCK:
            for future, outcome in outcomes[start : start + _AT_ONCE]:
                if future._result is not None or future._exception is not None:
                    continue
                if isinstance(outcome, BaseException):
                    future._exception = outcome
                else:
                    future._result = outcome
                if future._expected:
                    expected.append(future)
                    future._ended.notify_all()
                    if future._waited is not None:
                        waited.append(future)
                        continue
                future._state = _FINISHED
        if waited:
            _tell_all(waited)
        for future in expected:
            callbacks, future._done_callbacks = future._done_callbacks, []
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
