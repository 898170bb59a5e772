"""A day takes no more memory than half a day."""

from __future__ import annotations

import tracemalloc

import pytest

from .day import simulated_day


@pytest.mark.slow
@pytest.mark.requirement("WCH-20")
def test_a_day_of_faults_and_losses_takes_no_more_memory_than_half_a_day(monkeypatch):
    monkeypatch.setattr("kpl_codec.watch.judging.REMEMBERED", 200)  # of 20,000: full within hours
    sizes, looks = [], 0
    tracemalloc.start()
    try:
        for watch in simulated_day(rate=0.3):
            sizes.append(tracemalloc.get_traced_memory()[0])
            looks = watch.measured.looks
    finally:
        tracemalloc.stop()
    assert max(sizes[18:]) < 1.05 * max(sizes[12:18])
    assert looks > 24 * 3600 / 20 * 2 * 0.9
