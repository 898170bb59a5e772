"""The future that `Producer.put` returns.

Specification: spec/05-producer.md, PRD-38, PRD-40 and PRD-79.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, Final, NoReturn

from ..base.arguments import check_arguments
from ..errors import KplError, place_of
from .process import LOCK, call, driving
from .record import Pending
from .results import Delivery


class WouldDeadlock(KplError, RuntimeError):
    """``method`` was called where it could never return: in a callback of a future, whose thread gives all
    results, or in on_undelivered, for its own producer. Nothing was done."""

    code: str = "in-callback"
    requirement = "PRD-40"
    method: str
    text = "{method} would wait for itself: a callback must not wait, let another thread or task do it"
    todo = (
        "Call the method from another thread, or when the callback has returned. In a callback, use "
        "add_done_callback instead of waiting."
    )


def may_wait(method: str) -> None:
    """Raises WouldDeadlock in a callback: this thread must not wait for itself."""
    # PRD-40: "Where a wait could never return because the thread that waits gives the results, it MUST raise
    # an error that says what to do instead."
    if driving.here:
        raise WouldDeadlock(method=method)


class _Waiters(list[Any]):
    """What `wait` and `as_completed` of concurrent.futures put into a future to be told of its end."""

    def append(self, waiter: Any) -> None:
        may_wait("wait")
        super().append(waiter)


class DeliveryFuture(Future[Delivery]):
    """A `concurrent.futures.Future` of a Delivery. It is running from the first, and cannot be cancelled: the
    record may be sent already. Its result is what its producer says, also where a caller has set another one.

    An exception of a callback in the producer's thread is only logged, also SystemExit and KeyboardInterrupt.
    Waiting in a callback for a future without a result raises WouldDeadlock.

    A Future makes a condition and two lists when it is made: a third of what a put costs. One that `put`
    returns gets these, by `__getattr__`, when somebody first waits for it or adds a callback.
    """

    _outcome: Delivery | BaseException | None = None

    def __init__(self) -> None:
        """Make a whole one, which no producer ends: for tests of programs that take one."""
        super().__init__()
        self._waiters = _Waiters()
        self.set_running_or_notify_cancel()

    def __reduce__(self) -> NoReturn:
        # A copy in another process would never get a result.
        raise TypeError("a future of a producer belongs to one process: give the other one its result()")

    def __getattr__(self, name: str) -> Any:
        """An attribute that only a whole future has."""
        if name.startswith("__"):
            raise AttributeError(name)
        with LOCK:
            if "_condition" not in vars(self):
                whole: Future[Delivery] = Future()
                whole._waiters = _Waiters()
                whole.set_running_or_notify_cancel()
                # A signal handler may come between these lines, and wait while the future ends.
                own, made = vars(self), vars(whole)
                _ = "_condition" in own or own.update(made)
                if self._outcome is not None:
                    with suppress(InvalidStateError):
                        _give(super(), self._outcome)
        return object.__getattribute__(self, name)

    def done(self) -> bool:
        return self._outcome is not None or super().done()

    def result(self, timeout: float | None = None) -> Delivery:
        outcome = self._outcome
        if outcome is None or isinstance(outcome, BaseException):
            try:
                if outcome is not None:
                    raise outcome
                self._check_wait("result", timeout)
                return super().result(timeout)
            finally:
                del self, outcome  # else the traceback keeps them alive
        return outcome

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._outcome is None:
            self._check_wait("exception", timeout)
            return super().exception(timeout)
        return self._outcome if isinstance(self._outcome, BaseException) else None

    def _check_wait(self, method: str, timeout: float | None) -> None:
        check_arguments("DeliveryFuture.result", {"timeout": timeout})
        if (timeout is None or timeout > 0) and not super().done():
            may_wait(method)

    def add_done_callback(self, fn: Callable[[DeliveryFuture], object]) -> None:
        check_arguments("DeliveryFuture.add_done_callback", {"fn": fn})
        of_any: Callable[[Any], object] = fn
        super().add_done_callback(of_any if self.done() else partial(_call_back, of_any))

    def end_in_child(self, outcome: BaseException) -> None:
        """End one of the parent's in a forked child, where a thread that does not exist may have its lock."""
        if self._outcome is None:
            vars(self).clear()
            self._outcome = outcome


#: A new DeliveryFuture for a put.
new_future: Final[Callable[[], DeliveryFuture]] = partial(DeliveryFuture.__new__, DeliveryFuture)


def _give(future: Any, outcome: Delivery | BaseException | None) -> None:
    """Give a `Future` the outcome that one of ours has."""
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    elif outcome is not None:
        future.set_result(outcome)


def _call_back(fn: Callable[[Future[Delivery]], object], future: Future[Delivery]) -> None:
    if not driving.here:  # the future ended while its caller added the callback: as any future
        fn(future)
        return
    # PRD-38: "Whatever a callback raises MUST NOT cost another user record its result."
    try:
        call(fn, future)
    except BaseException as error:  # noqa: BLE001 - see above
        driving.log.error("a callback of a delivery failed: %s", place_of(error))


def end_all(ended: Sequence[Pending | Any]) -> None:
    """Give the futures of these user records their results, then run their callbacks."""
    whole: list[tuple[DeliveryFuture, Any]] = []
    with LOCK:
        for pending in ended:
            future: DeliveryFuture = pending.token
            if future._outcome is None:
                future._outcome = pending.result
                if "_condition" in vars(future):
                    whole.append((future, pending.result))
    for future, result in whole:
        with suppress(InvalidStateError):  # a caller has ended it
            _give(super(DeliveryFuture, future), result)
