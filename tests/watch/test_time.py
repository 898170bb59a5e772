"""A watch over time, against a model: how far it is behind, a clock that is set back, a day of faults."""

from __future__ import annotations

import gc
import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpl_codec.watch import LastHour, Limits, Watch
from kpl_codec.watch.watch_metrics import watch_metrics
from tests.examples import examples

from .model import START, ModelStream, Traffic, open_map, run, watched


@pytest.mark.slow
@pytest.mark.requirement("WCH-32", "WCH-22")
@given(part=st.floats(0.1, 2.0), since=st.sampled_from([0.0, 90.0]))
@settings(max_examples=examples(12))
def test_a_watch_that_reads_behind_reports_its_lag_and_one_that_keeps_up_does_not(part, since):
    """``part``: what the budget allows of what comes in. Lag: the age of the oldest record not yet read."""
    stream = ModelStream(open_map(2))
    rate = 4
    Traffic(stream, rate=rate).fill(START - since, START + 400)
    size = len(stream.records["shardId-000000000000"][0].data)
    watch = watched(stream, sampling_rate=1.0, since=since, limits=Limits(5, 50, size * rate * part, 1e7))
    longest = dict.fromkeys(stream.records, 0.0)

    def check(now):
        for shard_id, records in stream.records.items():
            read_to = int(watch.shards[shard_id].reading.position.sequence_number or 0)
            age = now - next(put for put in records if put.number > read_to).at_ms / 1000
            # Between two answers, as far apart as the budget asks for, it grows.
            assert age - 20 < watch.last_hour.lags.get(shard_id, 0.0) < max(0.0, age) + 3
            longest[shard_id] = max(longest[shard_id], age)
        return []

    changes = [(START + second, check) for second in range(10, 400, 5)]
    findings = run(watch, stream, START, START + 400, changes=changes)
    assert {f.kind for f in findings} <= {"lag"}  # it is polled: not "not-watched"
    assert all("this watch reads" in f.text and f.severity == "warning" for f in findings)
    for shard_id, lag in longest.items():
        if abs(lag - 60 - since) > 25:
            assert (lag > 60 + since) == any(f.shard_id == shard_id for f in findings)


@pytest.mark.requirement("WCH-32")
def test_a_watch_that_began_in_the_past_has_no_more_time_once_it_reached_the_end():
    stream = ModelStream(open_map(1))
    traffic = Traffic(stream, rate=0.5)
    traffic.fill(START - 600, START + 100)
    traffic.rate = 20
    traffic.fill(START + 100, START + 400)
    size = len(stream.records["shardId-000000000000"][0].data)
    watch = watched(stream, sampling_rate=1.0, since=600, limits=Limits(5, 50, size * 6, 1e7))
    (lag,) = run(watch, stream, START, START + 400)  # 600 s behind at first: that was asked for
    assert lag.kind == "lag"
    assert START + 160 < lag.last_seen < START + 230
    (findings,) = (m.value for m in watch_metrics(watch, START + 400) if m.name == "lag_seconds")
    assert findings == pytest.approx(200, abs=25)


@pytest.mark.requirement("WCH-35")
@pytest.mark.parametrize("sampling_rate", [0.05, 1.0])
def test_a_clock_that_was_an_hour_ahead_does_not_stop_the_watch(sampling_rate):
    stream = ModelStream(open_map(2))
    Traffic(stream, rate=5, naive=0.1).fill(START - 60, START + 300)
    watch = Watch(LastHour("orders"), sampling_rate=sampling_rate)
    ahead = 3600.0
    watch.set_shard_map(stream.shard_map, START + ahead)
    early = ModelStream(stream.shard_map, refuse=lambda call, now: "InvalidArgumentException")
    findings = run(watch, early, START + ahead, START + ahead + 30)
    findings += watch.restart(START + 30)
    findings += run(watch, stream, START + 30, START + 75)
    assert {f.shard_id for f in findings if f.kind == "naive-aggregator"} == set(watch.shards)
    assert all(reader.was_polled for reader in watch.shards.values())
    assert not {f.kind for f in findings} & {"not-watched", "duplicate"}


@pytest.mark.requirement("WCH-35", "WCH-10", "WCH-13")
@pytest.mark.parametrize(
    ("sampling_rate", "by"),
    [*((1.0, by) for by in (-7200, -45, 2, 700, 7200)), (0.05, -7200), (0.05, -2), (0.05, 2)],
)
def test_a_clock_that_is_set_neither_ends_a_finding_nor_changes_a_figure(sampling_rate, by):
    """The service has its own clock, which is right, and the watch's is wrong from some moment on."""
    stream = ModelStream(open_map(2))
    Traffic(stream, rate=2, naive=0.3).fill(START - 60, START + 330)
    watch = watched(stream, sampling_rate=sampling_rate)
    respond, wrong = stream.answer, 0
    stream.answer = lambda call, now: respond(call, now - wrong)  # type: ignore[method-assign]
    run(watch, stream, START, START + 80)
    lost = watch.last_hour.lost()
    assert "naive-aggregator" in {f.kind for f in watch.last_hour.findings()}
    wrong, now = by, START + 80 + by
    findings = watch.restart(now)
    assert watch.last_hour.lost() == lost
    findings += run(watch, stream, now, now + 200)
    assert not [f for f in findings if f.state == "resolved" or f.kind not in ("naive-aggregator", "hot-key")]
    assert all(START + 280 - read < 30 for read in stream.read_at.values())
    if sampling_rate == 1.0:
        times = [put.at_ms / 1000 for records in stream.records.values() for put in records]
        read = watch.last_hour.totals["kinesis_records"]
        assert sum(START <= at <= START + 278 for at in times) <= read <= sum(at >= START for at in times)


@pytest.mark.slow
@pytest.mark.requirement("WCH-20")
def test_five_hours_of_faults_and_losses_take_no_more_memory_than_three(monkeypatch):
    """One aggregate in twenty is naive, one call in twenty fails. What is remembered, for an hour at most, is
    all there after two."""
    monkeypatch.setattr("kpl_codec.watch.record_checks.REMEMBERED", 50)  # of 20,000: full within hours
    rng = random.Random(3)
    codes = ["InternalFailure", "ProvisionedThroughputExceededException"]
    stream = ModelStream(
        open_map(2), refuse=lambda call, now: rng.choice(codes) if rng.random() < 0.05 else None
    )
    traffic = Traffic(stream, rate=0.3, naive=0.05)
    watch = watched(stream)
    sizes = []
    tracemalloc.start()
    try:
        for minute in range(5 * 60):
            now = START + 60 * minute
            traffic.fill(now, now + 60)
            stream.forget(now - 120)
            for log in (stream.calls, stream.sizes, traffic.lost):
                log.clear()
            run(watch, stream, now, now + 60)
            if minute % 60 == 59:
                gc.collect()  # else the size depends on when it ran last
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(sizes[3:]) < 1.05 * max(sizes[1:3])
    assert watch.call_counts.polls > 5 * 3600 / 20 * 2 * 0.9
