"""Lambda and Firehose events, captured answers: whatever `kpl_codec.adapters` and `aws_lambda` are given."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

import kpl_codec as kpl
from kpl_codec import adapters, aws_lambda
from kpl_codec.aws_lambda import aio
from kpl_codec.aws_lambda.events import records_of_event
from kpl_codec.aws_lambda.firehose import transform_user_records
from kpl_codec.aws_lambda.powertools import KinesisUserRecord, UserRecordBatchProcessor, user_record_event

from .. import corpus
from .target import Target, dumped, loaded, repeated


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


Row = tuple[str | None, bytes, int]


def _rows(records: Iterable[Any]) -> list[Row]:
    return [(record.sequence_number, record.data, record.sub_sequence_number) for record in records]


def events(given: bytes) -> None:
    """Captures of every form: Kinesis records or CaptureError. Every way to handle an event gets the same
    user records, and reports the Kinesis records that cannot be opened. (tests/aws_lambda has the laws about
    handlers that fail.)"""
    event = _event(given)
    records = []
    for source in (event, given.decode("utf-8", "replace")):
        for item in adapters.captured(source):
            if isinstance(item, kpl.CaptureError):
                str(item)
            else:
                records.append(item)
    report = kpl.deaggregate(records, "report")
    rows = list(report)
    assert sum(row.is_user_record for row in rows) == report.counts.user_records
    assert len(rows) >= len(records)  # one without a user record has a row that says why
    try:
        list(kpl.deaggregate(adapters.kinesis_records(event)))
    except (kpl.CaptureError, kpl.DecodeError) as error:
        str(error)
    handled: list[Any] = []
    try:
        answer = aws_lambda.process_user_records(event, handled.append, after_failure="continue")
    except kpl.CaptureError:
        return
    except ValueError:
        assert "isFinalInvokeForWindow" in event  # LMB-9
        return
    opened = list(records_of_event(event))
    expected = [record for unit in opened for record in unit.user_records]
    poison = list(dict.fromkeys(unit.identifier for unit in opened if unit.poison is not None))
    assert answer == {"batchItemFailures": [{"itemIdentifier": number} for number in poison]}
    assert handled == expected
    assert _by_asyncio(event) == (sorted(expected, key=_key), answer)
    if isinstance(event, list):  # EventBridge Pipes calls only these two
        return
    assert _by_powertools(event) == (_rows(expected), answer)
    try:
        flat = user_record_event(event)
    except (kpl.CaptureError, kpl.DecodeError):
        assert poison
    else:
        assert _rows(adapters.kinesis_records(flat)) == _rows(expected)


def _key(record: Any) -> str:
    return repr(record.partition_key)


def _by_asyncio(event: Any) -> tuple[list[Any], Any]:
    """The user records by partition key: those of one key come in order."""
    handled: list[Any] = []

    async def handle(record: Any) -> None:
        handled.append(record)

    answer = aio.run(aio.process_user_records(event, handle, after_failure="continue", concurrency=2))
    return sorted(handled, key=_key), answer


def _by_powertools(event: Any) -> tuple[list[Row], Any]:
    handled: list[Row] = []

    def handle(record: KinesisUserRecord) -> None:
        kinesis = record.kinesis
        handled.append((kinesis.sequence_number, kinesis.data_as_bytes(), kinesis.sub_sequence_number))

    processor = UserRecordBatchProcessor(raise_on_entire_batch_failure=False)
    with processor(event["Records"], handle):
        processor.process()
    return handled, processor.response()


def firehose(given: bytes) -> None:
    """A transformation answers every record id once, in order, within its limit; or CaptureError."""
    event = loaded(given)
    if event is None:
        data = base64.b64encode(given).decode()
        event = {"invocationId": "i", "records": [{"recordId": "1", "data": data}]}
    poisons: list[Any] = []
    try:
        answer = transform_user_records(event, lambda record: record.data, on_poison=poisons.append)
    except kpl.CaptureError as error:
        str(error)
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


def _seeds() -> list[bytes]:
    """Also the last events of windows, with a state."""
    seeds = list(corpus.events())
    windows = [json.loads(event) for event in seeds if b'"kinesis"' in event and b'"Records"' in event][:3]
    last = {"isFinalInvokeForWindow": True}
    states = [{"a": 1}, [["a", 1]], "ab", None]
    return [*seeds, *dumped(*({**event, **last, "state": state} for event in windows for state in states))]


def _firehose_seeds() -> list[bytes]:
    return [event for event in corpus.events() if b"recordId" in event]


TARGETS = {
    "lambda": Target(events, _seeds, GROWN, json=True),
    "firehose": Target(firehose, _firehose_seeds, FIREHOSE, json=True),
}
