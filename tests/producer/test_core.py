"""The core, step by step: one test for each thing it promises about time and place."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.producer import Delivery
from kpl_codec.producer.batch import Call
from kpl_codec.producer.metrics import METRICS
from kpl_codec.shards.live_shard_map import Failure, Request

from .bench import LOW, Bench, data_of
from .model import THROTTLED

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
def test_in_an_outage_nothing_is_aggregated_again(trouble: str) -> None:
    """More is put meanwhile, and joins nothing that was tried."""
    bench = Bench(4)
    tried: Counter[bytes] = Counter()
    for step in range(500):
        for place in range(16 if step < 50 else 0):
            bench.put(b"%d %d" % (step, place), place * 2**124)
        for call in bench.puts(0.05):
            tried.update(record["Data"] for record in call.records)
            if trouble in ("entries", "throttled"):
                code = "InternalFailure" if trouble == "entries" else THROTTLED
                bench.core.receive(call, {"Records": [{"ErrorCode": code}] * len(call.records)}, bench.now)
            else:
                bench.fail(call, trouble)
    assert tried.total() > len(tried) + 5
    bench.run(10.0)
    assert tried.keys() <= {record.data for record in bench.stream.stored}
    assert all(isinstance(result, Delivery) for result in bench.results.values())


# -- place ----------------------------------------------------------------------------------------


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


@pytest.mark.requirement("PRT-9")
@pytest.mark.parametrize("known", [True, False], ids=["AUTO", "no map"])
@given(st.lists(st.sampled_from([THROTTLED, "EndpointConnectionError", "InternalFailure"]), max_size=6))
def test_without_a_prediction_a_user_record_without_a_key_goes_elsewhere_until_it_may_be_stored(
    known: bool, codes: list[str]
) -> None:
    bench = Bench(ready=False, record_ttl_ms=1_000_000)
    bench.stream.distribution = "AUTO"
    if known:
        bench.map()
    bench.put(b"", key=None)
    places: list[str] = []
    for code in [*codes, THROTTLED]:
        calls: list[Call] = []
        while not calls:
            calls = bench.puts(1.0)
        places.append(calls[0].records[0]["ExplicitHashKey"])
        bench.fail(calls[0], code)
    may_be_stored = [*codes, "InternalFailure"].index("InternalFailure")
    assert len(set(places[: may_be_stored + 1])) == may_be_stored + 1
    assert len(set(places[may_be_stored:])) == 1


@pytest.mark.requirement("PRT-9")
@pytest.mark.parametrize("split", [False, True], ids=["no split", "split"])
@given(st.floats(0.01, 1))
def test_user_records_without_a_key_leave_a_shard_once_another_takes_records(
    split: bool, seconds: float
) -> None:
    """Both have failed, so they had no other to go to then. Then the first takes records, or its children."""
    bench = Bench(2, aggregation_max_size=64, collection_max_count=1)
    for number in range(40):
        bench.put(b"%d" % number, key=None)
    bench.core.flush()
    steps_since = 0
    while steps_since < 40:
        steps_since += bool(bench.results) or len(bench.live.routes.shard_ids) == 3
        if split and bench.now >= 100 + seconds and len(bench.stream.open) == 2:
            bench.stream.split(0)
            bench.live.refresh(bench.now)
        for call in bench.calls(0.001):
            if isinstance(call, Request):
                bench.core.receive(call, bench.stream.answer(call), bench.now)
                continue
            entries: list[dict[str, str]] = []
            for record in call.records:
                sick = bench.now < 100 + seconds or int(record["ExplicitHashKey"]) >= 2**127
                answer = bench.stream.put_records([] if sick else [record])
                entries += [{"ErrorCode": "ExpiredTokenException"}] if sick else answer["Records"]
            bench.core.receive(call, {"Records": entries}, bench.now)
            bench.collect()
    assert len(bench.results) == 40


@pytest.mark.requirement("PRD-33")
def test_the_metrics_have_the_kpls_names() -> None:
    kpls = """UserRecordsReceived UserRecordsPending UserRecordsPut UserRecordsDataPut KinesisRecordsPut
    KinesisRecordsDataPut ErrorsByCode AllErrors RetriesPerRecord BufferingTime RequestTime
    UserRecordsPerKinesisRecord KinesisRecordsPerPutRecordsRequest UserRecordsPerPutRecordsRequest"""
    assert set(METRICS) == {*kpls.split(), "OldestUserRecordAge", "ShardMapErrors"}


@pytest.mark.requirement("PRD-33")
def test_a_map_that_cannot_be_had_is_measured_and_logged() -> None:
    bench = Bench(ready=False)
    for _ in range(2):  # the stream's summary, then its shards
        for call in bench.calls():
            bench.core.fail(call, Failure("AccessDeniedException"), bench.now, answered=True)
    assert bench.measured["ShardMapErrors", 1] == 1
    lines = bench.core.reports.failing_calls.take()
    assert ("warning", "ListShards") in [(level, facts["operation"]) for level, _, facts in lines]


@pytest.mark.requirement("PRD-33")
@given(st.lists(st.sampled_from(["stored", "InternalFailure", "AccessDenied", "silence"]), max_size=8))
@example(["InternalFailure"] * 8)
@example(["silence"])
def test_retries_are_the_attempts_after_the_first_of_those_that_expire_too(ends: list[str]) -> None:
    """With one call at a time others expire unsent while one is silent: they have none."""
    bench = Bench(aggregation_enabled=False, max_connections=1, record_ttl_ms=1000, collection_max_count=1)
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
    retries = {value: n for (name, value), n in bench.measured.items() if name == "RetriesPerRecord"}
    assert retries == Counter(max(0, one - 1) for one in attempts)


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
