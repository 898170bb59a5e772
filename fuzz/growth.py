"""The law of time and memory: on input of any kind, both are at most linear in its size.

    python -m pytest -m slow tests/fuzz/test_targets.py -k linear      every target that has inputs to grow

Each kind of input, sound, damaged and hostile, is measured at a size and at eight times that size, up to
three times, so that a busy machine is not taken for a defect: linear work takes 8 times the CPU time,
quadratic 64, and more than 32 breaks the law. Of memory the peak of what Python allocates
counts, per byte of input.
"""

from __future__ import annotations

import gc
import signal
import time
import tracemalloc
from collections.abc import Callable
from typing import Final

FACTOR: Final = 8
MOST_TIME: Final = 4 * FACTOR
#: Some machines count CPU time in steps of 4 ms: what is measured is at least so many seconds.
TICKS: Final = 0.02
#: Nor is anything too slow that takes less.
ENOUGH: Final = 0.3
#: The smaller input is as large as takes so many seconds, between these sizes in bytes.
SECONDS: Final = 0.01
SMALLEST, LARGEST = 4_000, 256_000
#: Peak bytes for each byte of input, at most: a user record of 6 bytes is a tuple and some numbers.
BYTES_PER_BYTE: Final = 400
FIXED: Final = 2_800_000
MEASURED: Final = 14_000

Work = Callable[[bytes], object]
Make = Callable[[int], bytes]


class _TooLong(Exception):
    pass


def _stop(*_: object) -> None:
    raise _TooLong


def seconds(work: Work, data: bytes, most: float = 60.0) -> float:
    """CPU seconds that ``data`` takes, the mean of as many runs as the clock needs; infinite if one takes
    more than ``most``."""
    before = signal.signal(signal.SIGPROF, _stop)
    begun, runs, spent = time.process_time(), 0, 0.0
    try:
        while spent < TICKS:
            signal.setitimer(signal.ITIMER_PROF, most)
            work(data)
            runs += 1
            spent = time.process_time() - begun
    except _TooLong:
        return float("inf")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return spent / runs


def broken(work: Work, make: Make) -> str | None:
    """What breaks the law; None if nothing does."""
    gc.collect()
    gc.freeze()  # what a long test run holds must not be searched for garbage while this is measured
    size = SMALLEST
    work(make(16))  # what is imported, compiled and remembered at the first use
    while size < LARGEST and seconds(work, make(size)) < SECONDS:
        size *= 2
    small, large = make(size), make(FACTOR * size)
    for _ in range(3):  # one hiccup must not count
        little = min(seconds(work, small) for _ in range(2))
        most = max(ENOUGH, MOST_TIME * little)
        much = seconds(work, large, most)
        if much < float("inf"):
            break
    else:
        less = f"{1000 * little:.1f} ms for {len(small):,} bytes"
        return f"time: {less}, more than {1000 * most:.0f} ms for {len(large):,}"
    # What is slow by itself takes minutes where each allocation is counted.
    measured = small if little > ENOUGH else make(max(size, MEASURED))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work(measured)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    if peak > FIXED + BYTES_PER_BYTE * len(measured):
        return f"memory: {peak:,} bytes for {len(measured):,}"
    return None
