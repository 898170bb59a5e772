"""Handles SIGTERM and Ctrl-C, for commands that must finish their work in order before they end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_on_signals(stop: Callable[[], object] = lambda: None) -> Iterator[list[int]]:
    """Yields the list of signals received. The first SIGTERM or Ctrl-C calls ``stop`` and interrupts nothing;
    a second one of its kind ends the program at once. A signal that the shell has ignored stays ignored."""
    received: list[int] = []
    previous: dict[int, Any] = {}

    def end(number: int, frame: object) -> None:
        received.append(number)
        signal.signal(number, previous[number])
        stop()

    if threading.current_thread() is threading.main_thread():
        previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        previous = {number: handler for number, handler in previous.items() if handler != signal.SIG_IGN}
    for number in previous:
        signal.signal(number, end)
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
