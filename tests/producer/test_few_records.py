"""Shards that get few user records: their aggregates wait longer, others do not."""

from __future__ import annotations

import pytest

from kpl_codec.producer import Delivery

from .bench import HIGH, LOW, Bench, data_of

FEW = {"aggregation_min_count": 3, "aggregation_max_buffered_time_ms": 2000}


def sent(bench: Bench, wait: float = 0.0) -> list[list[bytes]]:
    calls = bench.puts(wait)
    for call in calls:
        bench.serve(call)
    return [record for call in calls for record in data_of(call)]


def warm(bench: Bench) -> None:
    """One user record on each shard, delivered."""
    bench.put(b"low", LOW)
    bench.put(b"high", HIGH)
    assert sent(bench, 0.08) == []  # they wait for those of other shards
    assert sorted(sent(bench, 0.02)) == [[b"high"], [b"low"]]


@pytest.mark.requirement("PRD-48")
def test_few_wait_for_more_and_enough_do_not() -> None:
    bench = Bench(**FEW)
    warm(bench)
    bench.put(b"1", LOW)
    for number in range(3):
        bench.put(b"h%d" % number, HIGH)
    assert sent(bench, 0.09) == []
    assert sent(bench, 0.02) == [[b"h0", b"h1", b"h2"]]  # enough: no longer than ever
    bench.put(b"2", LOW)
    assert sent(bench, 0.5) == []
    bench.put(b"3", LOW)  # the third: nothing more to wait for
    assert sent(bench) == []
    assert sent(bench, 0.03) == [[b"1", b"2", b"3"]]
    bench.put(b"4", LOW)
    assert sent(bench, 1.9) == []
    assert sent(bench, 0.1) == [[b"4"]]
    assert all(isinstance(result, Delivery) for result in bench.results.values())


@pytest.mark.requirement("PRD-48")
def test_a_shard_that_gets_hardly_any_does_not_wait_in_vain() -> None:
    bench = Bench(**FEW)
    for number in range(5):
        bench.put(b"%d" % number, LOW)
        bench.calls(0.08)
        assert sent(bench, 0.03) == [[b"%d" % number]]
        bench.now += 2.1


@pytest.mark.requirement("PRD-48")
def test_a_flush_and_a_retry_do_not_wait() -> None:
    bench = Bench(**FEW)
    warm(bench)
    bench.put(b"1", LOW)
    bench.core.flush()
    assert sent(bench) == [[b"1"]]
    bench.put(b"2", LOW)
    assert sent(bench, 0.5) == []
    bench.core.flush()
    (call,) = bench.puts()
    bench.core.receive(call, {"Records": [{"ErrorCode": "InternalFailure"}]}, bench.now)
    bench.core._placer.urgent_below = 0
    assert [record for _ in range(10) for record in sent(bench, 0.03)] == [[b"2"]]


@pytest.mark.requirement("PRD-37", "PRD-48")
def test_nothing_waits_longer_than_half_its_time_to_live() -> None:
    bench = Bench(aggregation_min_count=100, aggregation_max_buffered_time_ms=10**15, record_ttl_ms=4000)
    warm(bench)
    bench.put(b"1", LOW)
    assert sent(bench, 1.9) == []
    assert sent(bench, 0.1) == [[b"1"]]
