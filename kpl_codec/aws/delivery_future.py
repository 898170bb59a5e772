"""The future that `Producer.put` gives."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Any, Final

from ..producer import Delivery, DeliveryError, Outcome, Pending
from .producer_log import logger

_PENDING: Final = "PENDING"
_FINISHED: Final = "FINISHED"
_ENDED_LOCK: Final = threading.RLock()
#: The condition of every future that ended before anybody waited for it. Nobody ever waits on it.
_ENDED: Final = threading.Condition(_ENDED_LOCK)


class DeliveryFuture(Future[Delivery]):
    """A `concurrent.futures.Future` of a Delivery. It cannot be cancelled: the record may be sent already.

    An exception of a callback in the producer's thread is only logged, also SystemExit and KeyboardInterrupt.

    Most futures end before anybody waits for them. So the condition and the lists that a Future begins with
    are made when they are needed, and a future that ends without them shares one condition with all such.
    """

    _state = _PENDING
    _result: Delivery | None = None
    _exception: BaseException | None = None
    _made_condition: threading.Condition | None = None
    _made_lists: tuple[list[Any], list[Any]] | None = None

    def __init__(self) -> None:  # Future's would make them all
        pass

    # Threads, and signal handlers, that ask at once get the same one: no signal comes between the last look
    # and the assignment.
    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        if self._made_condition is None:
            new = threading.Condition()
            with _ENDED_LOCK:
                if self._made_condition is None:
                    self._made_condition = new
        return self._made_condition

    @property
    def _lists(self) -> tuple[list[Any], list[Any]]:
        if self._made_lists is None:
            new: tuple[list[Any], list[Any]] = [], []
            with _ENDED_LOCK:
                if self._made_lists is None:
                    self._made_lists = new
        return self._made_lists

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        return self._lists[0]

    @property
    def _done_callbacks(self) -> list[Any]:
        return self._lists[1]

    def cancel(self) -> bool:
        return False

    def done(self) -> bool:
        return self._state == _FINISHED  # it is the last to be set

    def result(self, timeout: float | None = None) -> Delivery:
        delivery = self._result if self._state == _FINISHED else None
        return delivery if delivery is not None else super().result(timeout)

    def set_result(self, result: Delivery) -> None:
        if not self._ended_unseen(result, None):
            super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        if not self._ended_unseen(None, exception):
            super().set_exception(exception)

    def _ended_unseen(self, result: Delivery | None, exception: BaseException | None) -> bool:
        """End it, if nobody has asked for its condition yet: so nobody waits, and there are no callbacks.

        Who asks for the condition meanwhile gets the one whose lock is held here, and sees the end.
        """
        with _ENDED_LOCK:
            if self._made_condition is None:
                self._made_condition = _ENDED
            if self._made_condition is not _ENDED:
                return False
            if self._state == _FINISHED:
                raise InvalidStateError(f"{self._state}: {self!r}")
            self._result, self._exception = result, exception
            self._state = _FINISHED
            return True

    def orphan(self) -> None:
        """In a forked child: fail, without the parent's callbacks."""
        # A thread of the parent may have held the lock, and cannot release it in the child.
        self._made_condition = threading.Condition()
        # PRD-39: "After a fork the child MUST NOT run the callbacks of the parent's user records."
        self._made_lists = None
        if not self.done():
            self.set_exception(DeliveryError(outcome=Outcome.CLOSED, code="forked", attempts=()))

    def add_done_callback(self, fn: Callable[[Future[Delivery]], object]) -> None:
        super().add_done_callback(fn if self.done() else partial(_call_back, fn))


def end_all(results: Iterable[tuple[Pending, Delivery | DeliveryError]]) -> None:
    """Give the futures of user records their results, unless they have one. Their tokens are the futures."""
    seen: list[tuple[DeliveryFuture, Delivery | DeliveryError]] = []
    with _ENDED_LOCK:  # one for all: see `_ended_unseen`
        for pending, result in results:
            future: DeliveryFuture = pending.token
            if future._made_condition is not None:
                seen.append((future, result))
                continue
            future._made_condition = _ENDED
            if isinstance(result, DeliveryError):
                future._exception = result
            else:
                future._result = result
            future._state = _FINISHED
    for future, result in seen:
        if not future.done():
            if isinstance(result, DeliveryError):
                future.set_exception(result)
            else:
                future.set_result(result)


def _call_back(fn: Callable[[Future[Delivery]], object], future: Future[Delivery]) -> None:
    # PRD-38: "Whatever a callback raises MUST NOT cost another user record its result."
    try:
        fn(future)
    except BaseException:
        if threading.current_thread() is threading.main_thread():
            raise  # added after the record had ended: it runs in its caller
        logger.exception("a callback of a delivery failed")


if hasattr(os, "register_at_fork"):
    # No other thread holds it in the child, whose futures are to be asked, too.
    os.register_at_fork(
        before=_ENDED_LOCK.acquire, after_in_parent=_ENDED_LOCK.release, after_in_child=_ENDED_LOCK.release
    )
