"""Order of sequence numbers, and the hints in real ones."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.shards.sequence_numbers import (
    AT_TIMESTAMP,
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber,
    SequenceNumberError,
    parse_sequence_number,
    sequence_hint,
)

from .model import BEGIN, sequence_number

Extended = ExtendedSequenceNumber


def utc(*when: int) -> datetime:
    return datetime(*when, tzinfo=timezone.utc)  # type: ignore[arg-type]


@pytest.mark.requirement("LIN-1")
@pytest.mark.parametrize(
    "text", ["", "01", "+1", "-1", " 1", "1 ", "1.0", "٥", "x", "1" * 130, "1\n", None, 5]
)
def test_what_is_no_sequence_number(text):
    with pytest.raises(SequenceNumberError):
        parse_sequence_number(text)


@pytest.mark.requirement("LIN-1")
def test_the_longest_sequence_number():
    assert parse_sequence_number("0") == 0
    assert parse_sequence_number("9" * 129) == 10**129 - 1


numbers = st.one_of(
    st.integers(0, 12).map(str),
    st.integers(0, 2**186).map(str),
    st.sampled_from([AT_TIMESTAMP, TRIM_HORIZON, LATEST, SHARD_END]),
)
positions = st.builds(Extended, numbers, st.integers(0, 3))


def kcl_compare(one: Extended, other: Extended) -> int:
    """The KCL's rule, written out."""
    special = {AT_TIMESTAMP: -3, TRIM_HORIZON: -2, LATEST: -1}
    if SHARD_END in (one.sequence_number, other.sequence_number):
        return (one.sequence_number == SHARD_END) - (other.sequence_number == SHARD_END)
    a = special.get(one.sequence_number) or int(one.sequence_number)
    b = special.get(other.sequence_number) or int(other.sequence_number)
    if a != b:
        return -1 if a < b else 1
    if one.sequence_number in special:
        return 0
    return (one.sub_sequence_number > other.sub_sequence_number) - (
        one.sub_sequence_number < other.sub_sequence_number
    )


@pytest.mark.requirement("LIN-2")
@given(positions, positions)
def test_positions_are_ordered_as_the_kcl_orders_them(one, other):
    expected = kcl_compare(one, other)
    assert (one < other, one == other, one > other) == (expected < 0, expected == 0, expected > 0)
    assert (one.order < other.order) == (expected < 0)
    if expected == 0:
        assert hash(one) == hash(other)


@pytest.mark.requirement("LIN-2")
def test_order_in_words():
    order = [
        Extended(AT_TIMESTAMP), Extended(TRIM_HORIZON), Extended(LATEST), Extended("0"), Extended("9"),
        Extended("10"), Extended("10", 1), Extended("10", 2), Extended("11"), Extended(SHARD_END),
    ]  # fmt: skip
    assert sorted(reversed(order)) == order
    with pytest.raises(SequenceNumberError):
        Extended("1", -1)
    with pytest.raises(SequenceNumberError):
        Extended("latest")
    assert Extended("1") != "1"
    with pytest.raises(TypeError):
        _ = Extended("1") < "2"


@pytest.mark.requirement("LIN-3")
@pytest.mark.parametrize(
    ("number", "shard", "created", "time"),
    [
        # real AWS numbers: a stream of one shard, split by UpdateShardCount (the allocation article)
        ("49591109616310805454912940618220665305004298836394377218", 0, (5, 27, 7), (5, 27, 7)),
        ("49591109616321955827512205929790224238321098822804045826", 0, (5, 27, 7), (5, 49, 3)),
        ("49591110086254409023548762079802856464523311355470544914", 1, (5, 49, 4), (5, 49, 4)),
        ("49591110086276709768747292702944392182795959716976525346", 2, (5, 49, 4), (5, 49, 4)),
    ],
)
def test_hints_of_real_numbers(number, shard, created, time):
    hint = sequence_hint(number)
    assert hint is not None
    assert hint.shard_id == f"shardId-{shard:012d}"
    assert hint.shard_created == utc(2018, 12, 16, *created)
    assert hint.time == utc(2018, 12, 16, *time)


@pytest.mark.requirement("LIN-3")
def test_the_kcls_own_examples():
    assert sequence_hint("49587497311274533994574834252742144236107130636007899138").shard_index == 0
    assert sequence_hint("49585389983312162443796657944872008114154899568972529698").shard_index == 2
    assert sequence_hint("74107425965128755728308386687147091174006956590945533954") is None
    for no_hint in ("0", "9223372036854775807", "9" * 129, str(2**185), str((2 << 184) + 3)):
        assert sequence_hint(no_hint) is None
    with pytest.raises(SequenceNumberError):
        sequence_hint("x")


@given(st.integers(0, 2**32 - 1), st.integers(0, 10**8), st.integers(0, 10**8), st.integers(0, 2**63 - 1))
def test_a_hint_is_what_was_put_in(shard, created, time, index):
    hint = sequence_hint(sequence_number(shard, created, time, index))
    assert hint is not None
    assert (hint.shard_index, hint.sequence_index) == (shard, index)
    assert ((hint.shard_created - BEGIN).total_seconds(), (hint.time - BEGIN).total_seconds()) == (
        created,
        time,
    )
