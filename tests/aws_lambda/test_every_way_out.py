"""What a Kinesis record may lack, in Powertools' envelope and in commands (other ways out of an event are in
`tests/fuzz/test_from_outside.py`); lists of EventBridge Pipes; events of other services."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from aws_lambda_powertools.utilities.parser import parse
from pydantic import BaseModel, RootModel

import kpl_codec as kpl
from kpl_codec.adapters import kinesis_records, to_lambda
from kpl_codec.aws_lambda import process_user_records, user_records
from kpl_codec.aws_lambda.parser import KinesisUserRecordEnvelope
from kpl_codec.cli.main import main

from ..adapters.shapes import to_pipes
from ..every import every
from .conftest import SHARD, STREAM

FRAME = kpl.encode([kpl.UserRecord("a", b'{"n": 1}'), kpl.UserRecord("b", b'{"n": 2}', "7")])


class Anything(RootModel[Any]):
    pass


def event_of(*datas: bytes, **changes: Any) -> dict[str, Any]:
    """Lambda's event; ``changes`` of each record's ``kinesis``, None takes a member out."""
    records = [kpl.KinesisRecord("k", data, str(100 + at), SHARD) for at, data in enumerate(datas)]
    event = to_lambda(records, stream_arn=STREAM)
    for record in event["Records"]:
        kinesis = {**record["kinesis"], "approximateArrivalTimestamp": 1767323045.25, **changes}
        record["kinesis"] = {name: value for name, value in kinesis.items() if value is not None}
    return event


@pytest.mark.requirement("CAP-3", "CAP-13", "DAG-8", "DAG-3")
def test_what_a_record_may_lack_and_a_time_that_cannot_be_read(tmp_path: Path, capsys: Any) -> None:
    """As Powertools' envelope gives it, which has neither key nor number; and as `cat` prints it."""
    bare = event_of(b'{"n": 0}', FRAME, partitionKey=None, approximateArrivalTimestamp=None)
    opened = event_of(b"1", subSequenceNumber=2**40, partitionKey="", approximateArrivalTimestamp=1e300)
    expected = [(None, b'{"n": 0}', 0), ("a", b'{"n": 1}', 0), ("b", b'{"n": 2}', 1), ("", b"1", 2**40)]
    models: list[BaseModel] = []
    for event in (bare, opened):
        models += parse(event, model=Anything, envelope=KinesisUserRecordEnvelope)  # type: ignore[arg-type]
    assert [model.model_dump() for model in models] == [json.loads(data) for _, data, _ in expected]
    opened["Records"][0]["kinesis"]["sequenceNumber"] = "102"
    captured = tmp_path / f"{SHARD}.json"
    captured.write_text(json.dumps({"Records": bare["Records"] + opened["Records"]}))
    main(["cat", str(captured)])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    shown = [(r.get("partitionKey"), r["data"].encode(), r.get("subSequenceNumber", 0)) for r in lines]
    assert shown == expected


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
