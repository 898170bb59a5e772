"""The one lock of all thread producers of the process, and where a thread must not wait for a producer.

A signal handler or a finalizer may interrupt its thread where it holds the lock. The lock is never held while
anything else is called or waited for, so there is no other way to meet it again.

But a caller may hold locks of others, which the producers' threads need: a log handler's while botocore logs,
for one. So `put` does not wait with such a lock, and all other waits are short.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from ..errors import KplError

#: Seconds that `flush`, `close` and `wait_ready` wait at most inside a log call.
LOG_WAIT: Final = 5.0


class WouldDeadlock(KplError, RuntimeError):
    """``method`` was called where it could never return. Nothing was done. ``instead``: what to do.

    ``code`` is "in-signal-handler" for a signal handler or finalizer that interrupted its own thread in a
    producer or in a wait for its futures, "in-callback" for a callback of a future, "in-log" where a log call
    is under way in this thread: the producer's threads may need the same handler.
    """

    code: str
    requirement = "PRD-40"
    method: str
    instead: str
    text = "{method} would wait for itself ({code}): {instead}"
    todo = "Do what the text says. The method can be called again as soon as what is under way has returned."
    codes = ("in-signal-handler", "in-callback", "in-log")


class _Driving(threading.local):
    """``here``: this thread drives producers, and runs the callbacks of their futures; or it makes calls."""

    here = False


driving: Final = _Driving()
#: Re-entrant: a signal handler that asks who owns it must not wait for it.
LOCK: Final[Any] = threading.RLock()
owned: Final[Callable[[], bool]] = LOCK._is_owned


def after_fork() -> None:
    """In a forked child: whoever had the lock, unless it was the thread that forked, is not here."""
    if not owned():
        LOCK._at_fork_reinit()
    driving.here = False


def locked(method: str) -> threading.RLock:
    """The lock, to be taken for ``method``. Raises WouldDeadlock if this thread has it."""
    # PRD-40: "A signal handler MAY call every method of the thread producer and wait for its futures; where
    # that could never return it MUST raise an error that says what to do instead."
    if owned():
        raise interrupted(method)
    return LOCK  # type: ignore[no-any-return]


def interrupted(method: str) -> WouldDeadlock:
    instead = "a signal handler or finalizer has interrupted a producer; set a flag there, and act later"
    return WouldDeadlock(code="in-signal-handler", method=method, instead=instead)


def in_log() -> bool:
    """Whether this thread holds a lock of `logging`: that of any handler, or of the module."""
    module: Any = logging
    handlers = [reference() for reference in module._handlerList]
    locks = [module._lock, *[getattr(handler, "lock", None) for handler in handlers]]
    return any(getattr(lock, "_is_owned", bool)() for lock in locks)


def may_wait(method: str) -> None:
    """Raises WouldDeadlock in a callback: this thread must not wait for itself."""
    if driving.here:
        instead = "a callback must not wait; let another thread do it"
        raise WouldDeadlock(code="in-callback", method=method, instead=instead)


def may_wait_for_result(method: str, timeout: float | None = None) -> None:
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
