"""The future that `Producer.put` gives."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed, wait
from concurrent.futures._base import FINISHED, RUNNING
from functools import partial
from types import FrameType
from typing import Any, Final

from ..compiled import prefer_compiled
from . import Delivery, DeliveryError, Pending
from .lock import LOCK, interrupted, locked, may_wait_for_result
from .producer_logging import in_background, logger

_WAITS: Final = (wait.__code__, as_completed.__code__)


class DeliveryFuture(Future[Delivery]):
    """A `concurrent.futures.Future` of a Delivery. It is running from the first, and cannot be cancelled: the
    record may be sent already.

    An exception of a callback in the producer's thread is only logged, also SystemExit and KeyboardInterrupt.
    Waiting for one that has not ended raises WouldDeadlock where the wait could never end: in a callback, in
    a log call, and in a signal handler that interrupted its own thread in a producer; `wait` and
    `as_completed` of concurrent.futures also in one that interrupted one of these.

    A Future makes a condition and two lists when it is made: a third of what a put costs. Here they are made
    when they are asked for, and all conditions share the producers' lock. The garbage collector need not
    visit one that holds at most its Delivery: nothing leads back to it.
    """

    _result: Delivery | None = None
    _exception: BaseException | None = None
    _ended: threading.Condition | None = None
    _waiters: list[Any]
    _done_callbacks: list[Callable[[Future[Delivery]], object]]

    def __init__(self) -> None:
        """Nothing; see the class."""

    def __setattr__(self, name: str, value: object) -> None:
        _track(self)
        super().__setattr__(name, value)

    @property
    def _state(self) -> str:
        return FINISHED if self.done() else RUNNING

    @_state.setter
    def _state(self, state: str) -> None:
        """`Future` sets it after the result."""

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        if self._ended is None:
            ended = threading.Condition(LOCK)
            with LOCK:
                if self._ended is None:
                    self._done_callbacks, self._waiters = [], [] if self.done() else _Waiters()
                    self._ended = ended
        return self._ended

    def done(self) -> bool:
        return self._result is not None or self._exception is not None

    def result(self, timeout: float | None = None) -> Delivery:
        error = self.exception(timeout)
        if error is None:
            return self._result  # type: ignore[return-value]
        try:
            raise error
        finally:
            del self, error  # else the traceback keeps them alive

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.done():
            locked("result")
            if timeout is None or timeout > 0:
                may_wait_for_result("result", timeout)
            return super().exception(timeout)
        return self._exception

    def add_done_callback(self, fn: Callable[[Future[Delivery]], object]) -> None:
        if not self.done():
            locked("add_done_callback")
        super().add_done_callback(fn)

    def orphan(self, error: DeliveryError) -> None:
        """In a forked child: fail, without the parent's callbacks. Called with the lock held."""
        # PRD-39: "After a fork the child MUST NOT run the callbacks of the parent's user records."
        if not self.done():
            self._exception = error


#: A new DeliveryFuture.
new_future: Final[Callable[[], DeliveryFuture]] = partial(
    prefer_compiled("untracked", lambda kind: kind()), DeliveryFuture
)
_track: Final[Callable[[DeliveryFuture], object]] = prefer_compiled("track", lambda _: None)
_set: Final = object.__setattr__


class _Waiters(list[Any]):
    """Whom to tell of the end: `wait` and `as_completed` put them here. In a handler that has interrupted a
    producer they might wait for themselves, and for each other."""

    def append(self, waiter: Any) -> None:
        may_wait_for_result("wait")
        frame: FrameType | None = sys._getframe(2).f_back  # the caller of `wait`
        while frame is not None and frame.f_code is not end_all.__code__:  # (a fork in a callback)
            if frame.f_code in _WAITS or frame.f_globals.get("__package__") == __package__:
                raise interrupted("wait")
            frame = frame.f_back
        super().append(waiter)


def end_all(ended: Sequence[Pending]) -> None:
    futures: list[DeliveryFuture] = []
    waited_for: list[tuple[DeliveryFuture, list[Any]]] = []
    with LOCK:
        for pending in ended:
            future: DeliveryFuture = pending.token
            if future._result is not None or future._exception is not None:
                continue
            result = pending.result
            if isinstance(result, BaseException):
                future._exception = result
            else:
                _set(future, "_result", result)  # without tracking it
            if future._ended is not None:
                future._ended.notify_all()
                futures.append(future)
                if future._waiters:
                    waited_for.append((future, future._waiters))
                future._waiters = list(future._waiters)  # from now on nothing is refused
    if waited_for:
        # A signal handler may have interrupted `wait` where it holds locks, and wait for the thread that is
        # here.
        try:
            threading.Thread(target=_tell, args=(waited_for,), name="kpl-codec waited", daemon=True).start()
        except RuntimeError:  # no more threads, as when the interpreter ends
            _tell(waited_for)
    for future in futures:
        for fn in future._done_callbacks:
            # PRD-38: "Whatever a callback raises MUST NOT cost another user record its result."
            try:
                fn(future)
            except BaseException as error:  # noqa: BLE001 - see above
                in_background(partial(logger.error, "a callback of a delivery failed", exc_info=error))


def _tell(waited_for: list[tuple[DeliveryFuture, list[Any]]]) -> None:
    for future, waiters in waited_for:
        for waiter in waiters:
            if future._exception is None:
                waiter.add_result(future)
            else:
                waiter.add_exception(future)
