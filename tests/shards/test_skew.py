"""Shards far above the mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.shards.skew import overloaded_shards


@given(st.dictionaries(st.text(), st.integers(0, 1000), min_size=1), st.integers(0, 5000))
def test_a_shard_is_skewed_above_twice_the_mean_of_enough_user_records(
    loads: dict[str, float], user_records: int
) -> None:
    times = {shard_id: load * len(loads) / sum(loads.values()) for shard_id, load in loads.items() if load}
    enough = user_records >= 100 * len(loads)
    expected = {shard_id: ratio for shard_id, ratio in times.items() if ratio > 2} if enough else {}
    assert dict(overloaded_shards(loads, user_records)) == pytest.approx(expected)


def test_the_bounds_of_skew() -> None:
    three = {"a": 6.0, "b": 2.0, "c": 1.0}
    assert dict(overloaded_shards(three, 300)) == {}  # exactly twice the mean
    assert dict(overloaded_shards({**three, "a": 6.3}, 300)) == {"a": pytest.approx(6.3 / 3.1)}
    assert dict(overloaded_shards({**three, "a": 6.3}, 299)) == {}
    assert dict(overloaded_shards({}, 1000)) == {}
