"""A rule about Kinesis records holds in every way out of an event."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aws_lambda_powertools.utilities.batch import process_partial_response
from aws_lambda_powertools.utilities.data_classes import KinesisStreamEvent
from aws_lambda_powertools.utilities.parser import parse
from pydantic import BaseModel, RootModel

import kpl_codec as kpl
from kpl_codec.adapters import kinesis_records, to_lambda
from kpl_codec.arrow import deaggregate_table
from kpl_codec.aws_lambda import aio, process_user_records, user_records
from kpl_codec.aws_lambda.parser import KinesisUserRecordEnvelope, KinesisUserRecordModel
from kpl_codec.aws_lambda.powertools import UserRecordBatchProcessor, user_record_event
from kpl_codec.captures.capture_rows import CAPTURE_SCHEMA, CaptureRows
from kpl_codec.cli.main import main

from ..every import every

STREAM = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
SHARD = "shardId-000000000000"
FRAME = kpl.encode([kpl.UserRecord("a", b'{"n": 1}'), kpl.UserRecord("b", b'{"n": 2}', "7")])
#: Partition key, data, sub-sequence number.
Row = tuple[str | None, bytes, int]
OPENED: list[Row] = [("a", b'{"n": 1}', 0), ("b", b'{"n": 2}', 1)]


def event_of(*datas: bytes, **changes: Any) -> dict[str, Any]:
    """Lambda's event; ``changes`` of each record's ``kinesis``, None takes a member out."""
    records = [kpl.KinesisRecord("k", data, str(100 + at), SHARD) for at, data in enumerate(datas)]
    event = to_lambda(records, stream_arn=STREAM)
    for record in event["Records"]:
        kinesis = {**record["kinesis"], "approximateArrivalTimestamp": 1767323045.25, **changes}
        record["kinesis"] = {name: value for name, value in kinesis.items() if value is not None}
    return event


# -- the rules: an event, and what must come out of it ------------------------------------------------

RULES: dict[str, tuple[dict[str, Any], list[Row]]] = {
    "as usual": (event_of(b'{"n": 0}', FRAME), [("k", b'{"n": 0}', 0), *OPENED]),
    "AUTO: no partition key": (
        event_of(b'{"n": 0}', FRAME, partitionKey=None), [(None, b'{"n": 0}', 0), *OPENED]),
    "no time": (event_of(FRAME, approximateArrivalTimestamp=None), OPENED),
    "a time in milliseconds": (event_of(FRAME, approximateArrivalTimestamp=1767323045250), OPENED),
    "a time that cannot be read": (event_of(FRAME, approximateArrivalTimestamp="2026-01-02T03:04"), OPENED),
    "a time without end": (event_of(FRAME, approximateArrivalTimestamp=1e300), OPENED),
    "opened before, number 0": (
        event_of(b'{"n": 0}', subSequenceNumber=0, explicitHashKey="9"), [("k", b'{"n": 0}', 0)]),
    "opened before, number 2^40": (event_of(b"1", subSequenceNumber=2**40), [("k", b"1", 2**40)]),
    "an empty partition key": (event_of(b"1", partitionKey=""), [("", b"1", 0)]),
}  # fmt: skip


# -- the ways out -------------------------------------------------------------------------------------


def of_objects(records: Any) -> list[Row]:
    return [(record.partition_key, record.data, record.sub_sequence_number) for record in records]


def by_process(event: Any, tmp_path: Path) -> list[Row]:
    records: list[Any] = []
    assert process_user_records(event, records.append) == {"batchItemFailures": []}
    return of_objects(records)


def list_of_pipe(event: Any) -> list[dict[str, Any]]:
    return [{**record["kinesis"], **without(record, "kinesis")} for record in event["Records"]]


def by_pipe(event: Any, tmp_path: Path) -> list[Row]:
    """The list with which EventBridge Pipes calls a function."""
    return by_process(list_of_pipe(event), tmp_path)


def by_aio(event: Any, tmp_path: Path) -> list[Row]:
    records: list[Any] = []

    async def handler(record: Any) -> None:
        records.append(record)

    run = aio.process_user_records(event, handler, concurrency=1)
    assert asyncio.run(run) == {"batchItemFailures": []}
    return of_objects(records)


def by_processor(event: Any, processor: UserRecordBatchProcessor) -> list[Any]:
    """What Powertools gives a handler."""
    records: list[Any] = []
    response = process_partial_response(event, lambda record: records.append(record), processor)
    assert response == {"batchItemFailures": []}
    return records


def by_data_class(event: Any, tmp_path: Path) -> list[Row]:
    records = by_processor(event, UserRecordBatchProcessor())
    assert all(isinstance(record.kinesis.approximate_arrival_timestamp, float | None) for record in records)
    return [
        (r.kinesis.partition_key, r.kinesis.data_as_bytes(), r.kinesis.sub_sequence_number) for r in records
    ]


def by_model(event: Any, tmp_path: Path) -> list[Row]:
    records = by_processor(event, UserRecordBatchProcessor(model=KinesisUserRecordModel))
    return [(r.kinesis.partitionKey, r.kinesis.data, r.kinesis.subSequenceNumber) for r in records]


class Anything(RootModel[Any]):
    pass


def by_envelope(event: Any, tmp_path: Path) -> list[Row]:
    """It gives models of the data and nothing else."""
    found: list[BaseModel] = parse(event, model=Anything, envelope=KinesisUserRecordEnvelope)  # type: ignore[assignment]
    rest = of_objects(user_records(event))
    assert [item.model_dump() for item in found] == [json.loads(data) for _, data, _ in rest]
    return rest


def by_powertools_own_class(event: Any, tmp_path: Path) -> list[Row]:
    ours = KinesisStreamEvent(user_record_event(event))
    return [
        (r.kinesis.partition_key, r.kinesis.data_as_bytes(), r.kinesis["subSequenceNumber"])
        for r in ours.records
    ]


def by_itself_again(event: Any, tmp_path: Path) -> list[Row]:
    """What was opened is read as it is."""
    return of_objects(user_records(user_record_event(event)))


def by_cat(event: Any, tmp_path: Path, capsys: Any) -> list[Row]:
    main(["cat", capture(event, tmp_path)])
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [(r.get("partitionKey"), r["data"].encode(), r.get("subSequenceNumber", 0)) for r in shown]


def by_validate(event: Any, tmp_path: Path) -> list[Row]:
    listing = tmp_path / "shards.json"
    shard = kpl.Shard(
        SHARD,
        kpl.ALL_HASH_KEYS,
        parent_shard_id=None,
        adjacent_parent_shard_id=None,
        starting_sequence_number="1",
    )
    listing.write_text(json.dumps({"Shards": [shard.to_aws()]}))
    out = tmp_path / "checked"
    options = ["--output", str(out), "--cores", "1", "--quiet"]
    main(["validate", capture(event, tmp_path), "--shards", str(listing), *options])
    files = list((out / "user-records").glob("**/*.parquet"))
    return of_columns(pa.concat_tables(map(pq.read_table, files))) if files else []


def of_columns(table: pa.Table) -> list[Row]:
    names = ("partitionKey", "data", "subSequenceNumber")
    return [
        row for row in zip(*(table[name].to_pylist() for name in names), strict=True) if row[2] is not None
    ]


def rows_of(event: Any) -> pa.RecordBatch:
    rows = CaptureRows(None)
    for record in kinesis_records(event):
        rows.record(record, "orders")
    return next(rows.take(), pa.RecordBatch.from_pylist([], CAPTURE_SCHEMA))


def by_columns(event: Any, tmp_path: Path) -> list[Row]:
    return of_columns(deaggregate_table(rows_of(event), "report").table)


def by_spark(event: Any, tmp_path: Path) -> list[Row]:
    """What runs in a worker of Spark, without Spark."""
    from kpl_codec.spark.functions import deaggregate_in_task

    return of_columns(pa.Table.from_batches(deaggregate_in_task(iter([rows_of(event)]), "report")))


def capture(event: Any, tmp_path: Path) -> str:
    file = tmp_path / "captured" / f"{SHARD}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(event))
    return str(file)


def without(record: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in names}


WAYS: dict[str, Callable[..., list[Row]]] = {
    "process_user_records": by_process,
    "EventBridge Pipes": by_pipe,
    "asyncio": by_aio,
    "user_records": lambda event, tmp_path: of_objects(user_records(event)),
    "Powertools' data class": by_data_class,
    "Powertools' model": by_model,
    "Powertools' envelope": by_envelope,
    "Powertools' own class": by_powertools_own_class,
    "opened, and read again": by_itself_again,
    "cat": by_cat,
    "validate": by_validate,
    "columns": by_columns,
    "Spark's worker": by_spark,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.requirement("CAP-3", "CAP-13", "DAG-8", "DAG-3")
@every("rule", RULES)
def test_every_rule_holds_in_every_way_out(rule: str, way: str, tmp_path: Path, capsys: Any) -> None:
    event, expected = RULES[rule]
    more = {"capsys": capsys} if way == "cat" else {}
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    assert WAYS[way](json.loads(json.dumps(event)), folder, **more) == expected


@pytest.mark.requirement("LMB-16", "LMB-4")
def test_a_pipe_hears_of_a_failure_by_the_event_id() -> None:
    pipe = list_of_pipe(event_of(b"1", FRAME[:-1] + b"x", b"2"))
    handled: list[bytes] = []

    def handler(record: Any) -> None:
        handled.append(record.data)
        if record.data == b"2":
            raise RuntimeError

    failed = [{"itemIdentifier": f"{SHARD}:101"}, {"itemIdentifier": f"{SHARD}:102"}]
    assert process_user_records(pipe, handler, after_failure="continue") == {"batchItemFailures": failed}
    assert handled == [b"1", b"2"]
    own = event_of(b"1", FRAME[:-1] + b"x", b"2")
    answer = process_user_records(own, handler, after_failure="continue")
    assert process_user_records(own["Records"], handler, after_failure="continue") == answer
    assert [one["itemIdentifier"] for one in answer["batchItemFailures"]] == ["101", "102"]
    del pipe[0]["eventID"]
    with pytest.raises(kpl.CaptureError, match="missing"):
        process_user_records(pipe, lambda record: None)


B64 = base64.b64encode(FRAME).decode()
#: What is no event of a stream, and a word that the error must say.
OTHERS = {
    "Firehose": ({"records": [{"recordId": "1", "data": B64}]}, "transform_user_records"),
    "DynamoDB Streams": (
        {"Records": [{"eventID": "1", "eventSource": "aws:dynamodb", "dynamodb": {"SequenceNumber": "1"}}]},
        "DynamoDB Streams",
    ),
    "a notice": ({"KinesisBatchInfo": {"startSequenceNumber": "1"}}, "--only"),
    "SQS": ({"Records": [{"messageId": "1", "receiptHandle": "h", "body": "{}"}]}, "SQS"),
    "SNS": ({"Records": [{"EventSource": "aws:sns", "Sns": {"Message": "{}"}}]}, "SNS"),
    "S3": ({"Records": [{"eventSource": "aws:s3", "s3": {"object": {"key": "k"}}}]}, "S3"),
    "EventBridge": ({"detail-type": "x", "detail": {}}, "EventBridge"),
    "HTTP": ({"requestContext": {"http": {}}, "body": "{}"}, "HTTP"),
    "API Gateway": ({"resource": "/", "httpMethod": "POST", "body": "{}"}, "HTTP"),
    "another trigger": ({"key1": "value1", "key2": "value2"}, "has 'key1', 'key2': look at the triggers"),
    "CloudWatch Logs": ({"awslogs": {"data": "H4sI"}}, "CloudWatch Logs"),
    "base64": (B64, "base64"),
    "text": ('{"Records": []}', "pass json.loads(event)"),
    "bytes": (b'{"Records": []}', "pass json.loads(event)"),
}


@pytest.mark.requirement("CAP-1")
@every("name", OTHERS)
def test_what_is_no_event_of_a_stream_is_called_by_its_name(name: str) -> None:
    event, word = OTHERS[name]
    with pytest.raises(kpl.CaptureError) as raised:
        process_user_records(event, lambda record: None)
    assert word in str(raised.value)
    if name not in ("SQS", "Firehose", "another trigger", "text", "bytes"):  # the first two have records
        with pytest.raises(kpl.CaptureError) as raised:
            list(user_records(event))
        assert word in str(raised.value)
