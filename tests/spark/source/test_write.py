"""What a task writes, and what it refuses to begin with; no Spark session."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

import kpl_codec as kpl
from kpl_codec.aws import read_stream
from kpl_codec.errors import EncodeError
from kpl_codec.producer.config import ProducerConfig
from kpl_codec.spark.source.positions import OptionError
from kpl_codec.spark.source.write import KinesisWriter, _check_all, check_write

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


def batches(*rows: dict[str, Any], size: int = 2) -> Any:
    schema = pa.schema(
        [("partitionKey", pa.string()), ("data", pa.binary()), ("explicitHashKey", pa.string())]
    )
    for at in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(list(rows[at : at + size]), schema=schema)


GOOD = [{"partitionKey": f"k{n}", "data": b"%d" % n} for n in range(7)]


@pytest.mark.requirement("SPK-73")
@pytest.mark.parametrize(
    "bad",
    [
        {"partitionKey": "k", "data": None},
        {"partitionKey": "", "data": b"x"},
        {"partitionKey": "k" * 257, "data": b"x"},
        {"partitionKey": "k", "data": b"x", "explicitHashKey": "007"},
        {"partitionKey": "k", "data": bytes(2**20 + 1)},
    ],
    ids=["null", "empty key", "long key", "hash key", "too large"],
)
def test_a_row_that_cannot_be_written_comes_before_all_others(make_stream: Any, bad: dict[str, Any]) -> None:
    stream = make_stream(1)
    writer = pickle.loads(pickle.dumps(KinesisWriter(stream.parsed())))
    for _attempt in range(4):
        with pytest.raises(EncodeError):
            writer.write(batches(*GOOD, bad))
    assert list(read_stream(stream.client, stream.name, poll_interval=0.01)) == []
    writer.write(batches(*GOOD))
    written = kpl.deaggregate(read_stream(stream.client, stream.name, poll_interval=0.01))
    assert len(list(written)) == 7


@pytest.mark.requirement("SPK-68")
def test_columns_are_known_in_any_case(make_stream: Any) -> None:
    def schema(*names: str) -> StructType:
        kinds = {"data": BinaryType()}
        return StructType([StructField(name, kinds.get(name.lower(), StringType())) for name in names])

    stream = make_stream(1)
    check_write(schema("DATA", "partitionkey"), overwrite=False)
    for names in (("data", "Data"), ("data", "other"), ("partitionKey",)):
        with pytest.raises(OptionError):
            check_write(schema(*names), overwrite=False)
    rows = [{"PARTITIONKEY": f"k{n}", "Data": b"%d" % n} for n in range(5)]
    writer = KinesisWriter(stream.parsed())
    writer.write([pa.RecordBatch.from_pylist(rows)])
    writer.write([Row(**row) for row in rows])
    records = [
        user for record in read_stream(stream.client, stream.name) for user in kpl.deaggregate([record])
    ]
    assert sorted((user.partition_key, user.data) for user in records) == sorted(
        [(f"k{n}", b"%d" % n) for n in range(5)] * 2
    )


@pytest.mark.requirement("SPK-68", "SPK-73")
def test_tags_are_an_array_of_two_texts() -> None:
    """Another type is refused when the write is planned, a tag that is null before its task puts anything."""

    def pair(**kinds: DataType) -> ArrayType:
        return ArrayType(StructType([StructField(name, kind) for name, kind in kinds.items()]))

    def check(tags: DataType) -> None:
        check_write(
            StructType([StructField("data", BinaryType()), StructField("tags", tags)]), overwrite=False
        )

    text, binary = StringType(), BinaryType()
    check(pair(key=text, value=text))
    wrong = (
        pair(name=text, value=text),
        pair(key=text, value=binary),
        ArrayType(text),
        MapType(text, text),
        text,
    )
    for kind in wrong:
        with pytest.raises(OptionError, match="array<struct<key:string,value:string>>"):
            check(kind)
    for tags in ([None], [{"key": None, "value": "x"}]):
        with pytest.raises(EncodeError):
            _checked_all([{"partitionKey": "k", "data": b"x", "tags": tags}])
    assert _checked_all([{"partitionKey": "k", "data": b"x", "tags": [{"key": "a", "value": None}]}]) == 1


def _checked_all(rows: list[dict[str, Any]]) -> int:
    with _check_all([Row(**row) for row in rows], ProducerConfig()) as checked:
        return len(list(checked))
