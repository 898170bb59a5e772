"""The future that `Producer.put` gives."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, as_completed, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final

from ..producer import Delivery, DeliveryError, Outcome
from .one_lock import LOCK, WouldDeadlock, interrupted, locked, may_wait, within_limit
from .producer_log import logger

_WAITS: Final = (wait.__code__, as_completed.__code__)
#: Futures that end while the lock is held once.
_AT_ONCE: Final = 1000


class _NoLock:
    """What `wait` takes of a future that has ended, where it must not take a lock."""

    def acquire(self) -> None:
        """Nothing."""

    def release(self, *_: object) -> None:
        """Nothing."""

    __enter__, __exit__ = acquire, release


_NO_LOCK: Final = _NoLock()


class DeliveryFuture(Future[Delivery]):
    """A `concurrent.futures.Future` of a Delivery. It cannot be cancelled: the record may be sent already.

    An exception of a callback in the producer's thread is only logged, also SystemExit and KeyboardInterrupt.
    Waiting for one that has not ended raises WouldDeadlock where the wait could never end: in a callback, and
    in a signal handler that interrupted its own thread in a producer, or in `wait` or `as_completed` of
    concurrent.futures while it calls them itself.

    A Future makes a condition and two lists when it is made: a third of what a put costs. Here all futures
    share the producers' lock, and get what only waiting needs when somebody waits. `wait` and `as_completed`
    have a lock of their own, which only a thread made for it takes to tell them of the end.
    """

    _end: Delivery | BaseException | None = None
    _ended: threading.Condition | None = None  # there are callbacks, or somebody waits
    _callbacks: list[Callable[[Future[Delivery]], object]]
    #: An RLock of `wait` and `as_completed`; and whether they may see the end.
    _wait_lock: Any = None
    _waiters: list[Any]
    _visible = False

    def __init__(self) -> None:
        """Nothing; see the class."""

    def _expect(self) -> threading.Condition:
        """Called with the lock held."""
        if self._ended is None:
            self._callbacks = []
            self._ended = threading.Condition(LOCK)
        return self._ended

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return False

    def done(self) -> bool:
        return self._end is not None

    def __repr__(self) -> str:
        return f"<DeliveryFuture {'ended' if self.done() else 'pending'}>"

    def result(self, timeout: float | None = None) -> Delivery:
        end = self._end or self._wait("result", timeout)
        if not isinstance(end, BaseException):
            return end
        try:
            raise end
        finally:
            del self, end  # else the traceback keeps them alive

    def exception(self, timeout: float | None = None) -> BaseException | None:
        end = self._end or self._wait("exception", timeout)
        return end if isinstance(end, BaseException) else None

    def _wait(self, method: str, timeout: float | None) -> Delivery | BaseException:
        if timeout is None or timeout > 0:
            may_wait(method)
            with locked(method):
                self._expect().wait_for(self.done, within_limit(timeout))
        if self._end is None:
            raise FutureTimeoutError
        return self._end

    def add_done_callback(self, fn: Callable[[Future[Delivery]], object]) -> None:
        with locked("add_done_callback"):
            if not self.done():
                self._expect()
                self._callbacks.append(fn)
                return
        self._call_back(fn)

    def _call_back(self, fn: Callable[[Future[Delivery]], object]) -> None:
        # PRD-38: "Whatever a callback raises MUST NOT cost another user record its result."
        try:
            fn(self)
        except BaseException as error:
            if threading.current_thread() is threading.main_thread() and not isinstance(error, Exception):
                raise  # added after the record had ended: it runs in its caller
            logger.exception("a callback of a delivery failed")

    def set_result(self, result: Delivery) -> None:
        self._set(result)

    def set_exception(self, exception: BaseException | None) -> None:
        assert exception is not None
        self._set(exception)

    def _set(self, end: Delivery | BaseException) -> None:
        if self.done():
            raise InvalidStateError(f"{self!r}")
        end_all([(self, end)])

    # -- for `wait`, `as_completed` and asyncio ------------------------------------------------

    @property
    def _condition(self) -> Any:  # type: ignore[override]
        """`wait` takes those of its futures in turn, and keeps what it has if a later one refuses. So where
        waiting is refused it gets no lock."""
        refused = _refused()
        if refused is not None and not self.done():
            raise refused
        with LOCK:
            if self._wait_lock is None:
                self._visible, self._waiters, self._wait_lock = self.done(), [], threading.RLock()
        return self._wait_lock if refused is None else _NO_LOCK

    @property
    def _state(self) -> str:  # type: ignore[override]
        return "FINISHED" if self._visible or (self.done() and _refused()) else "PENDING"

    def _get_snapshot(self) -> tuple[bool, bool, Delivery | None, BaseException | None]:
        """What asyncio asks for, from Python 3.14."""
        failure = self._end if isinstance(self._end, BaseException) else None
        return self.done(), False, None if failure else self._end, failure  # type: ignore[return-value]

    def orphan(self) -> None:
        """In a forked child: fail, without the parent's callbacks. Called with the lock held."""
        # PRD-39: "After a fork the child MUST NOT run the callbacks of the parent's user records."
        self._end = self._end or DeliveryError(outcome=Outcome.CLOSED, code="forked", attempts=())
        # A thread of the parent may have held the lock of `wait`, and cannot release it in the child.
        self._ended = self._wait_lock = None


def _refused() -> WouldDeadlock | None:
    """Why `wait` and `as_completed` must not wait here. A handler that has interrupted one of them must not
    call another: both may need the same locks."""
    try:
        may_wait("wait")
        locked("wait")
    except WouldDeadlock as error:
        return error
    frame, running = sys._getframe(), 0
    while frame.f_back is not None:
        frame = frame.f_back
        running += frame.f_code in _WAITS
    return interrupted("wait") if running > 1 else None


def end_all(ends: Sequence[tuple[Any, Delivery | BaseException]]) -> None:
    """Give futures their results, unless they have one."""
    asked: list[DeliveryFuture] = []
    waited: list[DeliveryFuture] = []
    for start in range(0, len(ends), _AT_ONCE):
        with LOCK:
            for future, end in ends[start : start + _AT_ONCE]:
                if future._end is None:
                    future._end = end
                    if future._ended is not None:
                        future._ended.notify_all()
                        asked.append(future)
                    if future._wait_lock is not None:
                        waited.append(future)
    if waited:
        # A signal handler may have interrupted `wait` where it holds locks, and wait for the thread that is
        # here.
        try:
            threading.Thread(target=_tell, args=(waited,), name="kpl-codec waited", daemon=True).start()
        except RuntimeError:  # no more threads, as when the interpreter ends
            _tell(waited)
    for future in asked:
        callbacks, future._callbacks = future._callbacks, []
        for fn in callbacks:
            future._call_back(fn)


def _tell(futures: list[DeliveryFuture]) -> None:
    """Tell `wait` and `as_completed`."""
    for future in futures:
        with future._wait_lock:
            future._visible = True
            for waiter in future._waiters:
                if isinstance(future._end, BaseException):
                    waiter.add_exception(future)
                else:
                    waiter.add_result(future)
