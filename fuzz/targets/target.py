"""What a target is: a function that takes any bytes and has a law, where to begin, and what to grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple


class Target(NamedTuple):
    """``run`` raises AssertionError when its law does not hold, and lets through what must not be raised.

    ``seeds``: inputs to begin with. ``grown``: inputs of about so many bytes, by name, sound, damaged and
    hostile, on which `fuzz.growth` measures time and memory.
    ``work``: what a grown input is given to, where ``run`` compares with something slow on purpose.
    """

    run: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    grown: Mapping[str, Callable[[int], bytes]]
    work: Callable[[bytes], object] | None = None


def repeated(unit: bytes, *, head: bytes = b"", tail: bytes = b"") -> Callable[[int], bytes]:
    """``unit`` again and again, between ``head`` and ``tail``."""
    return lambda size: head + unit * max(1, size // len(unit)) + tail
