"""A simulated day of a watch, with faults and losses, and the memory of this process hour by hour.

python -m tests.watch.day
"""

from __future__ import annotations

import gc
import random
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from kpl_codec.watch import Watch

from .model import START, ModelStream, open_map, run
from .test_watch import Traffic, watched


def simulated_day(rate: float) -> Iterator[Watch]:
    """The watch after each of 24 hours. ``rate``: aggregates a second on each of two shards, one in twenty
    naive; one call in twenty fails."""
    rng = random.Random(3)
    codes = ["InternalFailure", "ProvisionedThroughputExceededException"]
    stream = ModelStream(
        open_map(2), refuse=lambda call, now: rng.choice(codes) if rng.random() < 0.05 else None
    )
    traffic = Traffic(stream, rate=rate, naive=0.05)
    watch = watched(stream)
    for minute in range(24 * 60):
        now = START + 60 * minute
        traffic.fill(now, now + 60)
        stream.forget(now - 120)
        stream.calls.clear()
        stream.sizes.clear()
        traffic.lost.clear()
        run(watch, stream, now, now + 60)
        if minute % 60 == 59:
            gc.collect()  # else what is measured depends on when it ran last
            yield watch


def resident_bytes() -> int:
    """Of this process now; where there is no /proc, the most it ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    """One line for each hour."""
    print("hour   resident MB   looks   Kinesis records judged   open findings")
    for hour, watch in enumerate(simulated_day(rate=20.0), 1):
        judged = watch.last_hour.totals["kinesis_records"]
        found = len(watch.last_hour.findings())
        size = resident_bytes() / 1e6
        print(f"{hour:4}   {size:11.1f}   {watch.measured.looks:5,}   {judged:22,}   {found:13}")


if __name__ == "__main__":
    main()
