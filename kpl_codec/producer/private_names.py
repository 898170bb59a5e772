"""All names of the standard library that the producers use and Python does not promise.
`tests/producer/test_private_names.py` tests each of them: run it with every Python that is to be supported.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from concurrent.futures import Future, as_completed, wait
from threading import Condition
from types import CodeType, FrameType
from typing import Any, Final

#: The code of the functions that put waiters into futures.
WAITS: Final[tuple[CodeType, ...]] = (wait.__code__, as_completed.__code__)


def future_with(lock: Any, waiters: list[Any]) -> Future[Any]:
    """A Future whose condition has this lock, and which puts into this list what waits for it."""
    future: Any = Future()
    future._condition, future._waiters = Condition(lock), waiters
    return future  # type: ignore[no-any-return]


def take_waiters(future: Any) -> list[Any]:
    """What `wait` and `as_completed` have put into a Future, which has a list of its own for it from now
    on."""
    waiters, future._waiters = list(future._waiters), []
    return waiters


def tell_waiters(with_waiters: Iterable[tuple[Future[Any], list[Any]]]) -> None:
    """Tell these waiters that their Futures have ended."""
    for future, waiters in with_waiters:
        for waiter in waiters:
            (waiter.add_result if future.exception(0) is None else waiter.add_exception)(future)


def is_owned(lock: Any) -> bool:
    """Whether this thread has a `threading.RLock`. False for a lock of another kind."""
    return bool(getattr(lock, "_is_owned", bool)())


def begin_anew(lock: Any) -> None:
    """Release a `threading.RLock` in a forked child, in which its owner does not run."""
    lock._at_fork_reinit()


def locks_of_logging() -> list[Any]:
    """The lock of the module `logging`, and that of each handler."""
    module: Any = logging
    handlers = [reference() for reference in module._handlerList]
    return [module._lock, *[getattr(handler, "lock", None) for handler in handlers]]


def caller(depth: int) -> FrameType | None:
    """The frame of the function that is so many calls up."""
    return sys._getframe(depth).f_back
