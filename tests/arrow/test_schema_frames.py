"""Columns without the Schema Registry's frames."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpl_codec as kpl
from kpl_codec.arrow import Deaggregator, deaggregate_batches, deaggregate_table, output_schema
from kpl_codec.schema_registry import frame

from ..deaggregation.every_policy import NOT_RAISING
from .test_arrow import SHARD_IDS, VERSION, batch_of, framed_records


@pytest.mark.requirement("GSR-5")
@given(st.lists(framed_records, max_size=6), st.sampled_from(NOT_RAISING), st.booleans())
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
