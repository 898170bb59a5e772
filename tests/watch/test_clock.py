"""A clock that is set back while a watch runs."""

from __future__ import annotations

import pytest

from kpl_codec.watch import LastHour, Watch

from .model import START, ModelStream, open_map, run
from .test_watch import Traffic


@pytest.mark.requirement("WCH-35")
@pytest.mark.parametrize("sampling_rate", [0.05, 1.0])
def test_a_clock_that_is_set_back_does_not_stop_the_watch(sampling_rate):
    stream = ModelStream(open_map(2))
    traffic = Traffic(stream, rate=5, naive=0.1)
    traffic.fill(START - 60, START + 300)
    watch = Watch(LastHour("orders"), sampling_rate=sampling_rate)
    ahead = 3600.0  # the clock is an hour ahead, then it is set

    watch.set_shard_map(stream.shard_map, START + ahead)
    early = ModelStream(stream.shard_map, refuse=lambda call, now: "InvalidArgumentException")
    run(watch, early, START + ahead, START + ahead + 30)
    watch.restart(START + 30)
    found = run(watch, stream, START + 30, START + 75)
    assert {f.shard_id for f in found if f.kind == "naive-aggregator"} == set(watch.shards)
    assert all(state.polls for state in watch.shards.values())
    assert not [f for f in found if f.kind == "not-watched"]
    # Read again from a little earlier, and nothing counted twice.
    found = watch.restart(START + 75) + run(watch, stream, START + 75, START + 120)
    assert not {f.kind for f in found} & {"not-watched", "duplicate"}
    assert watch.last_hour.totals["reread"] or sampling_rate < 1
    # Nothing is left of what was counted by the wrong clock.
    assert {f.state for f in watch.restart(START + 75 - ahead)} == {"resolved"}
    assert not watch.last_hour.findings()
    assert not watch.last_hour.by_shard
