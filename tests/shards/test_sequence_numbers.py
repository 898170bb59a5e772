"""Sequence numbers, the hints in real ones, and positions in a shard."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.shards.sequence_numbers import (
    SequenceNumberError,
    parse_sequence_number,
    sequence_hint,
)
from kpl_codec.shards.starting_position import (
    LATEST,
    TRIM_HORIZON,
    after_record,
    at_record,
    at_time,
    iterator_arguments,
)

from .model import BEGIN, sequence_number


def utc(*when: int) -> datetime:
    return datetime(*when, tzinfo=timezone.utc)  # type: ignore[arg-type]


@pytest.mark.requirement("LIN-1")
def test_what_is_a_sequence_number():
    assert parse_sequence_number("0") == 0
    assert parse_sequence_number("9" * 129) == 10**129 - 1
    for text in ("", "01", "+1", "-1", " 1", "1 ", "1.0", "٥", "x", "1" * 130, "1\n", None, 5):
        with pytest.raises(SequenceNumberError, match="canonical decimal number of at most 129 digits"):
            parse_sequence_number(text)


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


@given(st.integers(0, 4 * 10**12))
def test_a_time_is_exact_to_the_millisecond(milliseconds: int) -> None:
    time = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=milliseconds)
    arguments = iterator_arguments(at_time(milliseconds))
    assert arguments == {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": time}
    assert arguments["Timestamp"].tzinfo is timezone.utc


def test_arguments_of_the_other_positions() -> None:
    assert iterator_arguments(LATEST) == {"ShardIteratorType": "LATEST"}
    assert iterator_arguments(TRIM_HORIZON) == {"ShardIteratorType": "TRIM_HORIZON"}
    for kind, position in (("AT", at_record("17")), ("AFTER", after_record("17"))):
        arguments = {"ShardIteratorType": f"{kind}_SEQUENCE_NUMBER", "StartingSequenceNumber": "17"}
        assert iterator_arguments(position) == arguments
