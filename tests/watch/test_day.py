"""A day takes no more memory than half a day."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Iterator

import pytest

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
            gc.collect()  # else what is metrics depends on when it ran last
            yield watch


@pytest.mark.slow
@pytest.mark.requirement("WCH-20")
def test_a_day_of_faults_and_losses_takes_no_more_memory_than_half_a_day(monkeypatch):
    monkeypatch.setattr("kpl_codec.watch.record_checks.REMEMBERED", 200)  # of 20,000: full within hours
    sizes, polls = [], 0
    tracemalloc.start()
    try:
        for watch in simulated_day(rate=0.3):
            sizes.append(tracemalloc.get_traced_memory()[0])
            polls = watch.call_counts.polls
    finally:
        tracemalloc.stop()
    assert max(sizes[18:]) < 1.05 * max(sizes[12:18])
    assert polls > 24 * 3600 / 20 * 2 * 0.9
