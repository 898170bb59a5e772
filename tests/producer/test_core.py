"""The core, step by step: one test for each thing it promises about time and place."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.producer import Delivery, DeliveryError, Pending
from kpl_codec.producer.batch import Batch, Call
from kpl_codec.producer.metrics import METRICS
from kpl_codec.producer.states import MOVES, RecordState
from kpl_codec.shards.live_shard_map import Request

from .bench import HIGH, LOW, Bench, data_of

# -- time -----------------------------------------------------------------------------------------


@pytest.mark.requirement("PRD-8", "PRD-37", "PRD-49")
@given(
    puts=st.lists(
        st.tuples(st.floats(0, 0.2), st.floats(0, 0.3), st.integers(0, 15), st.sampled_from([1, 300])),
        max_size=40,
    ),
    buffered=st.sampled_from([0, 1, 50, 100, 400]),
    ttl=st.sampled_from([500, 30_000]),
    latency=st.floats(0.001, 1),
)
@example([(0.0, 0.0, 0, 1)], 400, 500, 0.02)
def test_on_a_healthy_stream_nothing_waits_longer_than_was_asked(
    puts: list[tuple[float, float, int, int]], buffered: int, ttl: int, latency: float
) -> None:
    """``puts``: seconds since the one before, seconds that it waited for its thread, place, size."""
    times = {"record_max_buffered_time_ms": buffered, "record_ttl_ms": ttl}
    bench = Bench(8, aggregation_max_size=1000, max_connections=256, **times)
    latest: dict[bytes, float] = {}

    def answer(call: Call) -> tuple[float, Callable[[], None]]:
        for data in itertools.chain(*data_of(call)):
            assert bench.now <= latest.pop(data) + 1e-5
        return latency, partial(bench.serve, call)

    for number, (gap, waited, place, size) in enumerate(puts):
        bench.run(gap, answer)
        pending = bench.core.prepare("k", b"%d " % number + b"x" * size, place * 2**124)
        pending.token = pending.record.data
        bench.core.accept(pending, bench.now, bench.now - waited)
        latest[pending.record.data] = max(bench.now, bench.now - waited + min(buffered, ttl / 2) / 1000)
    bench.run(3, answer)
    assert not latest
    assert len(bench.results) == len(puts)


@pytest.mark.requirement("PRD-50")
@pytest.mark.parametrize("trouble", ["InternalFailure", "EndpointConnectionError", "entries", "throttled"])
def test_in_an_outage_nothing_is_aggregated_again(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: user records that are put into an aggregate. It was each of them in each attempt."""
    aggregated = 0
    add = Batch.add

    def counted(self: Batch, pending: Pending) -> bool:
        nonlocal aggregated
        aggregated += 1
        return add(self, pending)

    monkeypatch.setattr(Batch, "add", counted)
    bench = Bench(4)
    for number in range(1000):
        bench.put(b"%d" % number, number * 2**128 // 1000)
    accepted, calls = aggregated, 0
    bench.core.flush()
    while bench.now < 125:
        for call in bench.puts(0.05):
            calls += 1
            if trouble in ("entries", "throttled"):
                code = "InternalFailure" if trouble == "entries" else "ProvisionedThroughputExceededException"
                bench.core.receive(call, {"Records": [{"ErrorCode": code}] * len(call.records)}, bench.now)
            else:
                bench.fail(call, trouble)
    assert calls > 5
    assert aggregated == accepted
    bench.run(10.0)
    assert all(isinstance(result, Delivery) for result in bench.results.values())


@pytest.mark.requirement("PRD-25")
def test_a_retry_waits_half_the_buffered_time() -> None:
    bench = Bench(record_max_buffered_time_ms=1000)
    bench.put(b"1", LOW)
    bench.stream.split(0)
    bench.put(b"2", 2**126 + 1)
    bench.core.flush()
    (call,) = bench.puts()
    bench.core._lanes.urgent_below = 0
    bench.serve(call)  # misplaced: its range is unknown, the map is asked for
    bench.map()
    assert bench.core.timer() == pytest.approx(bench.now + 0.45)  # and 50 ms in the collector


@pytest.mark.requirement("PRD-72")
@pytest.mark.parametrize(
    ("first", "last", "at"),
    [
        (5.0, 5.0, 8.0),  # both end before the timeouts: 3 seconds later
        (5.0, 90.0, 10.0),  # one ends before the timeouts: then
        (20.0, 90.0, 20.0),  # the first ends after the timeouts
        (900.0, 10**15, 70.0),  # hardly any time to live: a minute after the timeouts
    ],
)
def test_when_a_call_is_given_up(first: float, last: float, at: float) -> None:
    settings = {"connect_timeout_ms": 2000, "request_timeout_ms": 8000, "record_ttl_ms": 1_000_000}
    bench = Bench(aggregation_enabled=False, **settings)
    core, begun = bench.core, bench.now
    for data, expires_at in ((b"first", first), (b"last", last)):
        pending = core.prepare("k", data)
        pending.token = data
        core.accept(pending, begun, begun + expires_at - 1000)
    core.flush()
    (call,) = bench.puts()
    core.requests(begun + at - 0.001)
    assert core.is_under_way(call)
    core.requests(begun + at)
    assert not core.is_under_way(call)
    bench.serve(call)  # comes too late
    assert core.outstanding or set(map(type, bench.results.values())) == {DeliveryError}


# -- place ----------------------------------------------------------------------------------------


@pytest.mark.requirement("PRD-31")
@pytest.mark.parametrize("outer_key", ["fixed", "buckets"])
def test_after_two_misplacements_a_record_goes_alone(outer_key: str) -> None:
    """A stream that ignores keys without saying so: aggregates never land right, bare records do."""
    bench = Bench(4, outer_key=outer_key)
    bench.stream.distribution = "AUTO"
    bench.live._describe = False
    for number in range(4):
        bench.put(b"%d" % number, number)  # all of one shard
    bench.run(20.0)
    assert all(isinstance(result, Delivery) for result in bench.results.values())
    assert len(bench.results) == 4
    tried = [bench.outcomes(b"%d" % number) for number in range(4)]
    assert all(outcomes.count("misplaced") <= 2 for outcomes in tried)
    delivered = bench.stream.delivered()
    assert all(delivered[b"%d" % number] >= 1 for number in range(4))


@pytest.mark.requirement("PRD-17", "PRD-30")
def test_a_stream_that_distributes_auto_gets_bare_records_at_once() -> None:
    bench = Bench(3, ready=False, outer_key="buckets")
    bench.stream.distribution = "AUTO"
    bench.map()
    for number in range(9):
        bench.put(b"%d" % number, key=f"k{number}")
    bench.run(0.05)
    assert len(bench.results) == 9
    assert bench.stream.delivered() == {b"%d" % number: 1 for number in range(9)}
    assert {bench.outcomes(b"%d" % number)[0] for number in range(9)} == {"delivered"}


@pytest.mark.requirement("PRT-6")
def test_records_without_a_key_are_spread_and_an_own_hash_key_is_kept() -> None:
    bench = Bench(3, aggregation_max_size=1000, ignore_keys=True)
    for number in range(300):
        bench.put(b"%05d" % number * 20, key=None if number % 2 else f"k{number}")
    own = bench.put(b"own", 2**128 - 1, key=None)
    bench.run(5.0)
    shards = Counter(r.shard_id for r in bench.results.values())  # type: ignore[union-attr]
    assert len(shards) == 3
    assert min(shards.values()) > 40
    assert own.record.explicit_hash_key == str(2**128 - 1)
    assert {outcome for data in bench.results for outcome in bench.outcomes(data)} == {"delivered"}
    stored = [r for s in bench.stream.stored for r in kpl.deaggregate([s])]
    assert {r.partition_key for r in stored} >= {"k0", "k2", "a"}


@pytest.mark.requirement("MAP-1", "PRD-17")
@pytest.mark.parametrize("key", ["k", None])
def test_a_slow_listing_after_a_split_does_not_hold_up_the_other_shards(key: str | None) -> None:
    bench = Bench(record_max_buffered_time_ms=10)
    bench.put(b"low", LOW)
    bench.put(b"beside", 2**126 + 5)
    bench.core.flush()
    (call,) = bench.puts()
    bench.stream.split(0)
    bench.serve(call)  # misplaced: the map is asked for, and does not come
    hash_key = HIGH if key else None
    for number in range(20):
        bench.put(b"%d" % number, hash_key, key=key)
    asked = [call for _ in range(5) for call in bench.calls(0.02)]
    put = [call for call in asked if not isinstance(call, Request)]
    assert [data for call in put for data in data_of(call)] == [[b"%d" % number for number in range(20)]]


@pytest.mark.requirement("PRD-6")
def test_a_kinesis_record_makes_every_move_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[tuple[RecordState, RecordState]] = set()
    becomes = Batch.becomes

    def noted(self: Batch, state: RecordState) -> None:
        made.add((self.state, state))
        becomes(self, state)

    monkeypatch.setattr(Batch, "becomes", noted)
    bench = Bench()
    for data, hash_key in ((b"low", LOW), (b"beside", 2**126 + 5), (b"high", HIGH)):
        bench.put(data, hash_key)
    bench.core.flush()
    (call,) = bench.puts()
    bench.fail(call, "ValidationException")
    low, high = bench.puts()
    bench.stream.split(0)
    bench.serve(low)
    bench.fail(high, "InternalFailure")
    bench.put(b"open", LOW)
    bench.run(10.0)
    in_one = ("open", "queued", "next", "in-flight", "stored")
    table = {(before, after) for before in in_one for after in MOVES[before] if after in in_one}
    assert made == {*table, ("open", "put")}
    with pytest.raises(RuntimeError, match="that is put cannot become next"):
        becomes(SimpleNamespace(state="put"), "next")  # type: ignore[arg-type]


@pytest.mark.requirement("PRD-33")
def test_the_metrics_have_the_kpls_names() -> None:
    kpls = """UserRecordsReceived UserRecordsPending UserRecordsPut UserRecordsDataPut KinesisRecordsPut
    KinesisRecordsDataPut ErrorsByCode AllErrors RetriesPerRecord BufferingTime RequestTime
    UserRecordsPerKinesisRecord KinesisRecordsPerPutRecordsRequest UserRecordsPerPutRecordsRequest"""
    assert set(METRICS) == {*kpls.split(), "OldestUserRecordAge", "ShardMapErrors"}


class Counting(Bench):
    """It keeps RetriesPerRecord."""

    def observe(self, name: str, value: float, attributes: Any) -> None:
        super().observe(name, value, attributes)
        if name == "RetriesPerRecord":
            self.retries[value] += 1

    retries: Counter[float]


@pytest.mark.requirement("PRD-33")
@given(st.lists(st.sampled_from(["stored", "InternalFailure", "AccessDenied", "silence"]), max_size=8))
@example(["InternalFailure"] * 8)
@example(["silence"])
def test_retries_are_the_attempts_after_the_first_of_those_that_expire_too(ends: list[str]) -> None:
    """With one call at a time others expire unsent while one is silent: they have none."""
    Counting.retries = Counter()
    bench = Counting(aggregation_enabled=False, max_connections=1, record_ttl_ms=1000, collection_max_count=1)
    left = iter(ends)

    def answer(call: Call) -> tuple[float, Callable[[], None]]:
        end = next(left, "stored")
        if end == "stored":
            return 0.01, partial(bench.serve, call)
        return 2.0 if end == "silence" else 0.2, partial(bench.fail, call, end, answered=end != "silence")

    for number in range(4):
        bench.put(b"%d" % number, LOW)
    bench.run(9, answer)
    attempts = [len(result.attempts) + result.attempts_left_out for result in bench.results.values()]
    assert len(attempts) == 4
    assert Counting.retries == Counter(max(0, one - 1) for one in attempts)


# -- strict order per partition key ----------------------------------------------------------------


@pytest.mark.requirement("PRD-26")
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([1, 100, 250, 400, 800])), max_size=12))
def test_what_holds_up_others_of_its_key_goes_out_without_waiting_for_more(
    puts: list[tuple[str, int]],
) -> None:
    """What is left of the keys that are not under way is one open aggregate, so it fits into one."""
    bench = Bench(1, ordering="partition-key", aggregation_max_size=600)
    records = [kpl.UserRecord(key, b"%06d" % n + b"x" * size) for n, (key, size) in enumerate(puts)]
    for record in records:
        bench.put(record.data, key=record.partition_key)
    calls = bench.puts() + bench.puts(0.02)  # as long as what is ready waits for other shards
    sent = {data for call in calls for aggregate in data_of(call) for data in aggregate}
    under_way = {record.partition_key for record in records if record.data in sent}
    left = [record for record in records if record.partition_key not in under_way]
    assert not left or len(kpl.encode(left)) <= 600


@pytest.mark.requirement("PRD-82")
def test_an_answer_that_was_given_before_is_no_answer() -> None:
    bench = Bench()
    before: list[Any] = []

    def proxy(call: Call) -> tuple[float, Any]:
        """Every other answer is the one before."""
        answer = before.pop() if before else bench.stream.put_records(call.records)
        before[:] = [answer] if answer not in seen else []
        seen.append(answer)
        return 0.0, lambda: (bench.core.receive(call, answer, bench.now), bench.collect())

    seen: list[Any] = []
    for number in range(20):
        bench.put(b"%d" % number)
        bench.core.flush()
        bench.run(1.0, proxy)
    bench.run(40.0)
    stored = bench.stream.delivered()
    assert all(stored[data] for data, result in bench.results.items() if isinstance(result, Delivery))
    assert any("count-mismatch" in bench.outcomes(data) for data in bench.results)
