"""What a record shows of itself: short, and without data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl

KEY, SECRET = "secret-key-of-a-customer", b"secret data of a customer"


@pytest.mark.parametrize(
    "record",
    [
        kpl.UserRecord(KEY, SECRET, 2**127, (kpl.Tag(KEY, "v" * 99),)),
        kpl.KinesisRecord(KEY, SECRET, "49" * 28, "shardId-1"),
        kpl.DeaggregatedRecord(KEY, SECRET, None, (), "1", 0, False, None, None),
    ],
    ids=lambda record: type(record).__name__,
)
def test_the_repr_of_a_record_is_short(record: tuple[object, ...]) -> None:
    text = repr(record)
    name = type(record).__name__
    assert text.startswith(f"{name}(partition_key='secret-k'... of 24, data=b'secret d'... of 25")
    assert len(text) < 260
    assert "secret-key" not in text
    assert "None" not in text


@given(st.text(max_size=12), st.binary(max_size=12))
def test_what_is_short_is_shown_whole(key: str, data: bytes) -> None:
    assert repr(kpl.UserRecord(key, data)) == f"UserRecord(partition_key={key!r}, data={data!r})"
