"""Compression of payloads: undoing it gives what was there, in every reader; bombs stay small."""

from __future__ import annotations

import gzip
import sys
import tracemalloc
import zlib
from functools import cache
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec import KinesisRecord, UserRecord, deaggregate
from kpl_codec.arrow import deaggregate_batches
from kpl_codec.deaggregation.policy_rules import POLICIES, rules_of
from kpl_codec.format.compression import (
    STARTS,
    Compression,
    DecompressionError,
    compress,
    compression_of,
    decompress,
)
from kpl_codec.producer import ProducerConfig
from kpl_codec.schema_registry import frame, unframe

from ..arrow.test_arrow import batch_of
from ..producer.bench import LOW, Bench

COMPRESSIONS = get_args(Compression)
EACH = pytest.mark.parametrize("compression", COMPRESSIONS)
#: Any bytes, bytes that start like compressed data, compressed data itself, and what is worth compressing.
DATA = st.one_of(
    st.binary(),
    st.tuples(st.sampled_from(STARTS), st.binary()).map(b"".join),
    st.binary().map(gzip.compress),
    st.binary().map(zlib.compress),
    st.tuples(st.binary(max_size=9), st.integers(0, 500)).map(lambda given: given[0] * given[1]),
)
VERSION = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"


@cache
def bomb() -> bytes:
    """80 MiB of zeros, compressed."""
    return zlib.compress(bytes(80 * 1024 * 1024), 1)


def broken(data: bytes) -> list[bytes]:
    """Compressed data cut short, with a byte too many, and of which only the start is right."""
    return [data[:-1], data + b"x", data[:4] + b"\xff\x07" * 9]


@EACH
@given(data=DATA)
@pytest.mark.requirement("ZIP-1", "ZIP-2", "ZIP-3")
def test_undoing_gives_what_was_there(compression: Compression, data: bytes) -> None:
    made = compress(data, compression)
    assert decompress(made) == data
    assert compression_of(made) in (None, compression)
    assert len(made) < len(data) or made == data or compression_of(data) is not None
    if compression_of(data) is None:
        assert decompress(data) is data


@EACH
@pytest.mark.requirement("ZIP-4")
def test_what_cannot_be_undone_is_an_error(compression: Compression) -> None:
    whole = compress(b"0123456789" * 100, compression)
    assert decompress(whole, 1000) == b"0123456789" * 100
    with pytest.raises(DecompressionError) as caught:
        decompress(whole, 999)
    assert (caught.value.code, caught.value.max_decompressed_size) == ("decompressed-too-large", 999)
    if compression != "zlib":
        with pytest.raises(DecompressionError, match="more than 1999 bytes"):
            decompress(whole * 2, 1999)
    for data in broken(whole):
        with pytest.raises(DecompressionError) as caught:
            decompress(data)
        assert caught.value.code == "compressed-damaged"
        assert compression in str(caught.value)
    for wrong in (0, -1, 1.5, float("nan"), "9"):
        with pytest.raises(
            (TypeError, ValueError), match=r"^max_decompressed_size of decompress is .*, give a size of at"
        ):
            decompress(whole, wrong)  # type: ignore[arg-type]


@EACH
@pytest.mark.requirement("ZIP-3")
def test_a_limit_that_is_no_limit_takes_no_memory(compression: Compression) -> None:
    data = b"0123456789" * 100
    parts = 1 if compression == "zlib" else 2
    for limit in (2**40, sys.maxsize - 1, sys.maxsize, 2**64):
        assert decompress(compress(data, compression) * parts, limit) == data * parts
        (row,) = deaggregate([KinesisRecord("k", compress(data, compression))], max_decompressed_size=limit)
        assert row.data == data
        framed = frame(data, VERSION, compress=True)
        assert unframe(framed, limit).data == data


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^compression of compress is 'lz4', give gzip, zlib or zstd"):
        compress(b"a" * 100, "lz4")  # type: ignore[arg-type]


@pytest.mark.requirement("ZIP-2", "ZIP-4")
def test_a_limit_of_one_byte_and_data_that_becomes_no_smaller() -> None:
    for pack in (gzip.compress, zlib.compress):
        assert decompress(pack(b"a"), 1) == b"a"
        with pytest.raises(DecompressionError) as caught:
            decompress(pack(b"ab"), 1)
        assert caught.value.fields["compression"] == compression_of(pack(b"ab"))
    for compression in COMPRESSIONS:
        # The shortest text that is worth it; the one before becomes as long as it is, or longer.
        shortest = next(size for size in range(100) if len(compress(b"a" * size, compression)) < size)
        for size in range(shortest):
            assert compress(b"a" * size, compression) == b"a" * size


@pytest.mark.requirement("ZIP-4")
def test_a_bomb_takes_no_more_memory_than_the_limit() -> None:
    data = bomb()
    tracemalloc.start()
    with pytest.raises(DecompressionError, match="more than 1000000 bytes"):
        decompress(data, 1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


def test_without_zstd_there_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compress(b"a" * 100, "zstd")
    monkeypatch.setattr("kpl_codec.producer.config.zstd_module", lambda: None)
    monkeypatch.setattr("kpl_codec.format.compression.zstd_module", lambda: None)
    with pytest.raises(DecompressionError, match=r"backports\.zstd"):
        decompress(made)
    with pytest.raises(ModuleNotFoundError, match=r"backports\.zstd"):
        compress(b"a", "zstd")
    with pytest.raises(ValueError, match=r"backports\.zstd"):
        ProducerConfig(compression="zstd")


# -- readers --------------------------------------------------------------------------------------


def records(user_records: list[UserRecord], plain: list[bytes]) -> list[KinesisRecord]:
    datas = [kpl.encode(user_records)] if user_records else []
    aggregates = [KinesisRecord("a", data, "7", "shardId-000000000000") for data in datas]
    return aggregates + [
        KinesisRecord("p", data, str(8 + n), "shardId-000000000001") for n, data in enumerate(plain)
    ]


@given(st.lists(DATA, max_size=5), st.lists(DATA, max_size=3), st.sampled_from(COMPRESSIONS))
@pytest.mark.requirement("ZIP-3")
def test_every_reader_gives_what_the_producer_was_given(
    inside: list[bytes], plain: list[bytes], compression: Compression
) -> None:
    put = [compress(data, compression) for data in inside]
    bare = [compress(data, compression) for data in plain]
    stream = records([UserRecord(f"k{n}", data) for n, data in enumerate(put)], bare)
    for policy in POLICIES:
        found = list(deaggregate(stream, policy, max_decompressed_size=1_000_000))
        assert [record.data for record in found] == [*inside, *plain]
        assert not any(record.defects for record in found)
    assert [record.data for record in deaggregate(stream)] == [*put, *bare]
    if stream:
        batches = deaggregate_batches([batch_of(stream)], max_decompressed_size=1_000_000)
        assert [data for batch in batches for data in batch.column("data").to_pylist()] == [*inside, *plain]


@pytest.mark.requirement("ZIP-4", "ZIP-5")
@pytest.mark.parametrize("policy", POLICIES)
def test_what_cannot_be_undone_is_a_defect_of_its_user_record_only(policy: Any) -> None:
    good, cut = compress(b"good" * 50, "gzip"), compress(b"bad" * 50, "gzip")[:-1]
    stream = records([UserRecord("k", data) for data in (good, cut, bomb())], [cut, b"x"])
    found = deaggregate(stream, policy, max_decompressed_size=10_000)
    assert next(found).data == b"good" * 50
    if rules_of(policy).on_compression == "raise":
        with pytest.raises(DecompressionError) as caught:
            next(found)
        error = caught.value
        place = error.record_index, error.sequence_number, error.shard_id
        assert place == (1, "7", "shardId-000000000000")
        return
    damaged = (cut, ["compressed-damaged"])
    assert [(record.data, [defect.code for defect in record.defects]) for record in found] == [
        damaged,
        (bomb(), ["decompressed-too-large"]),
        damaged,
        (b"x", []),
    ]
    assert found.counts.defects == {"compressed-damaged": 2, "decompressed-too-large": 1}
    assert (found.counts.user_records, found.counts.dropped) == (5, {})


@pytest.mark.requirement("ZIP-4")
def test_columns_of_many_bombs_come_in_batches_of_the_usual_size() -> None:
    stream = records([UserRecord("k", compress(bytes(1_000_000), "zlib"))] * 20, [])
    sizes = [
        batch.nbytes for batch in deaggregate_batches([batch_of(stream)], max_decompressed_size=1_000_000)
    ]
    assert sum(sizes) > 20_000_000
    assert max(sizes) < 5_000_000


@EACH
@pytest.mark.requirement("ZIP-1", "ZIP-2")
def test_a_producer_compresses_and_a_reader_undoes_it(compression: Compression) -> None:
    bench = Bench(compression=compression)
    put = [b"0123456789" * 30, b"x", compress(b"already" * 30, compression), b"x^2"]
    for data in put:
        bench.put(data, LOW)
    bench.core.flush()
    for call in bench.puts():
        bench.serve(call)
    assert set(bench.results) == set(put)
    assert sum(len(record.data) for record in bench.stream.stored) < sum(map(len, put))
    found = deaggregate(bench.stream.stored, max_decompressed_size=1_000_000)
    assert sorted(record.data for record in found) == sorted(put)
