"""Columns without the Schema Registry's frames: what the objects are, with and without compiled code."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec import KplError, deaggregate
from kpl_codec.arrow import Deaggregator, deaggregate_batches, deaggregate_table, output_schema
from kpl_codec.deaggregation.policy_rules import POLICIES
from kpl_codec.schema_registry import frame
from kpl_codec.testing import strategies as kst
from tests.examples import examples

from .test_arrow import MAPS, SHARD_IDS, batch_of, row_of

VERSION = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"
DATA = st.one_of(
    kst.schema_frames().map(lambda item: item.data),
    kst.schema_frames().map(lambda item: item.data),
    kst.broken_schema_frames().map(lambda item: item.data),
    kst.unframed_data(),
    kst.schema_frames(payloads=kst.schema_frames().map(lambda item: item.data)).map(lambda item: item.data),
    st.just(frame(b"a" * 5000, VERSION, compress=True)),
)
RECORDS = st.lists(
    st.builds(
        kpl.KinesisRecord,
        st.just("p"),
        DATA
        | st.lists(kst.user_records(data=DATA), min_size=1, max_size=6).map(kpl.encode)
        | kst.defective_frames().map(lambda item: item.data),
        st.integers(0, 10**20).map(str),
        st.sampled_from(SHARD_IDS),
        st.none(),
        sub_sequence_number=st.sampled_from([None, None, 3]),
        record_id=st.none(),
    ),
    max_size=6,
)


def rows_of(batch: pa.RecordBatch, deaggregator: Deaggregator) -> tuple[list[dict[str, Any]], Any]:
    rows: list[dict[str, Any]] = []
    try:
        for out in deaggregator.process(batch):
            assert out.schema == deaggregator.schema
            out.validate(full=True)
            rows += out.to_pylist()
    except KplError as error:
        return rows, error
    return rows, None


@pytest.mark.requirement("GSR-1", "GSR-2", "GSR-3", "GSR-4", "GSR-7", "SPK-3")
@pytest.mark.parametrize("compiled", [True, False])
@settings(max_examples=examples(150))
@given(
    RECORDS,
    st.sampled_from(POLICIES),
    st.sampled_from(MAPS),
    st.none() | st.just(3000),
    st.integers(1, 2000),
    st.booleans(),
    st.sampled_from([True, True, frozenset(), {"00000000-0000-4000-8000-000000000001", VERSION}]),
)
def test_columns_equal_objects(
    compiled: bool,
    records: list[kpl.KinesisRecord],
    policy: Any,
    shard_map: Any,
    limit: int | None,
    batch_bytes: int,
    dictionaries: bool,
    unframe: Any,
) -> None:
    batch = batch_of(records)
    options: dict[str, Any] = {"shard_map": shard_map, "unframe": unframe, "max_decompressed_size": limit}
    with nullcontext() if compiled else mock.patch("kpl_codec.arrow.compiled_columns._FrameColumns", None):
        columns = Deaggregator(
            batch.schema, policy, tags=True, max_batch_bytes=batch_bytes, dictionaries=dictionaries, **options
        )
        rows, error = rows_of(batch, columns)
    opened = deaggregate(records, policy, read_ahead=False, **options)
    expected = []
    expected_error = None
    try:
        for found in opened:
            expected.append(row_of(found, policy, shard_map is not None, False))
            expected[-1]["schemaVersionId"] = found.schema_version_id
    except KplError as caught:
        expected_error = caught
    if error is None:
        assert columns.counts == opened.counts
    else:  # the user records of the same Kinesis record come as a whole, or not
        expected = expected[: len(rows)]
    for row in [*rows, *expected]:
        row.pop("firstOfRecord", None)
        row.pop("file", None)
    assert rows == expected
    assert error == expected_error


@pytest.mark.requirement("GSR-5")
@given(RECORDS, st.sampled_from(["kcl", "report"]), st.booleans())
def test_twice_takes_off_one_frame(records: list[kpl.KinesisRecord], policy: Any, dictionaries: bool) -> None:
    batch = batch_of(records)
    once = Deaggregator(batch.schema, policy, unframe=True, dictionaries=dictionaries)
    first = pa.Table.from_batches(once.process(batch), once.schema)
    whole = first.filter(pa.compute.is_valid(first["schemaVersionId"]))
    for made in whole.to_batches():
        again = Deaggregator(made.schema, policy, unframe=True, dictionaries=dictionaries)
        assert [row for out in again.process(made) for row in out.to_pylist()] == made.to_pylist()


@pytest.mark.requirement("GSR-7")
def test_the_column_is_there_if_asked_for() -> None:
    users = [kpl.UserRecord("k", frame(b"x", VERSION)), kpl.UserRecord("k", b"bare")]
    batch = batch_of([kpl.KinesisRecord("a", kpl.encode(users), "1", SHARD_IDS[0])])
    assert "schemaVersionId" not in output_schema(batch.schema).names
    assert "schemaVersionId" in output_schema(batch.schema, unframe=True).names
    for columns in (["data", "schemaVersionId"], ["schemaVersionId"], ["data"]):
        table, _ = deaggregate_table(batch, unframe=True, columns=columns)
        assert table.to_pydict() == {
            name: {"data": [b"x", b"bare"], "schemaVersionId": [VERSION, None]}[name] for name in columns
        }
    (found,) = deaggregate_batches(batch, unframe=True)
    assert found["schemaVersionId"].to_pylist() == [VERSION, None]
    number = pa.RecordBatch.from_pydict({"data": [b"x"], "schemaVersionId": [1]})
    with pytest.raises(TypeError, match="schemaVersionId is int64"):
        output_schema(number.schema, unframe=True)
    (same,) = deaggregate_batches(number)
    assert same["schemaVersionId"].to_pylist() == [1]  # somebody else's


def test_a_batch_of_very_many_versions() -> None:
    ids = [f"{n:012x}40008000{n:012x}" for n in range(700)]
    users = [kpl.UserRecord("k", frame(b"%d" % n, ids[n % 700])) for n in range(2000)]
    batch = batch_of([kpl.KinesisRecord("a", kpl.encode(users), "1", SHARD_IDS[0])])
    table, _ = deaggregate_table(batch, unframe=True)
    assert [int(text[-4:], 16) for text in table["schemaVersionId"].to_pylist()] == [
        n % 700 for n in range(2000)
    ]
    assert table["data"].to_pylist() == [b"%d" % n for n in range(2000)]
