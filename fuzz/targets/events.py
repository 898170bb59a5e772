"""Lambda and Firehose events, captured answers: whatever `kpl_codec.adapters` and `aws_lambda` are given."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable
from itertools import count
from typing import Any

from pydantic import ValidationError

import kpl_codec as kpl
from kpl_codec import adapters, aws_lambda
from kpl_codec.aws_lambda import aio
from kpl_codec.aws_lambda.batch import OpenedRecord
from kpl_codec.aws_lambda.events import records_of_event
from kpl_codec.aws_lambda.firehose import transform_user_records
from kpl_codec.aws_lambda.parser import KinesisUserRecordEnvelope, KinesisUserRecordModel
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


def events(given: bytes) -> None:
    """Captures of every form: Kinesis records or CaptureError; a handler, a window and Powertools answer for
    each."""
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
    assert set(answer) == {"batchItemFailures"}
    known = {record.sequence_number for record in records}
    for failure in answer["batchItemFailures"]:
        assert failure["itemIdentifier"] in known
    opened = list(records_of_event(event))
    _read_by_others(event, opened)
    for failing in (0, 3):
        _window(event, opened, failing)
        _powertools(event, opened, failing)
        _at_once(event, opened, failing)


def _failing(number: int) -> Callable[[], None]:
    """A function that raises when it is called for the ``number``th time."""
    calls = count(1)

    def call() -> None:
        if next(calls) == number:
            raise ValueError("as told")

    return call


def _window(event: Any, opened: list[OpenedRecord], failing: int) -> None:
    """The state holds the user records of the Kinesis records before the first that failed, and no others."""
    folded, failed = 0, []
    for unit in opened:
        if unit.poison is not None or 0 <= failing - folded - 1 < len(unit.user_records):
            failed = [{"itemIdentifier": unit.identifier}]
            break
        folded += len(unit.user_records)
    called, ended = _failing(failing), []

    def fold(state: dict[str, Any], record: Any) -> None:
        state["folded"] = state.get("folded", 0) + 1
        called()

    first = event.get("state")
    try:
        answer = aws_lambda.process_window(
            {**event, "state": {**first, "folded": 0} if isinstance(first, dict) else first},
            fold,
            on_window_end=lambda state, _: ended.append(state["folded"] if folded else 0),
        )
    except kpl.CaptureError as error:
        assert not isinstance(first, dict | None), error
        return
    assert answer["batchItemFailures"] == failed
    assert answer["state"].get("folded", 0) == folded
    assert ended == ([folded] if event.get("isFinalInvokeForWindow") and not failed else [])


def _powertools(event: Any, opened: list[OpenedRecord], failing: int) -> None:
    """The handler gets every user record; each failed Kinesis record is reported once."""
    given: list[Any] = []
    called = _failing(failing)

    def handle(record: KinesisUserRecord) -> None:
        kinesis = record.kinesis
        given.append((kinesis.sequence_number, kinesis.sub_sequence_number, kinesis.data_as_bytes()))
        called()

    processor = UserRecordBatchProcessor(raise_on_entire_batch_failure=False)
    with processor(event["Records"], handle):
        processor.process()
    expected, failed = [], []
    for unit in opened:
        if unit.poison is not None or 0 <= failing - len(expected) - 1 < len(unit.user_records):
            failed.append(unit.identifier)
        expected += [
            (unit.identifier, record.sub_sequence_number, record.data) for record in unit.user_records
        ]
    assert given == expected
    order = dict.fromkeys(failed)
    assert processor.response() == {"batchItemFailures": [{"itemIdentifier": number} for number in order]}


def _at_once(event: Any, opened: list[OpenedRecord], failing: int) -> None:
    """An async handler gets the user records of one partition key in order, none after one that failed, and
    what is reported are Kinesis records of the event. (tests/aws_lambda has the rest of this law.)"""
    records = [record for unit in opened for record in unit.user_records]
    target = records[failing - 1] if 0 < failing <= len(records) else None
    for after_failure in ("stop", "continue"):
        handled: list[Any] = []

        async def handle(record: Any, handled: list[Any] = handled) -> None:
            handled.append(record)
            await asyncio.sleep(0)
            if record == target:
                raise ValueError("as told")

        answer = aio.run(aio.process_user_records(event, handle, after_failure=after_failure, concurrency=2))
        reported = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        assert reported <= {unit.identifier for unit in opened}
        for key in {record.partition_key for record in records}:
            lane = [record for record in records if record.partition_key == key]
            seen = [record for record in handled if record.partition_key == key]
            assert seen == lane[: len(seen)]
            assert target not in seen[:-1]


def _read_by_others(event: Any, opened: list[OpenedRecord]) -> None:
    """An event of user records is read as these user records: by `adapters`, by Powertools' models."""
    error = next((unit.poison.error for unit in opened if unit.poison is not None), None)
    try:
        flat = user_record_event(event)
    except (kpl.CaptureError, kpl.DecodeError) as raised:
        assert str(raised) == str(error)
        return
    assert error is None
    records = [record for unit in opened for record in unit.user_records]
    read = list(adapters.kinesis_records(flat))
    for record, raw, again in zip(records, flat["Records"], read, strict=True):
        expected = record.partition_key, record.data, record.sub_sequence_number
        assert (again.partition_key, again.data, raw["kinesis"]["subSequenceNumber"]) == expected
        try:
            kinesis = KinesisUserRecordModel.model_validate(raw).kinesis
        except ValidationError:
            continue  # a member that Powertools wants, or as another type
        assert (kinesis.partitionKey, kinesis.data, kinesis.subSequenceNumber) == expected
        assert (kinesis.sequenceNumber, kinesis.explicitHashKey) == (
            record.sequence_number,
            record.explicit_hash_key,
        )
    with contextlib.suppress(ValueError):  # the same, or data that is no JSON
        assert len(KinesisUserRecordEnvelope().parse(event, Any)) == len(records)


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
