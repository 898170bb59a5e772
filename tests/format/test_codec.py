"""encode, decode and the builder: laws, and the KPL's own bytes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from fuzz.invariants import frame
from kpl_codec.format.codec import PythonBuilder, build_many, is_canonical
from kpl_codec.producer import ProducerConfig
from kpl_codec.producer.record import PutValidator
from kpl_codec.testing import strategies

BUILDERS = list(dict.fromkeys([PythonBuilder, kpl.AggregatedRecordBuilder]))

user_records = strategies.user_records()


@pytest.mark.requirement("FRM-1", "FRM-3", "ENC-2", "ENC-3", "ENC-4", "KEY-4")
@given(st.lists(user_records, min_size=1, max_size=20), st.lists(user_records, min_size=1, max_size=4))
def test_decode_inverts_encode(records: list[kpl.UserRecord], others: list[kpl.UserRecord]) -> None:
    data = kpl.encode(records)
    builders = [kpl.AggregatedRecordBuilder(), kpl.AggregatedRecordBuilder()]
    for builder, held in zip(builders, (others, records), strict=True):
        for record in held:
            builder.add(record)
    assert build_many(builders) == [kpl.encode(others), data]
    decoded = kpl.decode(data)
    assert list(decoded) == records
    assert [decoded[i] for i in range(len(decoded))] == records
    assert decoded[1:] == records[1:]
    assert decoded == kpl.decode(data) != kpl.decode(kpl.encode([*records, kpl.UserRecord("k", b"")]))
    assert decoded != records
    assert kpl.is_aggregated(data)
    assert is_canonical(data)


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_builder_has_no_copy_that_would_share_its_user_records(builder: Any, copied: Any) -> None:
    one = builder(100)
    one.add(kpl.UserRecord("k", b"x"))
    with pytest.raises(TypeError):
        copied(one)


@pytest.mark.requirement("ENC-6")
@pytest.mark.parametrize("builder", BUILDERS)
def test_size_claimed_is_size_written_where_a_number_takes_one_byte_more(builder: Any) -> None:
    """Lengths of keys, data, user records and tags, and indices into both tables, around 2^7 and 2^14."""
    lengths = [edge + step for edge in (2**7, 2**14) for step in range(-12, 3)]
    for length in (*lengths, 2**13, 2**20):
        tags = kpl.Tag("t" * length), kpl.Tag("t", "v" * length)
        for one in (kpl.UserRecord("k", bytes(length)), kpl.UserRecord("k", b"", None, tags)):
            assert builder().size_with(one) == len(kpl.encode([one]))
    counted = builder()
    many = [kpl.UserRecord(f"{number:0128}", b"", str(number)) for number in range(2**14 + 2)]
    for number, record in enumerate(many, 1):
        counted.add(record)
        if 126 <= number <= 131 or number >= 2**14 - 1:
            assert counted.size == len(kpl.encode(many[:number]))


@pytest.mark.requirement("ENC-5", "ENC-6")
@given(st.lists(user_records, min_size=1, max_size=20), st.integers(20, 3000))
def test_size_claimed_is_size_written(records: list[kpl.UserRecord], max_size: int) -> None:
    builder = kpl.AggregatedRecordBuilder(max_size)
    held: list[kpl.UserRecord] = []
    for record in records:
        claimed = builder.size_with(record)
        if claimed > max_size:
            with pytest.raises(kpl.AggregateFull) as caught:
                builder.add(record)
            assert caught.value.fields["size"] == claimed == len(kpl.encode([*held, record]))
        else:
            builder.add(record)
            held.append(record)
            assert builder.size == claimed == len(builder.build())
        assert len(builder) == len(held)
    if held:
        assert list(kpl.decode(builder.build())) == held
    assert builder.clear() == held
    assert builder.size == len(builder) == 0


@pytest.mark.requirement("FRM-3", "FRM-4")
@given(st.lists(user_records, min_size=1, max_size=3), st.data())
def test_every_flipped_bit_is_noticed(records: list[kpl.UserRecord], data: st.DataObject) -> None:
    sound = kpl.encode(records)
    at = data.draw(st.integers(0, len(sound) * 8 - 1))
    broken = bytearray(sound)
    broken[at // 8] ^= 1 << at % 8
    with pytest.raises((kpl.NotAggregated, kpl.ChecksumMismatch)):
        kpl.decode(broken)
    assert not kpl.is_aggregated(bytes(broken))


@pytest.mark.requirement("MSG-9")
def test_one_huge_key_is_refused_before_any_row() -> None:
    key = b"k" * 100_000
    head = b"\x0a" + b"\xa0\x8d\x06" + key
    data = frame(head + b"\x1a\x04\x08\x00\x1a\x00" * 20_000)
    with pytest.raises(kpl.InvalidKey) as caught:
        kpl.decode(data)
    assert caught.value.code == "key-too-long"
    rows = kpl.deaggregate([kpl.KinesisRecord("a", data, "1")], "report")
    first = next(rows)
    assert first.sub_sequence_number == -1
    assert next(rows).partition_key is None


def test_errors_of_the_callers_iterator_stay() -> None:
    def records() -> Any:
        yield kpl.UserRecord("k", b"")
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        kpl.encode(records())


def test_all_kinds_of_bytes_are_bytes() -> None:
    data = kpl.encode([kpl.UserRecord("k", b"data")])
    for kind in (bytes, bytearray, memoryview):
        assert kpl.is_aggregated(kind(data))
        assert kpl.explain(kind(data)) == kpl.explain(data)
        assert kpl.decode(kind(data)) == kpl.decode(data)
        (row,) = kpl.deaggregate([kpl.KinesisRecord("k", kind(data))])
        assert (row.data, type(row.data)) == (b"data", bytes)


@pytest.mark.requirement("ENC-1")
@given(user_records, st.integers(-1, 2**128) | st.sampled_from([-1, 0, 2**128 - 1, 2**128]))
def test_an_explicit_hash_key_is_a_text_or_a_number_everywhere(record: kpl.UserRecord, number: int) -> None:
    key, data, tags = record.partition_key, record.data, record.tags
    text = record.replace(explicit_hash_key=str(number))
    prepare = PutValidator(ProducerConfig()).prepare
    if 0 <= number < 2**128:
        same = kpl.UserRecord(key, data, number, tags)
        assert same == text
        assert kpl.encode([same]) == kpl.encode([text])
        assert prepare(key, data, number, tags).record == prepare(key, data, str(number), tags).record == text
        assert kpl.effective_hash_key(key, number) == kpl.effective_hash_key(key, str(number)) == number
        return
    ways: list[Callable[[], object]] = [
        lambda: kpl.UserRecord(key, data, number, tags),
        lambda: kpl.encode([text]),
        lambda: kpl.AggregatedRecordBuilder().add(text),
        lambda: prepare(key, data, number, tags),
        lambda: prepare(key, data, str(number), tags),
    ]
    for way in ways:
        with pytest.raises(kpl.EncodeError) as caught:
            way()
        assert (caught.value.code, caught.value.field) == ("explicit-hash-key", "explicit_hash_key")
    for given_key in (number, str(number)):
        with pytest.raises(kpl.HashKeyError):
            kpl.effective_hash_key(key, given_key)
