"""Each way of handling an event with a plain function, and what handlers and stores are to the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from aws_lambda_powertools.utilities.batch import process_partial_response

import kpl_codec as kpl
from kpl_codec.adapters import to_firehose, to_lambda
from kpl_codec.aws_lambda import aio, process_user_records, transform_user_records
from kpl_codec.aws_lambda.powertools import UserRecordBatchProcessor

from .conftest import STREAM

#: Sequence number and sub-sequence number.
Id = tuple[str | None, int]


def identity(record: kpl.DeaggregatedRecord) -> Id:
    return record.sequence_number, record.sub_sequence_number


def numbers(response: dict[str, Any]) -> list[str]:
    assert set(response) == {"batchItemFailures"}
    assert all(set(item) == {"itemIdentifier"} for item in response["batchItemFailures"])
    return [item["itemIdentifier"] for item in response["batchItemFailures"]]


def by_firehose(event: Any, handler: Any, **options: Any) -> list[str]:
    sent = [record["kinesisRecordMetadata"]["sequenceNumber"] for record in event["records"]]
    results = transform_user_records(event, handler, **options)["records"]
    return [
        number for number, result in zip(sent, results, strict=True) if result["result"] == "ProcessingFailed"
    ]


#: It lives from invocation to invocation, as in a function.
PROCESSOR = UserRecordBatchProcessor()


def by_powertools(event: Any, handler: Any, **options: Any) -> list[str]:
    processor = UserRecordBatchProcessor(**options) if options else PROCESSOR
    return numbers(process_partial_response(event, lambda record: handler(record), processor))


#: Each handles an event and returns the sequence numbers of the Kinesis records that failed.
WAYS: dict[str, Callable[..., list[str]]] = {
    "plain": lambda event, handler, **options: numbers(process_user_records(event, handler, **options)),
    "asyncio": lambda event, handler, **options: numbers(
        aio.run(aio.process_user_records(event, handler, **options))
    ),
    "firehose": by_firehose,
    "powertools": by_powertools,
}


def event_for(way: str, rows: Sequence[kpl.KinesisRecord]) -> dict[str, Any]:
    if way == "firehose":
        delivery = STREAM.replace("kinesis", "firehose")
        return to_firehose(rows, delivery_stream_arn=delivery, source_stream_arn=STREAM)
    return to_lambda(rows, stream_arn=STREAM)


class Context:
    """Lambda's context. ``left`` returns the milliseconds that are left."""

    aws_request_id = "1"

    def __init__(self, left: Callable[[], int]) -> None:
        self.get_remaining_time_in_millis = left


class Handler:
    """Fails each user record as often as ``failing`` says; keeps what it was called with."""

    def __init__(self, failing: dict[Id, int] | None = None) -> None:
        self.left = dict(failing or {})
        self.called: list[kpl.DeaggregatedRecord] = []
        self.done: list[kpl.DeaggregatedRecord] = []

    def __call__(self, record: kpl.DeaggregatedRecord) -> None:
        self.called.append(record)
        if self.left.get(identity(record), 0) > 0:
            self.left[identity(record)] -= 1
            raise RuntimeError("not this time")
        self.done.append(record)

    async def run(self, record: kpl.DeaggregatedRecord) -> None:
        await asyncio.sleep(0)
        self(record)


class Once:
    """A ``once`` with a store in memory. ``again``: keys of which it was asked after they were handled."""

    store = "a member of the user's own class"

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.again: list[str] = []

    def __call__(self, key: str, call: Any) -> Any:
        if not self.knows(key):
            call()
            self.keys.add(key)

    def knows(self, key: str) -> bool:
        if key in self.keys:
            self.again.append(key)
            return True
        return False


class AsyncOnce(Once):
    async def __call__(self, key: str, call: Any) -> None:
        if not self.knows(key):
            await call()
            self.keys.add(key)


#: The kind of each way that takes one.
ONCES = {"plain": Once, "asyncio": AsyncOnce}
