"""What comes of a user record in the core: outcomes, what is done about them, and limits."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kpl_codec.producer import Attempt, Delivery, DeliveryError, Outcome, Put
from kpl_codec.producer.answers import parse_put_records
from kpl_codec.producer.lanes import BACKOFF, Lane, TokenBucket
from kpl_codec.producer.results import ACTIONS, MAY_BE_STORED, NO_HISTORY
from kpl_codec.rendering.labels import plural
from tests.examples import examples

from ..every import every
from .bench import LOW, Bench, data_of

# -- outcomes -------------------------------------------------------------------------------------

CODES = [
    ("ProvisionedThroughputExceededException", "throttled"),
    ("InternalFailure", "internal"),
    ("ExpiredTokenException", "unauthenticated"),
    ("AnErrorNobodyHasHeardOf", "internal"),
    ("ValidationException", "invalid"),
    ("ResourceNotFoundException", "refused"),
]


@pytest.mark.requirement("PRD-22")
@every("code, outcome, whole_call", [(*code, whole) for code in CODES for whole in (True, False)])
def test_each_action_is_taken(code: str, outcome: Outcome, whole_call: bool) -> None:
    bench = Bench()
    bench.put(b"1", LOW)
    bench.core.flush()
    (call,) = bench.puts()
    if whole_call:
        bench.fail(call, code)
    else:
        answer = {"Records": [{"ErrorCode": code, "ErrorMessage": "because"}], "FailedRecordCount": 1}
        bench.core.receive(call, answer, bench.now)
    bench.run(10.0)
    result = bench.results[b"1"]
    if ACTIONS[outcome] == "back-off":
        assert isinstance(result, Delivery)
        assert bench.outcomes(b"1") == [outcome, "delivered"]
        assert result.attempts[0].code == code
    else:  # refused, or invalid and by itself already
        assert isinstance(result, DeliveryError)
        assert (result.outcome, result.code) == ("refused", code)
        assert bench.stream.stored == []


@pytest.mark.requirement("LIN-1", "PRD-10")
@given(st.text() | st.from_regex(r"[0-9]{0,130}", fullmatch=True))
@example("x")
@example("1" * 130)
def test_only_what_has_a_sequence_number_is_stored(number: str) -> None:
    (entry,) = parse_put_records({"Records": [{"ShardId": "s", "SequenceNumber": number}]}, 1)
    assert (entry.outcome == "delivered") is bool(re.fullmatch("0|[1-9][0-9]{0,128}", number))


@settings(max_examples=examples(40))
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.sets(st.integers(0, 11)))
def test_exactly_the_bad_records_are_refused(shards: list[int], bad: set[int]) -> None:
    """A service that refuses every call with a bad record in it."""
    bench = Bench(4, record_max_buffered_time_ms=0)
    for number, shard in enumerate(shards):
        word = b"bad" if number in bad else b"good"
        bench.put(word + b"%d" % number, shard * 2**126 + number)
    bench.core.flush()
    for _ in range(200):
        calls = bench.puts(0.3)
        if not calls and not bench.core.outstanding:
            break
        for call in calls:
            if any(data.startswith(b"bad") for batch in data_of(call) for data in batch):
                bench.fail(call, "ValidationException")
            else:
                bench.serve(call)
    bench.collect()
    assert len(bench.results) == len(shards)
    for data, result in bench.results.items():
        assert isinstance(result, DeliveryError if data.startswith(b"bad") else Delivery)


@pytest.mark.requirement("PRD-42")
@given(st.lists(st.sampled_from(sorted(ACTIONS)), min_size=11, max_size=30) | st.just([]))
def test_of_many_attempts_the_first_and_the_last_are_kept(outcomes: list[Outcome]) -> None:
    attempts = [Attempt(outcome, n, n, None, code=f"Error{n}") for n, outcome in enumerate(outcomes)]
    history = NO_HISTORY
    for attempt in attempts:
        history = history.with_attempt(attempt)
    left_out = attempts[3:-7]
    assert list(history.attempts) == [one for one in attempts if one not in left_out]
    assert history.left_out == len(left_out)
    assert history.may_be_stored is any(one.outcome in MAY_BE_STORED for one in left_out)
    assert history.not_stored is not any(outcome in MAY_BE_STORED for outcome in outcomes)
    assert history.misplaced == outcomes.count("misplaced")
    error = DeliveryError(
        user_record=Put("k", b"x"), outcome="closed", code="closed", attempts=history.attempts,
        attempts_left_out=history.left_out, left_out_may_be_stored=history.may_be_stored,
    )  # fmt: skip
    assert error.may_be_stored is not history.not_stored
    assert f"after {plural(len(outcomes), 'attempt')}" in str(error)


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
@pytest.mark.parametrize(("size", "in_1_s", "in_2_s"), [(5, 2000, 3000), (2**15, 352, 384)])
def test_a_shard_gets_at_most_its_rate(size: int, in_1_s: int, in_2_s: int) -> None:
    """``size``: of a Kinesis record, with its key."""
    bench = Bench(1, rate_limit=100, aggregation_enabled=False, max_outstanding_records=10_000)
    for number in range(in_2_s + 100):
        bench.put(b"%04d" % number + b"x" * (size - 5), LOW)
    bench.run(1.0)
    assert len(bench.results) == pytest.approx(in_1_s, abs=30)
    bench.run(1.0)
    assert len(bench.results) == pytest.approx(in_2_s, abs=30)


@pytest.mark.requirement("PRD-21")
@given(st.integers(0, 1023), st.integers(1, 20))
def test_backoff_doubles_is_bounded_and_starts_anew(drawn: int, failures: int) -> None:
    lane, now = Lane("s", 150, lambda n: drawn % n), 0.0

    def answer(failed: bool) -> None:
        lane.answered({"internal" if failed else "delivered"}, now, now)

    lane.answered({"internal", "delivered"}, now, now)  # something of the shard was stored, and is no rest
    assert lane.backoff_until > now
    answer(False)

    for number in range(failures):
        answer(True)
        whole = min(BACKOFF.most, 0.1 * 2**number)
        assert whole * 0.499 <= lane.backoff_until - now <= whole * 1.001
        until = lane.backoff_until
        answer(True)  # another call that ran beside it: one failure
        assert lane.backoff_until == until
        now = until
    answer(False)
    answer(True)
    assert lane.backoff_until - now <= 0.1001
