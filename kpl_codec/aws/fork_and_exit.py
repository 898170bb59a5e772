"""What happens to thread producers when the process forks or ends.

ends as                                           | what closes the producers
--------------------------------------------------+-----------------------------------------------------
a program, or a child of os.fork that returns     | an exit handler
a child of multiprocessing, its pools             | a finalizer of multiprocessing: of its children some
                                                  | run no exit handlers
os._exit, kill -9, Pool.terminate                 | nothing: accepted user records are lost
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Any

from ..producer.results import undelivered
from .one_lock import LOCK
from .producer_log import log_user_records
from .producer_threads import RUNNING

#: They are reset in a forked child.
PRODUCERS: weakref.WeakSet[Any] = weakref.WeakSet()
_registered = False  # in this child of multiprocessing


def close_at_exit() -> None:
    """A producer of this process starts: see that all are closed at its end. Called with the lock held."""
    global _registered
    # PRD-61: "A process that ends MUST close the producers that nobody has closed, and a producer that is
    # dropped MUST deliver what it has accepted: in children of multiprocessing, too."
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if not _registered and process is not None and util is not None and process.parent_process() is not None:
        _registered = True
        util.Finalize(None, _close_all, exitpriority=100)


def _close_all() -> None:
    with LOCK:
        owners = [(threads, owner) for threads in RUNNING for owner in threads.owners]
        for threads, owner in owners:
            owner.letters.close(owner.clock() + owner.exit_timeout)
            threads.wake()
        for _, owner in owners:
            owner.letters.news.wait_for(lambda owner=owner: owner.letters.finished)
    for _, owner in owners:
        text = "interpreter exit: user records were given up: %d"
        log_user_records(owner.abandoned, text, outcome="closed")


def _after_fork_in_child() -> None:
    """The forking thread has the lock since before the fork, so everything is whole."""
    global _registered
    _registered = False
    for threads in RUNNING:
        for owner in threads.owners:
            for pending in [*owner.unresolved, *owner.letters.inbox]:
                pending.token.orphan(undelivered(owner.core.config, pending, "closed", "forked").result)
        threads.begin()
    RUNNING.clear()
    for producer in list(PRODUCERS):
        producer._after_fork_in_child()
    LOCK.release()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=_after_fork_in_child
    )
