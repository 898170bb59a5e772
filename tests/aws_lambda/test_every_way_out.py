"""What a Kinesis record may lack, in the ways out of an event that test_from_outside of tests/fuzz does not
try; lists of EventBridge Pipes; events of other services."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from aws_lambda_powertools.utilities.batch import process_partial_response
from aws_lambda_powertools.utilities.data_classes import KinesisStreamEvent
from aws_lambda_powertools.utilities.parser import parse
from pydantic import BaseModel, RootModel

import kpl_codec as kpl
from kpl_codec.adapters import kinesis_records, to_lambda
from kpl_codec.arrow import deaggregate_table
from kpl_codec.aws_lambda import process_user_records, user_records
from kpl_codec.aws_lambda.parser import KinesisUserRecordEnvelope, KinesisUserRecordModel
from kpl_codec.aws_lambda.powertools import UserRecordBatchProcessor, user_record_event
from kpl_codec.captures.capture_rows import CaptureRows
from kpl_codec.cli.main import main

from ..adapters.shapes import to_pipes
from ..every import every
from .conftest import SHARD, STREAM

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


def by_model(event: Any) -> list[Row]:
    models: list[Any] = []
    processor = UserRecordBatchProcessor(model=KinesisUserRecordModel)
    response = process_partial_response(event, lambda record: models.append(record), processor)
    assert response == {"batchItemFailures": []}
    return [(r.kinesis.partitionKey, r.kinesis.data, r.kinesis.subSequenceNumber) for r in models]


class Anything(RootModel[Any]):
    pass


def by_envelope(event: Any) -> list[Row]:
    """It gives models of the data and nothing else."""
    found: list[BaseModel] = parse(event, model=Anything, envelope=KinesisUserRecordEnvelope)  # type: ignore[assignment]
    rest = [(r.partition_key, r.data, r.sub_sequence_number) for r in user_records(event)]
    assert [item.model_dump() for item in found] == [json.loads(data) for _, data, _ in rest]
    return rest


def by_powertools_own_class(event: Any) -> list[Row]:
    ours = user_record_event(event)
    assert json.loads(json.dumps(ours)) == ours
    return [
        (r.kinesis.partition_key, r.kinesis.data_as_bytes(), r.kinesis["subSequenceNumber"])
        for r in KinesisStreamEvent(ours).records
    ]


def by_columns(event: Any) -> list[Row]:
    """The columns that `validate` makes of a capture."""
    rows = CaptureRows(None)
    for record in kinesis_records(event):
        rows.record(record, "orders")
    table = deaggregate_table(next(rows.take()), "report").table
    columns = [table[name].to_pylist() for name in ("partitionKey", "data", "subSequenceNumber")]
    return [row for row in zip(*columns, strict=True) if row[2] is not None]


WAYS: dict[str, Callable[[Any], list[Row]]] = {
    "Powertools' model": by_model,
    "Powertools' envelope": by_envelope,
    "Powertools' own class": by_powertools_own_class,
    "columns": by_columns,
}


@pytest.mark.requirement("CAP-3", "CAP-13", "DAG-8", "DAG-3")
@every("rule", RULES)
def test_every_rule_holds_in_every_way_out(rule: str, tmp_path: Path, capsys: Any) -> None:
    event, expected = RULES[rule]
    for way, read in WAYS.items():
        assert read(json.loads(json.dumps(event))) == expected, way
    captured = tmp_path / f"{SHARD}.json"
    captured.write_text(json.dumps(event))
    main(["cat", str(captured)])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    shown = [(r.get("partitionKey"), r["data"].encode(), r.get("subSequenceNumber", 0)) for r in lines]
    assert shown == expected


def test_validate_takes_what_a_record_may_lack(tmp_path: Path) -> None:
    events, expected = zip(*RULES.values(), strict=True)
    records = [json.loads(json.dumps(record)) for event in events for record in event["Records"]]
    for number, record in enumerate(records):
        record["kinesis"]["sequenceNumber"] = str(100 + number)
    captured = tmp_path / f"{SHARD}.json"
    captured.write_text(json.dumps({"Records": records}))
    shard = kpl.Shard(SHARD, kpl.ALL_HASH_KEYS, starting_sequence_number="1")
    (tmp_path / "shards.json").write_text(json.dumps({"Shards": [shard.to_aws()]}))
    options = ["--shards", str(tmp_path / "shards.json"), "--output", str(tmp_path / "checked"), "--quiet"]
    assert main(["validate", str(captured), *options]) == 1  # it has findings
    rows = pq.read_table(tmp_path / "checked" / "user-records").to_pylist()
    found = [(row["partitionKey"], row["data"], row["subSequenceNumber"]) for row in rows]
    assert sorted(found, key=repr) == sorted(chain(*expected), key=repr)


@pytest.mark.requirement("LMB-16", "LMB-4")
def test_a_pipe_hears_of_a_failure_by_the_event_id() -> None:
    own = event_of(b"1", FRAME[:-1] + b"x", b"2")
    pipe = to_pipes([*kinesis_records(own)], stream_arn=STREAM)
    handled: list[bytes] = []

    def handler(record: Any) -> None:
        handled.append(record.data)
        if record.data == b"2":
            raise RuntimeError

    def failed(event: Any) -> list[str]:
        response = process_user_records(event, handler, after_failure="continue")
        return [failure["itemIdentifier"] for failure in response["batchItemFailures"]]

    assert failed(pipe) == [f"{SHARD}:101", f"{SHARD}:102"]
    assert handled == [b"1", b"2"]
    assert failed(own) == failed(own["Records"]) == ["101", "102"]
    # Without a name to report the batch fails.
    del pipe[0]["eventID"], own["Records"][1]["kinesis"]["sequenceNumber"]
    for event in (pipe, own):
        with pytest.raises(kpl.CaptureError, match="missing"):
            failed(event)


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
    "an empty list": ([], "the event is of type list"),
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
    # (The first two have records, and an empty list has none to read.)
    if name not in ("SQS", "Firehose", "another trigger", "an empty list", "text", "bytes"):
        with pytest.raises(kpl.CaptureError) as raised:
            list(user_records(event))
        assert word in str(raised.value)
