"""The future that `Producer.put` gives."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Any, Final

from ..producer import Delivery
from .producer_log import logger

_PENDING: Final = "PENDING"
_FINISHED: Final = "FINISHED"
_ENDED_LOCK: Final = threading.RLock()
#: The condition of every future that ended before anybody waited for it. Nobody ever waits on it.
_ENDED: Final = threading.Condition(_ENDED_LOCK)


class _WhenNeeded:
    """An attribute made when it is first asked for; threads that ask at once get the same one."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, future: Any, owner: type) -> Any:
        return future.__dict__.setdefault(self._name, self._make())


class DeliveryFuture(Future[Delivery]):
    """A `concurrent.futures.Future` of a Delivery. It cannot be cancelled: the record may be sent already.

    An exception of a callback in the producer's thread is only logged, also SystemExit and KeyboardInterrupt.

    Most futures end before anybody waits for them. So the condition and the lists that a Future begins with
    are made when they are needed, and a future that ends without them shares one condition with all such.
    """

    _state = _PENDING
    _result = None
    _exception = None
    _condition = _WhenNeeded(threading.Condition)
    _waiters = _WhenNeeded(list)
    _done_callbacks = _WhenNeeded(list)

    def __init__(self) -> None:  # Future's would make them all
        pass

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
            if self.__dict__.setdefault("_condition", _ENDED) is not _ENDED:
                return False
            if self._state == _FINISHED:
                raise InvalidStateError(f"{self._state}: {self!r}")
            self._result, self._exception = result, exception
            self._state = _FINISHED
            return True

    def add_done_callback(self, fn: Callable[[Future[Delivery]], object]) -> None:
        super().add_done_callback(fn if self.done() else partial(_call_back, fn))


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
