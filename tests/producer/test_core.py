"""The core, step by step, with a clock in hand: one test for each thing it promises about time and place."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.live_shard_map import Failure, LiveShardMap, Request
from kpl_codec.producer import (
    Attempt,
    Delivery,
    DeliveryError,
    Outcome,
    Pending,
    ProducerClosed,
    ProducerConfig,
    ProducerCore,
    ProducerFull,
)
from kpl_codec.producer.collector import PutRecordsRequest
from kpl_codec.producer.limiter import MAX_BACKOFF, Lane, TokenBucket
from kpl_codec.producer.outcomes import ACTIONS, Action, outcome_of

from .model import ModelStream, chance_of

LOW, HIGH = 5, 2**127 + 5  # hash keys of the first and the second of two shards


class Bench:
    """A core, a model stream and a clock."""

    def __init__(self, shards: int = 2, *, ready: bool = True, **config: Any) -> None:
        self.now = 100.0
        self.stream = ModelStream.of(shards)
        self.live = LiveShardMap("model", shard_filter="FROM_TRIM_HORIZON")
        self.measured: Counter[str] = Counter()
        self.core = ProducerCore(ProducerConfig(**config), self.live, chance_of(3), self.observe)
        self.core.start(self.now)
        self.results: dict[bytes, Delivery | DeliveryError] = {}
        if ready:
            self.map()

    def observe(self, name: str, value: float, attributes: Any) -> None:
        self.measured[name] += value  # type: ignore[assignment]

    def put(self, data: bytes, hash_key: int | None = None, key: str | None = "k", **more: Any) -> Pending:
        pending = self.core.prepare(key, data, hash_key, **more)
        pending.token = data
        self.core.accept(pending, self.now)
        return pending

    def calls(self, wait: float = 0.0) -> list[PutRecordsRequest | Request]:
        self.now += wait
        calls = self.core.requests(self.now)
        self.collect()
        return calls

    def puts(self, wait: float = 0.0) -> list[PutRecordsRequest]:
        return [call for call in self.calls(wait) if isinstance(call, PutRecordsRequest)]

    def map(self) -> None:
        """Answer the map's calls until it asks for nothing more."""
        for _ in range(10):
            for call in self.calls():
                assert isinstance(call, Request)
                self.core.receive(call, self.stream.answer(call), self.now)

    def serve(self, call: PutRecordsRequest) -> None:
        self.core.receive(call, self.stream.put_records(call.records), self.now)
        self.collect()

    def run(self, seconds: float) -> None:
        """Let everything go well for a while, from timer to timer."""
        end = self.now + seconds
        while True:
            for call in self.calls():
                if isinstance(call, Request):
                    self.core.receive(call, self.stream.answer(call), self.now)
                else:
                    self.serve(call)
            timer = self.core.timer()
            if timer is None or timer > end:
                break
            self.now = max(self.now + 1e-6, timer)
        self.now = end
        self.collect()

    def collect(self) -> None:
        for pending, result in self.core.results():
            assert pending.token not in self.results
            self.results[pending.token] = result

    def outcomes(self, data: bytes) -> list[Outcome]:
        return [attempt.outcome for attempt in self.results[data].attempts]


def data_of(call: PutRecordsRequest) -> list[list[bytes]]:
    return [
        [r.data for r in kpl.decode(record["Data"])]
        if kpl.is_aggregated(record["Data"])
        else [record["Data"]]
        for record in call.records
    ]


# -- time -----------------------------------------------------------------------------------------


def test_an_aggregate_leaves_at_its_deadline_and_the_collector_waits_a_little() -> None:
    bench = Bench(record_max_buffered_time=100)
    bench.put(b"1", LOW)
    bench.now += 0.03
    bench.put(b"2", LOW)
    assert bench.core.timer() == pytest.approx(100.1)
    assert bench.puts(0.069) == []
    assert bench.puts(0.001) == []  # closed, now in the collector: min(50 ms, 0.2 * 100 ms) more
    assert bench.core.timer() == pytest.approx(100.12)
    (call,) = bench.puts(0.02)
    assert data_of(call) == [[b"1", b"2"]]


def test_a_full_aggregate_does_not_wait() -> None:
    bench = Bench(aggregation_max_count=3, collection_max_count=1)
    for number in range(3):
        bench.put(b"%d" % number, LOW)
    (call,) = bench.puts()
    assert data_of(call) == [[b"0", b"1", b"2"]]


def test_flush_sends_at_once_and_retries_at_once() -> None:
    bench = Bench(record_max_buffered_time=10_000)
    bench.put(b"1", LOW)
    bench.put(b"2", HIGH)
    bench.core.flush()
    (call,) = bench.puts()
    assert data_of(call) == [[b"1"], [b"2"]]
    bench.core.fail(call, Failure("InternalFailure"), bench.now, answered=True)
    bench.put(b"3", LOW)  # after the flush: may wait
    (again,) = bench.puts(0.1)
    assert sorted(data_of(again)) == [[b"1", b"3"], [b"2"]]  # 3 is company that was found


def test_retries_after_a_flush_keep_company() -> None:
    bench = Bench()
    for number in range(50):
        bench.put(b"%d" % number, LOW)
    bench.core.flush()
    (call,) = bench.puts()
    bench.core.fail(call, Failure("InternalFailure"), bench.now, answered=True)
    (again,) = bench.puts(0.1)
    assert data_of(again) == data_of(call) == [[b"%d" % number for number in range(50)]]


def test_what_was_invalid_is_not_repeated_in_the_history() -> None:
    bench = Bench()
    bench.put(b"secret", LOW)
    bench.core.flush()
    (call,) = bench.puts()
    bench.core.fail(call, Failure("ValidationException", "Value 'secret' at ..."), bench.now, answered=True)
    bench.collect()
    assert "secret" not in repr(bench.results[b"secret"])


@pytest.mark.requirement("PRD-8", "PRD-24")
def test_a_record_expires_with_its_time_to_live_and_says_what_was_tried() -> None:
    bench = Bench(record_ttl=1000)
    bench.stream.throttled = {shard.shard_id for shard in bench.stream.open}
    bench.put(b"1", LOW)
    bench.run(5.0)
    error = bench.results[b"1"]
    assert isinstance(error, DeliveryError)
    assert (error.outcome, error.code) == (Outcome.EXPIRED, "expired")
    assert set(bench.outcomes(b"1")) == {Outcome.THROTTLED}
    assert 2 <= len(error.attempts) <= 10
    assert error.attempts[-1].ended_at < 101.0 + 0.001
    assert not error.may_be_stored
    assert bench.core.outstanding == bench.core.outstanding_bytes == 0


@pytest.mark.requirement("PRD-25")
def test_a_retry_waits_half_the_buffered_time() -> None:
    bench = Bench(record_max_buffered_time=1000)
    bench.put(b"1", LOW)
    bench.stream.split(0)
    bench.put(b"2", 2**126 + 1)
    bench.core.flush()
    (call,) = bench.puts()
    bench.core._urgent_below = 0
    bench.serve(call)  # misplaced: its range is unknown, the map is asked for
    bench.map()
    assert bench.core.timer() == pytest.approx(bench.now + 0.5)


def test_expired_records_leave_an_aggregate_that_waits_and_the_others_go() -> None:
    bench = Bench(record_ttl=1000, record_max_buffered_time=0, max_connections=1, collection_max_count=1)
    bench.put(b"block", HIGH)
    (blocking,) = bench.puts()
    bench.put(b"old", LOW)
    bench.calls(0.5)
    bench.put(b"young", HIGH)
    bench.calls(0.6)  # the old one is over; the connection is still taken
    bench.serve(blocking)
    (call,) = bench.puts()
    assert data_of(call) == [[b"young"]]
    assert isinstance(bench.results[b"old"], DeliveryError)


# -- place ----------------------------------------------------------------------------------------


@pytest.mark.requirement("PRD-17")
def test_without_a_map_records_wait_a_tenth_of_their_time_and_go_alone() -> None:
    bench = Bench(ready=False, record_ttl=1000)
    bench.put(b"1", LOW)
    bench.put(b"2", LOW)
    bench.calls()
    assert bench.puts(0.05) == []
    bench.calls(0.05)
    (call,) = bench.puts(0.02)
    assert data_of(call) == [[b"1"], [b"2"]]
    bench.serve(call)
    assert bench.outcomes(b"1") == [Outcome.DELIVERED]


def test_without_a_map_that_could_come_records_do_not_wait() -> None:
    bench = Bench(ready=False)
    (request,) = bench.calls()
    assert isinstance(request, Request)
    bench.core.fail(request, Failure("ResourceNotFoundException"), bench.now, answered=True)
    bench.put(b"1", LOW)
    bench.core.flush()
    bench.now += 0.02
    (call,) = bench.puts()
    assert data_of(call) == [[b"1"]]


@pytest.mark.requirement("PRD-32")
def test_a_new_map_sends_open_aggregates_and_queues_elsewhere() -> None:
    bench = Bench(record_max_buffered_time=100)
    bench.put(b"low", 5)
    bench.put(b"high", 2**126 + 5)
    bench.stream.split(0)
    bench.live.refresh(bench.now)
    bench.map()
    bench.run(1.0)
    assert bench.outcomes(b"low") == bench.outcomes(b"high") == [Outcome.DELIVERED]
    assert bench.results[b"low"].shard_id != bench.results[b"high"].shard_id  # type: ignore[union-attr]


@pytest.mark.requirement("PRD-28")
def test_no_verdict_without_the_range_and_no_waiting_for_ever() -> None:
    """The map does not come: after half the time to live all goes out again, each record alone."""
    bench = Bench(record_ttl=10_000)
    bench.put(b"1", 5)
    bench.put(b"2", 2**126 + 5)
    bench.core.flush()
    (call,) = bench.puts()
    bench.stream.split(0)
    bench.serve(call)
    assert bench.results == {}
    silent = 0
    for _ in range(49):
        for pending in bench.calls(0.1):
            assert isinstance(pending, Request)
            silent += 1
    assert silent >= 1
    again = [call for _ in range(5) for call in bench.puts(0.1)]
    assert [data for call in again for data in data_of(call)] == [[b"1"], [b"2"]]
    for call in again:
        bench.serve(call)
    assert bench.outcomes(b"1") == [Outcome.PLACEMENT_UNKNOWN, Outcome.DELIVERED]


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
    assert all(outcomes.count(Outcome.MISPLACED) <= 2 for outcomes in tried)
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
    assert {bench.outcomes(b"%d" % number)[0] for number in range(9)} == {Outcome.DELIVERED}


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
    assert {outcome for data in bench.results for outcome in bench.outcomes(data)} == {Outcome.DELIVERED}
    stored = [r for s in bench.stream.stored for r in kpl.deaggregate([s])]
    assert {r.partition_key for r in stored} >= {"k0", "k2", "a"}


@pytest.mark.requirement("PRT-6")
def test_without_aggregation_the_partitioner_still_moves_on() -> None:
    bench = Bench(3, aggregation_enabled=False, aggregation_max_size=64)
    for number in range(60):
        bench.put(b"%030d" % number, key=None)
    bench.run(5.0)
    assert len({r.shard_id for r in bench.results.values()}) == 3  # type: ignore[union-attr]


@pytest.mark.requirement("PRD-18")
def test_no_split_parts_a_reshard_proof_aggregate() -> None:
    bench = Bench(reshard_proof=True)
    for number in range(4):
        bench.put(b"%d" % number, key=f"k{number}")
    bench.core.flush()
    (call,) = bench.puts()
    bench.stream.split(0)
    bench.stream.split(1)
    bench.serve(call)
    bench.run(1.0)
    assert len(bench.results) == 4
    assert {outcome for data in bench.results for outcome in bench.outcomes(data)} == {Outcome.DELIVERED}
    assert sum(bench.stream.delivered().values()) == 4


@pytest.mark.requirement("PRD-26")
def test_a_key_that_is_under_way_does_not_wait_for_a_map_as_well() -> None:
    """While a record of a key is in flight and the map is distrusted, the next of its key is held."""
    bench = Bench(ordering="partition-key")
    bench.put(b"1")
    bench.core.flush()
    (call,) = bench.puts()
    assert bench.live.invalidate(bench.now + 1, None, bench.now)  # a split, somewhere
    bench.put(b"2")
    bench.map()
    assert [bench.puts(0.3) for _ in range(3)] == [[], [], []]
    bench.serve(call)
    bench.run(1.0)
    numbers = [int(bench.results[data].sequence_number) for data in (b"1", b"2")]  # type: ignore[union-attr]
    assert numbers == sorted(numbers)


@pytest.mark.requirement("PRD-26")
def test_a_held_record_that_expires_does_not_let_the_next_pass() -> None:
    bench = Bench(ordering="partition-key", record_ttl=1000)
    bench.put(b"1")
    bench.core.flush()
    (call,) = bench.puts()
    bench.put(b"2")
    bench.calls(0.9)
    bench.put(b"3")
    assert bench.puts(0.2) == []  # 2 has expired, 1 is still in flight
    assert isinstance(bench.results[b"2"], DeliveryError)
    assert bench.puts(0.2) == []
    bench.serve(call)
    bench.run(0.5)
    assert isinstance(bench.results[b"3"], Delivery)


# -- outcomes -------------------------------------------------------------------------------------

CODES = [
    ("ProvisionedThroughputExceededException", Outcome.THROTTLED),
    ("KMSThrottlingException", Outcome.THROTTLED),
    ("InternalFailure", Outcome.INTERNAL),
    ("ServiceUnavailable", Outcome.INTERNAL),
    ("ExpiredTokenException", Outcome.INTERNAL),
    ("AnErrorNobodyHasHeardOf", Outcome.INTERNAL),
    ("ValidationException", Outcome.INVALID),
    ("InvalidArgumentException", Outcome.INVALID),
    ("ResourceNotFoundException", Outcome.REFUSED),
    ("AccessDeniedException", Outcome.REFUSED),
    ("KMSDisabledException", Outcome.REFUSED),
]


@pytest.mark.requirement("PRD-22")
@pytest.mark.parametrize(("code", "outcome"), CODES)
def test_each_error_code_has_its_outcome(code: str, outcome: Outcome) -> None:
    assert outcome_of(code) is outcome
    assert outcome_of(code, answered=False) is Outcome.NO_ANSWER


def test_errors_pickle() -> None:
    attempt = Attempt(Outcome.THROTTLED, 1.0, 2.0, "shardId-0", code="Throttled")
    error = DeliveryError(outcome=Outcome.EXPIRED, code="expired", attempts=(attempt,))
    again = pickle.loads(pickle.dumps(error))
    assert (again.outcome, again.attempts, str(again)) == (error.outcome, error.attempts, str(error))
    for other in (ProducerFull(records=1, bytes=2), ProducerClosed(code="forked")):
        assert pickle.loads(pickle.dumps(other)) == other


def test_every_outcome_has_an_action() -> None:
    assert set(ACTIONS) == set(Outcome)


@pytest.mark.requirement("PRD-22")
@pytest.mark.parametrize("whole_call", [True, False])
@pytest.mark.parametrize(("code", "outcome"), CODES)
def test_each_action_is_taken(code: str, outcome: Outcome, whole_call: bool) -> None:
    bench = Bench()
    bench.put(b"1", LOW)
    bench.core.flush()
    (call,) = bench.puts()
    if whole_call:
        bench.core.fail(call, Failure(code), bench.now, answered=True)
    else:
        answer = {"Records": [{"ErrorCode": code, "ErrorMessage": "because"}], "FailedRecordCount": 1}
        bench.core.receive(call, answer, bench.now)
    bench.run(10.0)
    result = bench.results[b"1"]
    if ACTIONS[outcome] is Action.BACK_OFF:
        assert isinstance(result, Delivery)
        assert bench.outcomes(b"1") == [outcome, Outcome.DELIVERED]
        assert result.attempts[0].code == code
    else:  # refused, or invalid and by itself already
        assert isinstance(result, DeliveryError)
        assert (result.outcome, result.code) == (Outcome.REFUSED, code)
        assert bench.stream.stored == []


@pytest.mark.requirement("PRD-23")
@pytest.mark.parametrize(
    "answer", [{}, {"Records": None}, {"Records": []}, {"Records": [{}, {}, {}]}, {"Records": [{}, None]}]
)
def test_an_answer_that_does_not_match_is_no_answer(answer: Any) -> None:
    bench = Bench()
    bench.put(b"1", LOW)
    bench.put(b"2", HIGH)
    bench.core.flush()
    (call,) = bench.puts()
    bench.core.receive(call, answer, bench.now)
    bench.run(10.0)
    assert bench.outcomes(b"1") == bench.outcomes(b"2") == [Outcome.COUNT_MISMATCH, Outcome.DELIVERED]


def test_fail_if_throttled() -> None:
    bench = Bench(fail_if_throttled=True)
    bench.stream.throttled = {bench.stream.open[0].shard_id}
    bench.put(b"low", LOW)
    bench.put(b"high", HIGH)
    bench.run(1.0)
    assert isinstance(bench.results[b"high"], Delivery)
    failed = bench.results[b"low"]
    assert isinstance(failed, DeliveryError)
    assert failed.outcome is Outcome.THROTTLED


@settings(max_examples=40)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.sets(st.integers(0, 11)))
def test_halving_finds_exactly_the_bad_records(shards: list[int], bad: set[int]) -> None:
    """A service that refuses every call with a bad record in it."""
    bench = Bench(4, record_max_buffered_time=0)
    for number, shard in enumerate(shards):
        word = b"bad" if number in bad else b"good"
        bench.put(word + b"%d" % number, shard * 2**126 + number)
    bench.core.flush()
    for _ in range(200):
        calls = bench.puts(0.01)
        if not calls and not bench.core.outstanding:
            break
        for call in calls:
            if any(data.startswith(b"bad") for unit in data_of(call) for data in unit):
                bench.core.fail(call, Failure("ValidationException"), bench.now, answered=True)
            else:
                bench.serve(call)
    bench.collect()
    assert len(bench.results) == len(shards)
    for data, result in bench.results.items():
        assert isinstance(result, DeliveryError if data.startswith(b"bad") else Delivery)


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.requirement("PRD-20")
@given(
    st.floats(1, 1000), st.floats(1, 1000),
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 5)), max_size=40),
)  # fmt: skip
def test_a_token_bucket_never_gives_more_than_it_has(
    rate: float, capacity: float, steps: Sequence[tuple[float, float]]
) -> None:
    bucket, now, given_away = TokenBucket(rate, capacity), 0.0, 0.0
    for cost, wait in steps:
        now += wait
        delay = bucket.wait(cost, now)
        if delay == 0.0:
            bucket.take(cost)
            given_away += cost
        else:
            now += delay
            assert bucket.wait(cost, now) == pytest.approx(0.0, abs=1e-6)
        assert given_away <= capacity + now * rate + max([cost for cost, _ in steps]) + 1e-6


@pytest.mark.requirement("PRD-20")
def test_a_shard_gets_at_most_its_rate() -> None:
    bench = Bench(1, rate_limit=100, aggregation_enabled=False, max_outstanding_records=10_000)
    for number in range(4000):
        bench.put(b"%d" % number, LOW)
    sent = []
    for _ in range(300):
        for call in bench.puts(0.01):
            sent += [bench.now] * len(call.records)
            bench.serve(call)
    at = {second: sum(1 for time in sent if time <= 100 + second) for second in (1, 2, 3)}
    assert at[1] <= 2000 + 20
    assert at[2] == pytest.approx(3000, abs=30)
    assert len(sent) == pytest.approx(4000, abs=30)


@pytest.mark.requirement("PRD-21")
@given(st.integers(0, 1023), st.integers(1, 20))
def test_backoff_doubles_is_bounded_and_starts_anew(drawn: int, failures: int) -> None:
    lane, now = Lane("s", 150, lambda n: drawn % n), 0.0
    for number in range(failures):
        lane.failed(now)
        whole = min(MAX_BACKOFF, 0.1 * 2**number)
        assert whole * 0.499 <= lane.backoff_until - now <= whole * 1.001
        until = lane.backoff_until
        lane.failed(now)  # more records of the same answer: one failure
        assert lane.backoff_until == until
        now = until
    lane.succeeded()
    lane.failed(now)
    assert lane.backoff_until - now <= 0.1001


@pytest.mark.requirement("PRD-7", "PRD-9")
def test_what_is_outstanding_is_bounded_and_nothing_is_accepted_beyond() -> None:
    bench = Bench(max_outstanding_records=3)
    for number in range(3):
        bench.put(b"%d" % number)
    with pytest.raises(ProducerFull) as caught:
        bench.put(b"4")
    assert caught.value.records == 3
    bench.run(1.0)
    bench.put(b"5")
    bench.core.close()
    with pytest.raises(ProducerClosed):
        bench.put(b"6")
    bench.run(1.0)
    assert set(bench.results) == {b"0", b"1", b"2", b"5"}


@pytest.mark.requirement("PRD-7")
def test_bytes_are_bounded_too() -> None:
    bench = Bench(max_outstanding_bytes=2**20)
    bench.put(b"x" * 700_000)
    with pytest.raises(ProducerFull):
        bench.put(b"y" * 700_000)


@pytest.mark.requirement("PRD-9")
def test_abandon_gives_every_record_its_result_wherever_it_is() -> None:
    bench = Bench(ordering="partition-key", max_connections=1, record_max_buffered_time=50)
    bench.put(b"in flight", LOW, key="a")
    bench.core.flush()
    (call,) = bench.puts()
    bench.put(b"held", LOW, key="a")
    bench.put(b"open", HIGH, key="b")
    bench.core.abandon(bench.now)
    bench.collect()
    assert {data: r.outcome for data, r in bench.results.items()} == {  # type: ignore[union-attr]
        b"in flight": Outcome.CLOSED, b"held": Outcome.CLOSED, b"open": Outcome.CLOSED
    }  # fmt: skip
    assert bench.results[b"in flight"].may_be_stored  # type: ignore[union-attr]
    assert not bench.results[b"open"].may_be_stored  # type: ignore[union-attr]
    bench.serve(call)  # the answer comes too late, and changes nothing
    bench.core.fail(call, Failure("ValidationException"), bench.now, answered=True)
    assert bench.core.outstanding == 0
    assert not bench.core.results()


@pytest.mark.requirement("PRD-22")
def test_at_most_so_many_calls_at_a_time() -> None:
    bench = Bench(max_connections=2, collection_max_count=1, record_max_buffered_time=0)
    for number in range(6):
        bench.put(b"%d" % number, LOW if number % 2 else HIGH, key=f"k{number}")
        bench.calls()
    assert len(bench.core._in_flight) == 2


@pytest.mark.requirement("PRD-33")
def test_every_metric_name_is_one_of_the_kpls() -> None:
    from kpl_codec.producer import METRICS

    bench = Bench()
    bench.stream.throttled = {bench.stream.open[0].shard_id}
    bench.put(b"1", LOW)
    bench.put(b"2", HIGH)
    bench.run(1.0)
    bench.stream.throttled = set()
    bench.run(20.0)
    assert set(bench.measured) == set(METRICS)
    assert bench.measured["UserRecordsReceived"] == bench.measured["UserRecordsPut"] == 2
    assert bench.measured["UserRecordsDataPut"] == 2
    assert bench.measured["AllErrors"] == bench.measured["RetriesPerRecord"] > 0
