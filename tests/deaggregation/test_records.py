"""A DeaggregatedRecord is the same to its user whoever made it: compiled code, Python, or the user."""

from __future__ import annotations

import gc
import sys
import tracemalloc
import weakref
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz.invariants import frame
from kpl_codec.base.compiled import speedups
from kpl_codec.testing import strategies as kst
from tests.examples import examples

from .test_policies import NOT_RAISING

MAP = kpl.ShardMap([kpl.Shard("shardId-000000000000", kpl.ALL_HASH_KEYS)])
NOW = datetime(2026, 11, 23, tzinfo=timezone.utc)
#: A user record whose partition key index is beyond the table.
NO_KEY = frame(b"\x0a\x01k\x1a\x05\x08\x07\x1a\x01x")


def opened(frame: bytes, policy: Any = "report", shard_map: kpl.ShardMap | None = MAP) -> list[Any]:
    record = kpl.KinesisRecord("outer", frame, "7", "shardId-000000000000", NOW)
    return list(kpl.deaggregate([record], policy, shard_map=shard_map))


frames = st.one_of(
    kst.aggregated_records(max_records=6).map(lambda made: made.data),
    kst.defective_frames(max_records=4).map(lambda made: made.data),
    st.integers(340, 430).map(lambda size: kpl.encode([kpl.UserRecord("a" * 30, bytes(size), "5" * 20)])),
)


@settings(deadline=None, max_examples=examples(100))
@given(frames, st.sampled_from(NOT_RAISING), st.sampled_from([None, MAP]), st.booleans())
def test_it_is_the_one_that_its_fields_make_and_says_of_which_kinesis_record_it_is(
    frame: bytes, policy: Any, shard_map: kpl.ShardMap | None, queued: bool
) -> None:
    place = (None, None) if queued else ("7", "shardId-000000000000")
    source = kpl.KinesisRecord("outer", frame, *place, NOW, record_id="an id" if queued else None)
    records = list(kpl.deaggregate([source], policy, shard_map=shard_map))
    for record in records:
        assert (record.sequence_number, record.shard_id, record.record_id) == (*place, source.record_id)
        fields = {name: getattr(record, name) for name in kpl.DeaggregatedRecord.__match_args__}
        made = kpl.DeaggregatedRecord(**fields)
        assert type(record) is kpl.DeaggregatedRecord
        assert record == made
        assert hash(record) == hash(made)
        assert repr(record) == repr(made)
        assert {name: getattr(made, name) for name in fields} == fields
        assert record.replace(data=b"new") == made.replace(data=b"new") != record
        assert made in records
        assert record.partition_key is None or record.require_partition_key() == record.partition_key
    assert records == [record.replace() for record in records]


@pytest.mark.parametrize("key", ["key", "key-%032d"])
def test_a_list_of_user_records_takes_little_more_than_their_data(key: str) -> None:
    """Under 80 bytes each in the compiled path, besides data and keys; the collector skips them."""
    if speedups is None:
        pytest.skip("the size is that of the compiled code, which is not installed")
    keys = [key % number if "%" in key else key for number in range(5000)]
    frame = kpl.encode([kpl.UserRecord(key, bytes(100)) for key in keys])
    tracemalloc.start()
    records = opened(frame, shard_map=None)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < len(records) * (100 + 80) + sum(map(len, set(keys))) + 10_000
    assert not any(map(gc.is_tracked, records))


@pytest.mark.parametrize("size", [10, 413, 414, 416, 417, 100_000])
def test_a_kept_user_record_keeps_no_frame(size: int) -> None:
    frame = kpl.encode([kpl.UserRecord("key", bytes(size)) for _ in range(1 + 100_000 // size)])
    used = sys.getrefcount(frame)
    tracemalloc.start()
    record = opened(frame)[0]
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert sys.getrefcount(frame) == used
    assert held < size + 20_000
    assert record.data == bytes(size)


def test_a_cycle_through_a_row_is_collected() -> None:
    """An error that was raised refers to the frame of whoever raised it, which may refer to the row."""
    frame = bytearray(kpl.encode([kpl.UserRecord("key", b"data")]))
    frame[-1] ^= 1

    def raised() -> weakref.ref[BaseException]:
        (row,) = opened(bytes(frame))
        try:
            raise row.defects[0]
        except kpl.DecodeError as error:
            return weakref.ref(error)

    seen = raised()
    gc.collect()
    assert seen() is None


def test_a_record_without_a_partition_key_says_where_it_is() -> None:
    for record in (kpl.KinesisRecord(None, b"plain", "7"), kpl.KinesisRecord("k", NO_KEY, "7")):
        without = list(kpl.deaggregate([record], "report"))[-1]
        assert without.partition_key is None
        with pytest.raises(ValueError, match=r"no partition key \(sequence number 7, user record 0\)"):
            without.require_partition_key()
