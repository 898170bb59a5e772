"""What happens to producers when the process forks or ends."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Protocol

from .producer_log import logger


class Producer(Protocol):
    """The methods of a producer that are used here."""

    _exit_timeout: float

    @property
    def outstanding(self) -> int: ...

    @property
    def _running(self) -> bool: ...

    def close(self, timeout: float | None = None) -> bool: ...

    def _after_fork_in_child(self) -> None: ...


class Threads(Protocol):
    """The method of `SharedThreads` that is used here."""

    def _begin(self) -> None: ...


_THREADS: weakref.WeakSet[Threads] = weakref.WeakSet()
_PRODUCERS: weakref.WeakSet[Producer] = weakref.WeakSet()


def remember_threads(threads: Threads) -> None:
    """Reset them in a forked child, before their producers."""
    _THREADS.add(threads)


def remember(producer: Producer) -> None:
    """Close it when the interpreter exits, and reset it in a forked child."""
    _PRODUCERS.add(producer)
    atexit.register(_close_at_exit, weakref.ref(producer))


def remember_in_child(producer: Producer) -> None:
    """Also close it when a multiprocessing process ends, which runs no exit handlers."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(producer, _close_at_exit, args=(weakref.ref(producer),), exitpriority=100)


def _close_at_exit(reference: weakref.ref[Producer]) -> None:
    producer = reference()
    if producer is None or not producer._running:
        return
    outstanding = producer.outstanding
    if not producer.close(producer._exit_timeout):
        logger.error(
            "interpreter exit: user records were given up",
            extra={"outcome": "closed", "user_records": outstanding},
        )


def _after_fork_in_child() -> None:
    for threads in list(_THREADS):
        threads._begin()
    for producer in list(_PRODUCERS):
        producer._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
