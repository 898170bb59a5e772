"""The law of time and memory: on input of any kind, both are at most linear in its size.

    python -m fuzz.growth                       every target of `fuzz.targets` that has inputs to grow
    python -m fuzz.growth captures decode       these

Each kind of input, sound, damaged and hostile, is measured at a size and at eight times that size, up to
three times, so that a busy machine is not taken for a defect: linear work takes 8 times the CPU time,
quadratic 64, and more than 32 breaks the law. Of memory the peak of what Python allocates
counts, per byte of input. Exit code 1 if the law is broken.
"""

from __future__ import annotations

import argparse
import gc
import signal
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Final

from .targets import TARGETS

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
FIXED: Final = 4_000_000
MEASURED: Final = 20_000

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
    try:
        return _broken(work, make)
    finally:
        gc.unfreeze()


def _broken(work: Work, make: Make) -> str | None:
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
    measured = make(max(size, MEASURED))
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


def check(names: list[str]) -> Iterator[tuple[str, str, str | None]]:
    """Target, kind of input, and what breaks the law, if anything does."""
    for name in names:
        target = TARGETS[name]
        for kind, make in target.grown.items():
            yield name, kind, broken(target.work or target.run, make)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(sorted(TARGETS))}")
    args = parser.parse_args()
    bad = count = 0
    for name, kind, found in check(args.targets or list(TARGETS)):
        count += 1
        if found is not None:
            bad += 1
            print(f"{name}: {kind}: {found}", flush=True)
    print(f"{count} kinds of input, {bad} of them break the law")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
