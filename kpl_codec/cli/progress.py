"""Prints on standard error what a command waits for, if it waits for more than 1.5 seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..rendering.terminal import note

#: Seconds until the first line, and between later lines.
_SOON, _AGAIN = 1.5, 10.0


@contextmanager
def waiting(
    what: str,
    tasks: Callable[[], tuple[int, int]] | None = None,
    *,
    quiet: bool = False,
    unit: str = "task",
) -> Iterator[Callable[[], None]]:
    """Print ``what`` to standard error if the block takes longer than 1.5 s. The block gets a function,
    which it calls when its output begins, so that the line is not printed any more. ``tasks`` returns how
    many of ``unit`` are finished, and how many there are; with it the line comes again every ten seconds."""
    end = threading.Event()

    def say() -> None:
        started, pause = time.monotonic(), _SOON
        while not end.wait(pause):
            pause = _AGAIN
            if tasks is None:
                note(f"{what} ...")
                return
            finished, total = tasks()
            note(f"{what}: {unit} {finished} of {total}, {time.monotonic() - started:.0f} s")

    # SPK-97: "A command that has nothing to show for two seconds MUST say on standard error what it waits
    # for."
    if not quiet:
        threading.Thread(target=say, daemon=True).start()
    try:
        yield end.set
    finally:
        end.set()
