"""The future that `Producer.put` gives."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any, Final

from ..producer import Delivery, DeliveryError, Outcome, Pending
from .producer_log import logger

#: In place of its condition: it ended before anybody asked for one.
_ENDED: Final = threading.Condition()


class DeliveryFuture(Future[Delivery]):
    """A `concurrent.futures.Future` of a Delivery. It cannot be cancelled: the record may be sent already.

    An exception of a callback in the producer's thread is only logged, also SystemExit and KeyboardInterrupt.

    A signal handler may interrupt any of its methods and wait for the producer. So they hold no lock that the
    producer's thread needs to end it: what must be one step is one step of a dict or a deque. Only `wait` and
    `as_completed` of concurrent.futures need the condition and the waiters of a Future.
    """

    _outcome: Delivery | BaseException | None = None
    _told = False  # `wait` and `as_completed`: they may see the end only while they do not hold the condition

    def __init__(self) -> None:  # Future's would make a condition and two lists for every user record
        # What is made when it is first asked for, by name: whoever is first makes it for all threads. Not the
        # object's __dict__: two threads that are the first to ask for it can get two, which corrupts memory
        # (CPython 3.11, if the garbage collector runs Python code in between).
        self._once: dict[str, Any] = {}

    @property
    def _state(self) -> str:  # type: ignore[override]
        return "FINISHED" if self._told or self._once.get("condition") is _ENDED else "PENDING"

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        made: threading.Condition = self._made("condition", threading.Condition)
        return self._made("late condition", threading.Condition) if made is _ENDED else made

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        waiters: list[Any] = self._made("waiters", list)
        return waiters

    @property
    def _callbacks(self) -> deque[Callable[[Future[Delivery]], object]]:
        callbacks: deque[Callable[[Future[Delivery]], object]] = self._made("callbacks", deque)
        return callbacks

    def _made(self, name: str, make: Callable[[], Any]) -> Any:
        found = self._once.get(name)
        return self._once.setdefault(name, make()) if found is None else found

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return self._outcome if isinstance(self._outcome, BaseException) else None

    @property
    def _result(self) -> Delivery | None:  # type: ignore[override]
        return None if isinstance(self._outcome, BaseException) else self._outcome

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return False

    def done(self) -> bool:
        return self._outcome is not None

    def result(self, timeout: float | None = None) -> Delivery:
        outcome = self._outcome or self._wait(timeout)
        if not isinstance(outcome, BaseException):
            return outcome
        try:
            raise outcome
        finally:
            del self, outcome  # else the traceback keeps them alive

    def exception(self, timeout: float | None = None) -> BaseException | None:
        outcome = self._outcome or self._wait(timeout)
        return outcome if isinstance(outcome, BaseException) else None

    def _wait(self, timeout: float | None) -> Delivery | BaseException:
        parked = threading.Lock()
        parked.acquire()

        def wake(_: object) -> None:
            parked.release()

        self._add(wake, first=True)
        if not parked.acquire(timeout=-1 if timeout is None else min(max(0, timeout), threading.TIMEOUT_MAX)):
            with suppress(ValueError, IndexError):
                self._callbacks.remove(wake)
        if self._outcome is None:
            raise FutureTimeoutError
        return self._outcome

    def add_done_callback(self, fn: Callable[[Future[Delivery]], object]) -> None:
        self._add(fn)

    def _add(self, fn: Callable[[Future[Delivery]], object], *, first: bool = False) -> None:
        callbacks = self._callbacks
        (callbacks.appendleft if first else callbacks.append)(fn)
        if self._outcome is not None:
            self._call_back()

    def _call_back(self) -> None:
        """Call all callbacks. Two threads may be here: each callback is called by the one that takes it."""
        callbacks = self._callbacks
        while callbacks:
            with suppress(IndexError):  # the other has taken the last one
                fn = callbacks.popleft()
                # PRD-38: "Whatever a callback raises MUST NOT cost another user record its result."
                try:
                    fn(self)
                except BaseException as error:
                    in_main = threading.current_thread() is threading.main_thread()
                    if in_main and not isinstance(error, Exception):
                        raise  # added after the record had ended: it runs in its caller
                    logger.exception("a callback of a delivery failed")

    def set_result(self, result: Delivery) -> None:
        self._end(result)

    def set_exception(self, exception: BaseException | None) -> None:
        assert exception is not None
        self._end(exception)

    def _end(self, outcome: Delivery | BaseException) -> None:
        if self._outcome is not None:
            raise InvalidStateError(f"{self._state}: {self!r}")
        self._outcome = outcome
        if self._once.setdefault("condition", _ENDED) is not _ENDED:
            self._tell()
        self._call_back()

    def _tell(self) -> None:
        """Tell `wait` and `as_completed`."""
        with self._condition:
            self._told = True
            for waiter in self._waiters:
                if self._exception is None:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)

    def orphan(self) -> None:
        """In a forked child: fail, without the parent's callbacks."""
        # A thread of the parent may have held the condition, and cannot release it in the child.
        # PRD-39: "After a fork the child MUST NOT run the callbacks of the parent's user records."
        self._once = {"condition": _ENDED}
        self._outcome = self._outcome or DeliveryError(outcome=Outcome.CLOSED, code="forked", attempts=())


def end_all(results: Iterable[tuple[Pending, Delivery | DeliveryError]]) -> None:
    """Give the futures of user records their results, unless they have one. Their tokens are the futures."""
    called: list[DeliveryFuture] = []
    waited: list[DeliveryFuture] = []
    for pending, result in results:
        future: DeliveryFuture = pending.token
        if future._outcome is None:
            future._outcome = result
            if "callbacks" in future._once:
                called.append(future)
            if future._once.setdefault("condition", _ENDED) is not _ENDED:
                waited.append(future)
    if waited:
        # Not in this thread: a signal handler may have interrupted `wait` or `as_completed` where they hold
        # locks, and wait for this thread.
        try:
            threading.Thread(target=_tell_all, args=(waited,), name="kpl-codec waited", daemon=True).start()
        except RuntimeError:  # no more threads, as when the interpreter ends
            _tell_all(waited)
    for future in called:
        future._call_back()


def _tell_all(futures: list[DeliveryFuture]) -> None:
    for future in futures:
        future._tell()
