"""What a sequence number is, and the hints in real ones."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.shards.sequence_numbers import (
    SequenceNumberError,
    parse_sequence_number,
    sequence_hint,
)

from .model import BEGIN, sequence_number


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
    assert sequence_hint("x") is sequence_hint(None) is None


@given(st.integers(0, 2**32 - 1), st.integers(0, 10**8), st.integers(0, 10**8), st.integers(0, 2**63 - 1))
def test_a_hint_is_what_was_put_in(shard, created, time, index):
    hint = sequence_hint(sequence_number(shard, created, time, index))
    assert hint is not None
    assert hint.shard_index == shard
    assert ((hint.shard_created - BEGIN).total_seconds(), (hint.time - BEGIN).total_seconds()) == (
        created,
        time,
    )
