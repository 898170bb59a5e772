"""Hash keys: ranges and the three forms. The numbers of the articles are in spec/vectors/hash-keys.json."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.format.hash_keys import (
    format_hash_key,
    hash_key_from_bytes,
    hash_key_to_bytes,
    java_integer,
    parse_hash_key,
)

MAX = 340282366920938463463374607431768211455


@pytest.mark.requirement("KEY-7")
@given(st.integers(1, 300), st.integers(0, 2**100), st.integers(300, 2**127))
def test_a_split_tiles_the_range(n: int, start: int, size: int) -> None:
    whole = kpl.HashKeyRange(start, start + size - 1)
    parts = whole.split(n)
    assert len(parts) == n
    assert parts[0].starting_hash_key == start
    assert parts[-1].ending_hash_key == whole.ending_hash_key
    for left, right in itertools.pairwise(parts):
        assert left.ending_hash_key + 1 == right.starting_hash_key
        assert not left.overlaps(right)
    assert {part.size for part in parts[:-1]} <= {size // n}


def test_java_integers_of_any_length() -> None:
    assert java_integer("0" * 9000 + "5") == 5
    assert java_integer("-" + "0" * 9000) == 0
    assert (java_integer("7" * 9000) or 0) > MAX
    assert (java_integer("-" + "7" * 9000) or 0) < 0


@pytest.mark.requirement("KEY-5", "KEY-7")
def test_a_hash_key_is_a_whole_number() -> None:
    for wrong in (1.0, float("nan"), "1"):
        for function in (format_hash_key, lambda key: kpl.HashKeyRange(key, key)):
            with pytest.raises((TypeError, kpl.HashKeyError)):
                function(wrong)
    assert format_hash_key(True) == "1"


@pytest.mark.requirement("KEY-1", "KEY-5", "KEY-6")
@given(st.integers(0, MAX), st.integers(0, MAX))
def test_the_three_forms_of_a_hash_key(a: int, b: int) -> None:
    assert parse_hash_key(format_hash_key(a)) == a
    assert hash_key_from_bytes(hash_key_to_bytes(a)) == a
    assert (hash_key_to_bytes(a) < hash_key_to_bytes(b)) == (a < b)
