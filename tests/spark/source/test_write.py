"""What a task writes, and what it refuses to begin with; no Spark session."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.pandas.types import from_arrow_schema

import kpl_codec as kpl
from kpl_codec.aws import read_stream
from kpl_codec.errors import EncodeError
from kpl_codec.producer import RecordTooLarge
from kpl_codec.spark.source.positions import OptionError
from kpl_codec.spark.source.source_options import SourceOptions, parse_options
from kpl_codec.spark.source.write import KinesisWriter, check_write, refuse_new_table
from tests.producer.skins import of_size

from .support import Stream

pytestmark = pytest.mark.server
SOUND = [{"partitionKey": f"k{n}", "data": b"%d" % n} for n in range(7)]
TAGS = "array<struct<key:string,value:string>>"


def rows_in(stream: Stream) -> list[tuple[str | None, bytes]]:
    users = kpl.deaggregate(read_stream(stream.client, stream.name, poll_interval=0.01))
    return sorted((user.partition_key, user.data) for user in users)


@pytest.mark.requirement("SPK-68", "SPK-73")
@pytest.mark.parametrize(
    "bad",
    [
        {"partitionKey": "k", "data": None},
        {"partitionKey": "", "data": b"x"},
        {"partitionKey": "k" * 257, "data": b"x"},
        {"partitionKey": "k", "data": b"x", "explicitHashKey": "007"},
        {"partitionKey": "k", "data": bytes(2**20 + 1)},
        {"partitionKey": "k", "data": b"x", "tags": [None]},
        {"partitionKey": "k", "data": b"x", "tags": [{"key": None, "value": "x"}]},
    ],
    ids=["null", "empty key", "long key", "hash key", "too large", "null tag", "tag without key"],
)
def test_a_row_that_cannot_be_written_comes_before_all_others(make_stream: Any, bad: dict[str, Any]) -> None:
    tag = pa.struct([("key", pa.string()), ("value", pa.string())])
    texts = [(name, pa.string()) for name in ("partitionKey", "explicitHashKey")]
    schema = pa.schema([*texts, ("data", pa.binary()), ("tags", pa.list_(tag))])

    def batches(rows: list[dict[str, Any]]) -> Any:
        return (pa.RecordBatch.from_pylist(rows[at : at + 2], schema) for at in range(0, len(rows), 2))

    stream = make_stream(1)
    writer = pickle.loads(pickle.dumps(KinesisWriter(stream.parsed())))
    for _attempt in range(4):
        with pytest.raises(EncodeError) as caught:
            writer.write(batches([*SOUND, bad]))
        if bad.get("tags") == [None]:  # a column that is null is no tags
            assert "a tag must not be null" in str(caught.value)
    assert rows_in(stream) == []
    writer.write(
        batches([*SOUND, {"partitionKey": "k", "data": b"x", "tags": [{"key": "a", "value": None}]}])
    )
    assert len(rows_in(stream)) == 8


@pytest.mark.requirement("SPK-68")
def test_columns_are_known_in_any_case(make_stream: Any) -> None:
    stream = make_stream(1)
    rows = [{"PARTITIONKEY": f"k{n}", "Data": b"%d" % n} for n in range(5)]
    writer = KinesisWriter(stream.parsed())
    writer.write([pa.RecordBatch.from_pylist(rows)])
    writer.write([Row(**row) for row in rows])
    assert rows_in(stream) == sorted([(row["PARTITIONKEY"], row["Data"]) for row in rows] * 2)


TEXT, BINARY = pa.string(), pa.binary()


def tags(**kinds: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct(kinds.items()))


@pytest.mark.requirement("SPK-68", "SPK-69")
@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"DATA": BINARY, "partitionkey": TEXT}, None),
        ({"data": TEXT, "tags": tags(key=TEXT, value=TEXT)}, None),
        ({"data": BINARY, "Data": BINARY}, "each once"),
        ({"data": BINARY, "other": TEXT}, "only partitionKey"),
        ({"partitionKey": TEXT}, "a column data"),
        ({"data": pa.int32()}, "binary or string"),
        ({"data": BINARY, "tags": tags(name=TEXT, value=TEXT)}, TAGS),
        ({"data": BINARY, "tags": tags(key=TEXT, value=BINARY)}, TAGS),
        ({"data": BINARY, "tags": pa.list_(TEXT)}, TAGS),
        ({"data": BINARY, "tags": pa.map_(TEXT, TEXT)}, TAGS),
        ({"data": BINARY, "tags": TEXT}, TAGS),
    ],
)
def test_the_columns_that_a_write_takes(columns: dict[str, pa.DataType], match: str | None) -> None:
    schema = from_arrow_schema(pa.schema(columns.items()))
    with pytest.raises(OptionError, match="append"):
        check_write(schema, overwrite=True)
    if match is None:
        check_write(schema, overwrite=False)
    else:
        with pytest.raises(OptionError, match=match):
            check_write(schema, overwrite=False)


@pytest.mark.requirement("PRD-62", "SPK-73")
def test_a_row_may_be_as_large_as_the_stream_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    client = of_size([3.0], [])
    monkeypatch.setattr(SourceOptions, "client", lambda _: client)
    writer = KinesisWriter(parse_options({"stream": "s", "region": "us-east-1"}))
    row = {"partitionKey": "k", "data": bytes(2 << 20)}
    writer.write([pa.RecordBatch.from_pylist([row])])
    assert sum(client.stream.delivered().values()) == 1
    with pytest.raises(RecordTooLarge, match="3145728"):
        writer.write([pa.RecordBatch.from_pylist([row, {"partitionKey": "k", "data": bytes(3 << 20)}])])
    assert sum(client.stream.delivered().values()) == 1


@pytest.mark.requirement("SPK-118")
@pytest.mark.parametrize(
    ("properties", "refused"),
    [
        ({}, False),
        ({"execution.id": "7", "execution.root.id": "7"}, False),
        ({"execution.id": "8", "execution.root.id": "7"}, True),
        ({"execution.id": "8"}, False),
        (
            {"execution.id": "8", "execution.root.id": "7", "queryId": "q", "short": "start at X.java:0"},
            False,
        ),
        ({"execution.id": "8", "execution.root.id": "7", "queryId": "q"}, False),
        (
            {"execution.id": "8", "execution.root.id": "7", "queryId": "q", "short": "toTable at X.java:0"},
            True,
        ),
    ],
)
def test_a_task_knows_whether_its_rows_fill_a_new_table(properties: dict[str, str], refused: bool) -> None:
    prefixes = {"queryId": "sql.streaming.", "short": "callSite."}
    named = {prefixes.get(name, "spark.sql.") + name: value for name, value in properties.items()}
    with pytest.raises(OptionError, match=r"save\(\) or start\(\)") if refused else nullcontext():
        refuse_new_table(named.get)
