"""Lambda and Firehose events, captured answers: whatever `kpl_codec.adapters` and `aws_lambda` are given."""

from __future__ import annotations

import base64
from typing import Any

import kpl_codec as kpl
from kpl_codec import adapters, aws_lambda
from kpl_codec.aws_lambda.firehose import transform_user_records

from .. import corpus
from .target import Target, loaded, repeated


def _event(given: bytes) -> Any:
    """The input as JSON; or else as the data of one record of an event."""
    event = loaded(given)
    if event is not None:
        return event
    record = {
        "data": base64.b64encode(given).decode(),
        "partitionKey": "a",
        "sequenceNumber": "1",
        "approximateArrivalTimestamp": 1.5,
    }
    return {"Records": [{"kinesis": record, "eventID": "shardId-000000000000:1"}]}


def events(given: bytes) -> None:
    """Captures of every form: Kinesis records or CaptureError; a Lambda handler answers for each."""
    event = _event(given)
    records = []
    for source in (event, given.decode("utf-8", "replace")):
        for item in adapters.captured(source):
            if isinstance(item, kpl.CaptureError):
                str(item)
            else:
                records.append(item)
    report = kpl.deaggregate(records, "report")
    assert len(list(report)) == report.counts.user_records >= len(records)
    try:
        list(kpl.deaggregate(adapters.kinesis_records(event)))
    except (kpl.CaptureError, kpl.DecodeError) as error:
        str(error)
    handled: list[Any] = []
    try:
        answer = aws_lambda.process_user_records(event, handled.append, on_poison=lambda poison: None)
    except kpl.CaptureError:
        return
    except TypeError as error:  # the mistake of the handler's author, who is told what to use
        assert str(error).startswith("process_user_records "), error
        return
    assert set(answer) == {"batchItemFailures"}
    known = {record.sequence_number for record in records}
    for failure in answer["batchItemFailures"]:
        assert failure["itemIdentifier"] in known


def firehose(given: bytes) -> None:
    """A transformation answers every record id once, in order, within its limit; or CaptureError."""
    event = loaded(given)
    if event is None:
        data = base64.b64encode(given).decode()
        event = {"invocationId": "i", "records": [{"recordId": "1", "data": data}]}
    poisons: list[Any] = []
    try:
        answer = transform_user_records(
            event, lambda record: record.data, on_poison=poisons.append, max_response_size=10_000
        )
    except kpl.CaptureError as error:
        str(error)
        return
    except TypeError as error:
        assert str(error).startswith("transform_user_records "), error
        return
    ids = [record["recordId"] for record in event["records"]]
    assert [record["recordId"] for record in answer["records"]] == ids
    assert {record["result"] for record in answer["records"]} <= {"Ok", "Dropped", "ProcessingFailed"}
    failed = sum(record["result"] == "ProcessingFailed" for record in answer["records"])
    assert failed >= len(poisons)


_RECORD = (
    b'{"eventID":"shardId-000000000000:1","kinesis":{"data":"YQ==","partitionKey":"a","sequenceNumber":"1",'
    b'"approximateArrivalTimestamp":1.5}},'
)
_LAST = b"{}]}"
GROWN = {
    "records": repeated(_RECORD, head=b'{"Records":[', tail=_LAST),
    "records without data": repeated(b'{"kinesis":{}},', head=b'{"Records":[', tail=_LAST),
    "broken lines": repeated(b'{"Records":[\n'),
    "open brackets": repeated(b"["),
    "values in a line": repeated(b'{"a":1} '),
    "members": repeated(b'"a":1,', head=b"{", tail=b'"b":2}'),
    "broken base64": repeated(b"%", head=b'{"Records":[{"kinesis":{"data":"', tail=b'"}}]}'),
}
FIREHOSE = {
    "records": repeated(b'{"recordId":"1","data":"YQ=="},', head=b'{"records":[', tail=_LAST),
    "no ids": repeated(b'{"data":"YQ=="},', head=b'{"records":[', tail=_LAST),
    "same ids": repeated(b'{"recordId":"1"},', head=b'{"records":[', tail=b'{"recordId":"1"}]}'),
}


def _firehose_seeds() -> list[bytes]:
    return [event for event in corpus.events() if b"recordId" in event]


TARGETS = {
    "lambda": Target(events, corpus.events, GROWN, json=True),
    "firehose": Target(firehose, _firehose_seeds, FIREHOSE, json=True),
}
