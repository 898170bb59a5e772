"""A service that takes less than it is offered, or nothing at all, and many held user records: the costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from kpl_codec.producer import Delivery
from kpl_codec.producer.batch import Call
from kpl_codec.producer.lanes import Lane, TokenBucket

from ..examples import share
from ..steps import steps
from .bench import HIGH, LOW, Bench
from .machine import held_by
from .model import THROTTLED


def storm(bench: Bench, capacity: float, seconds: float) -> tuple[int, int]:
    """Put three times as many records a second as each shard takes of Kinesis records, ``capacity``.

    Gives the Kinesis records sent and those stored.
    """
    buckets = {shard.shard_id: TokenBucket(capacity, max(1.0, capacity / 10)) for shard in bench.stream.open}
    sent = stored = put = 0
    began = bench.now

    def answer(call: Call) -> tuple[float, Callable[[], object]]:
        nonlocal sent, stored
        entries: list[dict[str, object]] = []
        for record in call.records:
            bucket = buckets[bench.stream.route(int(record["ExplicitHashKey"])).shard_id]
            sent += 1
            if bucket.wait(1, bench.now) == 0.0:
                bucket.take(1)
                stored += 1
                entries += bench.stream.put_records([record])["Records"]
            else:
                entries.append({"ErrorCode": THROTTLED})
        return 0.03, lambda: bench.core.receive(call, {"Records": entries}, bench.now)

    while bench.now < began + seconds:
        while put < (bench.now - began) * 3 * capacity:
            if bench.core.outstanding < 3000:
                bench.put(b"%d %07d" % (began, put), LOW if put % 2 else HIGH)
            put += 1
        bench.run(0.01, answer)
    return sent, stored


@pytest.mark.requirement("PRD-43")
@pytest.mark.parametrize(
    ("capacity", "seconds"), [(20.0, 60 / share()), pytest.param(400.0, 15.0, marks=pytest.mark.slow)]
)
def test_in_a_storm_less_than_two_are_sent_for_each_that_is_stored(capacity: float, seconds: float) -> None:
    """Without adapting it is 14.7 (measured before: a fixed rate, a backoff that a success takes back)."""
    bench = Bench(aggregation_enabled=False)
    storm(bench, capacity, 10.0)  # the start: from the full rate down
    sent, stored = storm(bench, capacity, seconds)
    assert sent / stored < 2
    assert stored > 0.5 * capacity * 2 * seconds  # and what the shards take is used


@pytest.mark.requirement("PRD-43")
def test_a_rate_falls_once_for_what_was_sent_before_and_rises_by_time() -> None:
    lane = Lane("s", 100, lambda n: 0)
    for _ in range(5):
        lane.answered({"throttled"}, 1.0, 2.0)
    assert lane.share == 0.5
    lane.answered({"throttled"}, 2.0, 3.0)
    assert lane.share == 0.25
    lane.answered({"internal"}, 3.0, 4.0)
    assert lane.share == 0.25
    for tenth in range(1, 21):
        lane.answered({"delivered"}, 4.0, 3.0 + tenth / 10)
    assert lane.share == pytest.approx(0.35)
    for second in range(100):
        lane.answered({"delivered"}, 9.0, 10.0 + second)
    assert lane.share == 1.0


@pytest.mark.requirement("PRD-21")
def test_an_outage_costs_attempts_by_time_and_not_by_what_is_held() -> None:
    def sent_in_an_outage(held: int) -> int:
        bench = Bench(aggregation_enabled=False, max_outstanding_records=10_000)
        for number in range(held):
            bench.put(b"%d" % number, LOW if number % 2 else HIGH)
        sent = 0
        while bench.now < 125:
            for call in bench.puts(0.01):
                sent += len(call.records)
                bench.fail(call, "ServiceUnavailable")
        bench.run(5.0)  # and when it is over, all of it goes
        assert sum(isinstance(result, Delivery) for result in bench.results.values()) == held
        return sent - 3 * held

    assert sent_in_an_outage(3000) <= sent_in_an_outage(300) + 30 <= 80


@pytest.mark.requirement("PRD-44")
def test_a_service_that_finds_everything_invalid_is_asked_less_and_less() -> None:
    bench = Bench(record_max_buffered_time_ms=10)
    for number in range(2000):
        bench.put(b"%d" % number, LOW if number % 2 else HIGH)
    calls = 0
    while bench.core.outstanding:
        for call in bench.puts():
            calls += 1
            bench.fail(call, "ValidationException")
        timer = bench.core.timer()
        bench.now = max(bench.now + 0.001, timer or 0.0)
    bench.collect()
    outcomes = Counter(str(result.outcome) for result in bench.results.values())  # type: ignore[union-attr]
    assert set(outcomes) <= {"refused", "expired"}
    assert calls < 150
    for number in range(3):  # the first waits; that it is taken ends the waiting
        bench.put(b"good %d" % number, LOW)
        bench.core.flush()
        assert bool(bench.puts()) is (number > 0)
        bench.run(0.0 if number else 6.0)
    bench.results.pop(b"good 0")
    assert all(result.reason == "ValidationException" for result in bench.results.values())  # type: ignore[union-attr]


# -- what is held: in proportion to its number, or nothing


def turn_with_held(held: int) -> int:
    """Steps of a turn while so many user records are held behind one key."""
    bench = Bench(ordering="partition-key", max_outstanding_records=10**6)
    bench.put(b"first")
    bench.core.flush()
    bench.puts()  # under way: nothing may join it
    for number in range(held):
        bench.put(b"%d" % number, LOW)
    bench.puts()
    return steps(bench.core.requests, bench.now) + steps(bench.core.timer)


def test_held_user_records_cost_a_turn_nothing() -> None:
    assert turn_with_held(5000) < 2 * turn_with_held(10)


@pytest.mark.requirement("PRD-66")
def test_one_that_stays_keeps_nothing_of_those_that_have_left() -> None:
    """A quiet shard with an open aggregate, and a busy one whose aggregates are full and delivered."""
    bench = Bench(record_max_buffered_time_ms=600_000, record_ttl_ms=10**9, aggregation_max_size=1000)
    bench.put(b"stays", HIGH)
    for number in range(5000):
        bench.put(b"%d" % number * 100, LOW)
        bench.run(0.01)
    held, entries = held_by(bench.core)
    assert held == bench.core.outstanding < 20
    assert entries < 400
