"""What a task writes, and what it refuses to begin with; no Spark session."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.pandas.types import from_arrow_schema

import kpl_codec as kpl
from kpl_codec.errors import EncodeError
from kpl_codec.producer import RecordTooLarge
from kpl_codec.spark.source.positions import OptionError
from kpl_codec.spark.source.source_options import SourceOptions, parse_options
from kpl_codec.spark.source.write import KinesisWriter, RowsNotWritten, check_write, refuse_new_table
from tests.every import every
from tests.examples import examples
from tests.producer.model_client import ModelClient

TEXT, BINARY = pa.string(), pa.binary()
TAGS = "array<struct<key:string,value:string>>"


def tags(**kinds: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct(kinds.items()))


SCHEMA = pa.schema(
    [
        ("partitionKey", TEXT),
        ("explicitHashKey", TEXT),
        ("data", BINARY),
        ("tags", tags(key=TEXT, value=TEXT)),
    ]
)
SOUND = [{"partitionKey": f"k{n}", "data": b"%d" % n} for n in range(7)]


def batches(rows: list[dict[str, Any]], size: int = 2) -> Iterator[pa.RecordBatch]:
    return (pa.RecordBatch.from_pylist(rows[at : at + size], SCHEMA) for at in range(0, len(rows), size))


def attempt(client: ModelClient, rows: Iterator[Any], **options: str) -> None:
    """An attempt at a task, in a worker of its own."""
    writer = KinesisWriter(parse_options({"stream": "s", "region": "us-east-1", **options}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SourceOptions, "client", lambda _: client)
        pickle.loads(pickle.dumps(writer)).write(rows)


@pytest.mark.requirement("SPK-67")
@settings(max_examples=examples(40))
@given(
    st.integers(0, 40),
    st.integers(1, 9),
    st.lists(st.sets(st.integers(0, 3), min_size=1) | st.integers(0, 4), max_size=3),
)
def test_a_task_that_is_tried_again_loses_no_row_and_says_what_comes_twice(
    count: int, size: int, troubles: list[set[int] | int]
) -> None:
    """Attempts fail before the last one: shards refuse records until these are too old, or the task is ended
    after so many batches of rows."""
    client, put = ModelClient(4), Counter[bytes]()
    rows = [{"partitionKey": f"k{n}", "data": b"%d" % n} for n in range(count)]
    wanted = Counter(row["data"] for row in rows)

    def ended(after: int) -> Iterator[Any]:
        for number, batch in enumerate(batches(rows, size)):
            if number == after:
                raise KeyboardInterrupt
            yield batch

    for trouble in [*troubles, set()]:
        refusing = trouble if isinstance(trouble, set) else set()
        given_rows = batches(rows, size) if isinstance(trouble, set) else ended(trouble)
        client.stream.throttled = {f"shardId-{number:012}" for number in refusing}
        before = client.stream.delivered()
        try:
            attempt(client, given_rows, **{"sink.recordTtl": "100", "sink.recordMaxBufferedTimeMs": "1"})
        except RowsNotWritten as error:
            assert refusing
            assert error.failed > 0
            assert error.failed + error.written == error.rows <= count
            assert (client.stream.delivered() - before).total() == error.written
        except KeyboardInterrupt:
            assert client.stream.delivered() == before
        else:
            assert client.stream.delivered() - before == wanted
        put += client.stream.delivered() - before
    assert client.stream.delivered() == put
    assert put.keys() == wanted.keys()


@pytest.mark.requirement("SPK-68", "SPK-73")
@every(
    "bad, message",
    [
        ({"data": None}, "data must not be null"),
        ({"partitionKey": ""}, "partition key"),
        ({"partitionKey": "k" * 257}, "partition key"),
        ({"explicitHashKey": "007"}, "hash key"),
        ({"data": bytes(2**20 + 1)}, "1048576"),
        ({"tags": [None]}, "a tag must not be null"),
        ({"tags": [{"key": None, "value": "x"}]}, "the key of a tag must not be null"),
    ],
)
def test_a_row_that_cannot_be_written_comes_before_all_others(bad: dict[str, Any], message: str) -> None:
    client, row = ModelClient(), {"partitionKey": "k", "data": b"x"}
    with pytest.raises(EncodeError, match=message):
        attempt(client, batches([*SOUND, row | bad]))
    assert not client.stream.delivered()
    attempt(client, batches([*SOUND, row | {"tags": [{"key": "a", "value": None}]}]))
    assert client.stream.delivered().total() == 8


@pytest.mark.requirement("SPK-68")
def test_columns_are_known_in_any_case() -> None:
    client = ModelClient()
    rows = [{"PARTITIONKEY": f"k{n}", "Data": b"%d" % n} for n in range(5)]
    attempt(client, iter([pa.RecordBatch.from_pylist(rows)]))
    attempt(client, iter([Row(**row) for row in rows]))
    users = kpl.deaggregate(client.stream.stored)
    expected = [(row["PARTITIONKEY"], row["Data"]) for row in rows] * 2
    assert sorted((user.partition_key, user.data) for user in users) == sorted(expected)


@pytest.mark.requirement("SPK-68", "SPK-69")
@every(
    "columns, match",
    [
        ({"DATA": BINARY, "partitionkey": TEXT}, None),
        ({"data": TEXT, "tags": tags(key=TEXT, value=TEXT)}, None),
        ({"data": BINARY, "Data": BINARY}, "each once"),
        ({"data": BINARY, "other": TEXT}, "only partitionKey"),
        ({"partitionKey": TEXT}, "a column data"),
        ({"data": pa.int32()}, r"'data int': expected binary or string: cast\(data AS string\) AS data"),
        ({"data": pa.map_(TEXT, TEXT)}, r"binary or string: to_json\(data\) AS data"),
        ({"data": pa.list_(TEXT)}, r"to_json\(data\)"),
        ({"data": BINARY, "a.b": TEXT}, r"'a\.b': expected only .*to_json\(struct\(\*\)\) AS data"),
        ({"data": BINARY, "explicitHashKey": pa.decimal128(38)}, r"cast\(explicitHashKey AS string\)"),
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
    with pytest.raises(OptionError, match=match) if match else nullcontext():
        check_write(schema, overwrite=False)


@pytest.mark.requirement("PRD-62", "SPK-73")
def test_a_row_may_be_as_large_as_the_stream_takes() -> None:
    def spoil(operation: str, answer: Any) -> Any:
        if operation == "DescribeStreamSummary":
            answer["StreamDescriptionSummary"]["MaxRecordSizeInKiB"] = 3 * 1024
        return answer

    client, row = ModelClient(spoil=spoil), {"partitionKey": "k", "data": bytes(2 << 20)}
    attempt(client, batches([row]))
    assert client.stream.delivered().total() == 1
    with pytest.raises(RecordTooLarge, match="3145728"):
        attempt(client, batches([row, row | {"data": bytes(3 << 20)}]))
    assert client.stream.delivered().total() == 1


@pytest.mark.requirement("SPK-118")
@every(
    "properties, refused",
    [
        ({}, False),
        ({"execution.id": "7", "execution.root.id": "7"}, False),
        ({"execution.id": "8", "execution.root.id": "7"}, True),
        ({"execution.id": "8"}, False),
        ({"execution.root.id": "7", "queryId": "q", "short": "start at X.java:0"}, False),
        ({"execution.id": "8", "execution.root.id": "7", "queryId": "q"}, False),
        ({"execution.root.id": "7", "queryId": "q", "short": "toTable at X.java:0"}, True),
    ],
)
def test_a_task_knows_whether_its_rows_fill_a_new_table(properties: dict[str, str], refused: bool) -> None:
    prefixes = {"queryId": "sql.streaming.", "short": "callSite."}
    named = {prefixes.get(name, "spark.sql.") + name: value for name, value in properties.items()}
    with pytest.raises(OptionError, match=r"save\(\) or start\(\)") if refused else nullcontext():
        refuse_new_table(named.get)
