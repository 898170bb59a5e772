"""All names of the standard library that the producers use and Python does not promise.
`tests/producer/test_private_names.py` tests each of them: run it with every Python that is to be supported.
"""

from __future__ import annotations

import logging
import sys
from concurrent.futures import _base, as_completed, wait
from types import CodeType, FrameType
from typing import Any, Final

#: The states of a `concurrent.futures.Future`.
FINISHED: Final[str] = _base.FINISHED
FUTURE_RUNNING: Final[str] = _base.RUNNING
#: The attributes of a Future that `DeliveryFuture` makes when they are needed.
OF_A_FUTURE: Final = ("_condition", "_state", "_result", "_exception", "_waiters", "_done_callbacks")
#: The code of the functions that put waiters into futures.
WAITS: Final[tuple[CodeType, ...]] = (wait.__code__, as_completed.__code__)


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


def has_parent(process: Any) -> bool:
    """Whether this process is a child of multiprocessing or billiard: ``process`` is their module."""
    return process.current_process()._parent_pid is not None


def caller(depth: int) -> FrameType | None:
    """The frame of the function that is so many calls up."""
    return sys._getframe(depth).f_back
