"""Hash keys: the worked numbers of both articles, and Java's reading of integers."""

from __future__ import annotations

import hashlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.format.hash_keys import (
    explicit_hash_key_value,
    format_hash_key,
    hash_key_from_bytes,
    hash_key_to_bytes,
    java_integer,
    parse_hash_key,
    partition_key_hash,
)

HALF = 170141183460469231731687303715884105728
MAX = 340282366920938463463374607431768211455

# The article on explicit hash keys prints the hash keys of "1" to "14".
ARTICLE = [
    261578874264819908609102035485573088411,
    266003691477286198901011725417809479212,
    314755909755515592000481005244904880883,
    223974724102701384270894320508706361900,
    304197110536387568331823853743770900693,
    29871468615243985478486908056489800412,
    190188081314515644627836686569786975555,
    268426020319259673719831598091001013101,
    92737277766069325975379119957797678374,
    281595222973318803755638905082365601824,
    134349327668835346876933282647662472650,
    257926471090385021762358474659294308112,
    262007925198482523730006737380068994873,
    226898901170458510997176709786703486038,
]


@pytest.mark.requirement("KEY-1", "KEY-2")
def test_the_article_on_explicit_hash_keys() -> None:
    assert [partition_key_hash(str(n)) for n in range(1, 15)] == ARTICLE
    for n, first, second in [(14, 3, 11), (24, 9, 15), (49, 23, 26), (99, 45, 54)]:
        low = sum(partition_key_hash(str(x)) < HALF for x in range(1, n + 1))
        assert (low, n - low) == (first, second)


@pytest.mark.requirement("KEY-2", "KEY-7")
def test_the_article_on_shard_assignment() -> None:
    key = "partition-key-0001"
    assert hashlib.md5(key.encode()).hexdigest() == "b7681e2243f62f440887b6d38c002537"
    assert partition_key_hash(key) == 243789333289005976465737331408549979447
    two, four = kpl.ALL_HASH_KEYS.split(2), kpl.ALL_HASH_KEYS.split(4)
    assert two == [kpl.HashKeyRange(0, HALF - 1), kpl.HashKeyRange(HALF, MAX)]
    assert four == [
        kpl.HashKeyRange(0, 85070591730234615865843651857942052863),
        kpl.HashKeyRange(85070591730234615865843651857942052864, HALF - 1),
        kpl.HashKeyRange(HALF, 255211775190703847597530955573826158591),
        kpl.HashKeyRange(255211775190703847597530955573826158592, MAX),
    ]
    assert [partition_key_hash(key) in r for r in four] == [False, False, True, False]


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


@pytest.mark.requirement("KEY-7")
@pytest.mark.parametrize(("start", "end"), [(1, 0), (-1, 5), (0, 2**128)])
def test_ranges_that_are_none(start: int, end: int) -> None:
    with pytest.raises(kpl.HashKeyError):
        kpl.HashKeyRange(start, end)


def test_a_range_cannot_be_cut_finer_than_its_keys() -> None:
    assert len(kpl.HashKeyRange(5, 7).split(3)) == 3
    for n in (0, 4):
        with pytest.raises(kpl.HashKeyError):
            kpl.HashKeyRange(5, 7).split(n)


@pytest.mark.requirement("KEY-3")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("-0", 0), ("+5", 5), ("0005", 5), ("010", 10), ("\u0665", 5), ("\uff15", 5),
        (str(MAX), MAX), ("0" * 250 + "7", 7),
    ],
)  # fmt: skip
def test_explicit_hash_keys_that_are_read(text: str, value: int) -> None:
    assert explicit_hash_key_value(text) == value == kpl.effective_hash_key("k", text)


@pytest.mark.requirement("KEY-3", "MSG-9")
@pytest.mark.parametrize(
    "text",
    ["", "+", "-", "--5", "+-5", " 5", "5 ", "5\n", "5.0", "1_0", "0x10", "abc", "-5", str(MAX + 1),
     "9" * 300, "0" * 300, "\U0001d7ce", "\u00b2"],
)  # fmt: skip
def test_explicit_hash_keys_that_are_none(text: str) -> None:
    with pytest.raises(kpl.HashKeyError):
        explicit_hash_key_value(text)


def test_java_integers_of_any_length() -> None:
    assert java_integer("0" * 9000 + "5") == 5
    assert java_integer("-" + "0" * 9000) == 0
    assert (java_integer("7" * 9000) or 0) > MAX
    assert (java_integer("-" + "7" * 9000) or 0) < 0


@pytest.mark.requirement("KEY-5")
@pytest.mark.parametrize(
    "text", ["", "00", "007", "+5", "-0", " 5", "5\n", "٥", str(MAX + 1), "1" * 40, 5, None]
)
def test_aws_writes_hash_keys_canonically(text: object) -> None:
    with pytest.raises(kpl.HashKeyError):
        parse_hash_key(text)  # type: ignore[arg-type]


@pytest.mark.requirement("KEY-1", "KEY-5", "KEY-6")
@given(st.integers(0, MAX), st.integers(0, MAX))
def test_the_three_forms_of_a_hash_key(a: int, b: int) -> None:
    assert parse_hash_key(format_hash_key(a)) == a
    assert hash_key_from_bytes(hash_key_to_bytes(a)) == a
    assert (hash_key_to_bytes(a) < hash_key_to_bytes(b)) == (a < b)


@pytest.mark.requirement("KEY-1", "KEY-6")
@pytest.mark.parametrize("number", [-1, 2**128])
def test_numbers_outside_the_space(number: int) -> None:
    for form in (format_hash_key, hash_key_to_bytes):
        with pytest.raises(kpl.HashKeyError):
            form(number)
    with pytest.raises(kpl.HashKeyError):
        hash_key_from_bytes(b"x" * 15)


@pytest.mark.requirement("KEY-4")
def test_an_explicit_hash_key_goes_before_the_partition_key() -> None:
    assert kpl.effective_hash_key("a") == 16955237001963240173058271559858726497
    assert kpl.effective_hash_key("a", "0") == 0
    with pytest.raises(kpl.HashKeyError):
        kpl.effective_hash_key("\ud800")
