"""Says on standard error what a command waits for, before two seconds are over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..rendering.terminal import note

#: Seconds until the first sentence, and between two that follow.
_SOON, _AGAIN = 1.5, 10.0


@contextmanager
def waiting(
    what: str,
    tasks: Callable[[], tuple[int, int]] | None = None,
    *,
    quiet: bool = False,
    unit: str = "task",
) -> Iterator[Callable[[], None]]:
    """Says ``what`` if the block takes long. The block gets a function to call when output begins: then it is
    not said. With ``tasks`` it is said again every ten seconds: a function that returns how many of ``unit``
    are done, and how many there are."""
    end = threading.Event()

    def say() -> None:
        started, pause = time.monotonic(), _SOON
        while not end.wait(pause):
            pause = _AGAIN
            if tasks is None:
                note(f"{what} ...")
                return
            done, total = tasks()
            note(f"{what}: {unit} {done} of {total}, {time.monotonic() - started:.0f} s")

    # SPK-97: "A command that has nothing to show for two seconds MUST say on standard error what it waits
    # for."
    if not quiet:
        threading.Thread(target=say, daemon=True).start()
    try:
        yield end.set
    finally:
        end.set()
