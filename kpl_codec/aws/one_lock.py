"""The one lock of all thread producers of the process. It knows its owner: nothing here waits for itself.

A signal handler may interrupt its thread where it holds the lock. The lock is never held while anything else
is called or waited for, so there is no other way to meet it again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from ..errors import KplError
from .producer_tells import logger


class WouldDeadlock(KplError, RuntimeError):
    """``method`` was called where it could never return. Nothing was done. ``instead``: what to do.

    ``code`` is "in-signal-handler" for a handler (or finalizer) that interrupted its own thread in a producer
    or in a wait for its futures, "in-callback" for a callback of a future, "in-log" for a handler that
    interrupted a log call: producers log, too.
    """

    code: str
    requirement = "PRD-40"
    method: str
    instead: str
    text = "{method} would wait for itself ({code}): {instead}"
    todo = "Do what the text says. The method can be called again as soon as what is under way has returned."
    codes = ("in-signal-handler", "in-callback", "in-log")


class _Driving(threading.local):
    """``here``: this thread drives producers, and runs the callbacks of their futures."""

    here = False


driving: Final = _Driving()
#: Re-entrant, so that a handler which tests whether it is owned need not be afraid of the answer.
LOCK: Final = threading.RLock()
owned: Final[Callable[[], bool]] = LOCK._is_owned  # type: ignore[attr-defined]


def locked(method: str) -> threading.RLock:
    """The lock, to be taken for ``method``. Raises WouldDeadlock if this thread has it."""
    # PRD-40: "A signal handler MAY call every method of the thread producer and wait for its futures; where
    # that could never return it MUST raise an error that says what to do instead."
    if owned():
        raise interrupted(method)
    return LOCK


def interrupted(method: str) -> WouldDeadlock:
    instead = "the handler has interrupted a producer; let it set a flag, and act when it has returned"
    return WouldDeadlock(code="in-signal-handler", method=method, instead=instead)


def may_wait(method: str) -> None:
    """Raises WouldDeadlock where this thread must not wait for the one that drives producers: in a callback,
    which runs in that thread, and with the lock of a log handler that it may need."""
    if driving.here:
        instead = "a callback must not wait; let another thread do it"
        raise WouldDeadlock(code="in-callback", method=method, instead=instead)
    place: logging.Logger | None = logger
    while place is not None:
        for handler in place.handlers:
            if getattr(handler.lock, "_is_owned", bool)():
                instead = "a log call is under way in this thread; let a signal handler set a flag only"
                raise WouldDeadlock(code="in-log", method=method, instead=instead)
        place = place.parent if place.propagate else None


def within_limit(timeout: float | None) -> float | None:
    return timeout if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX)
