"""Waits after failures, and what error codes mean."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.aws_errors import Backoff, error_kind, is_permanent


@given(st.floats(0.001, 10), st.floats(10, 1000), st.floats(1, 3), st.integers(0, 10**6), st.floats(0, 0.999))
def test_a_wait_grows_to_its_limit_and_chance_takes_at_most_half(
    first: float, most: float, factor: float, failures: int, chance: float
) -> None:
    backoff = Backoff(first, most, factor)
    whole = backoff.seconds(failures)
    assert first <= whole <= most
    assert whole <= backoff.seconds(failures + 1)
    assert whole / 2 <= backoff.seconds(failures, chance) <= whole


def test_waits_by_hand() -> None:
    assert [Backoff(0.5, 3).seconds(failures) for failures in range(5)] == [0.5, 1, 2, 3, 3]
    assert Backoff(1, 30, 1.5).seconds(2, 0.5) == 1.6875


def test_kinds_of_codes() -> None:
    assert error_kind("ProvisionedThroughputExceededException") == "throttled"
    assert error_kind("ConnectTimeoutError") == "not-sent"
    assert error_kind("InternalFailure") == error_kind("never seen") == "other"
    assert [is_permanent(code) for code in ("AccessDenied", "ValidationException", "NoCredentialsError")] == [
        True
    ] * 3
    assert not is_permanent("ThrottlingException")
