"""Says on standard error what a command does where it takes long: a sentence before two seconds are over."""

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
    """Says ``what`` if the block takes long, unless what it gives was called before: there is something to
    show. Again and again with ``tasks``, which gives how many of ``unit`` are done, and known."""
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
