"""Says on standard error what a command does where it takes long: a sentence before two seconds are over.

`waiting` says it once. `progress` says how much is done, every ten seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..pictures.terminal import note

#: Seconds until the first sentence, and between two that follow.
_SOON, _AGAIN = 1.5, 10.0


@contextmanager
def waiting(what: str) -> Iterator[Callable[[], None]]:
    """Says ``what`` if the block takes long, unless what it gives was called before: there is something to
    show."""
    # SPK-97: "A command that has nothing to show for two seconds MUST say on standard error what it waits
    # for."
    timer = threading.Timer(_SOON, note, [f"{what} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


#: Tasks done, and tasks known.
Tasks = Callable[[], tuple[int, int]]


@contextmanager
def progress(tasks: Tasks, what: str, *, quiet: bool = False) -> Iterator[None]:
    """Shows ``what`` and how many of the ``tasks`` are done, until the block ends."""
    if quiet:
        yield
        return
    end = threading.Event()
    thread = threading.Thread(target=_log, args=(tasks, what, end), daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(5)


def _log(tasks: Tasks, what: str, end: threading.Event) -> None:
    started = time.monotonic()
    pause = _SOON
    while not end.wait(pause):
        pause = _AGAIN
        done, total = tasks()
        note(f"{what}: task {done} of {total}, {time.monotonic() - started:.0f} s")
