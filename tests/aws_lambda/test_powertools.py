"""Powertools, as published, on user records: batch processors, data class, parser, idempotency."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError
from aws_lambda_powertools.utilities.data_classes import KinesisStreamEvent
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig
from aws_lambda_powertools.utilities.parser import event_parser
from aws_lambda_powertools.utilities.parser.models import KinesisDataStreamModel
from pydantic import BaseModel

import kpl_codec as kpl
from kpl_codec import adapters
from kpl_codec.aws_lambda import aio, process_user_records, process_window
from kpl_codec.aws_lambda.parser import KinesisUserRecordEnvelope, KinesisUserRecordModel
from kpl_codec.aws_lambda.powertools import (
    KinesisUserRecord,
    UserRecordBatchProcessor,
    async_once,
    once,
    user_record_event,
)

from .conftest import FIRST, SHARD, STREAM, expected_user_records
from .dynamodb import idempotency_table
from .source_mapping import deliver
from .test_events import Handler, identity, numbers

pytestmark = pytest.mark.timeout(120)


def row_of(record: KinesisUserRecord) -> tuple[str, str | None, bytes, str, int]:
    kinesis = record.kinesis
    return (
        kinesis.partition_key,
        kinesis.explicit_hash_key,
        kinesis.data_as_bytes(),
        kinesis.sequence_number,
        kinesis.sub_sequence_number,
    )


class Context:
    aws_request_id = "1"


def test_the_gap_powertools_alone_leaves(event: Any) -> None:
    """It sees three records, and four failures of one Kinesis record would be four equal identifiers."""
    seen: list[Any] = []
    processor = BatchProcessor(event_type=EventType.KinesisDataStreams)
    process_partial_response(
        event=event, record_handler=lambda record: seen.append(record), processor=processor, context=Context()
    )
    assert len(seen) == 3


def run(event: Any, processor: Any, handler: Any) -> list[str]:
    return numbers(
        process_partial_response(event=event, record_handler=handler, processor=processor, context=Context())
    )


def test_the_batch_processor_sees_user_records(event: Any) -> None:
    seen: list[KinesisUserRecord] = []
    assert run(event, UserRecordBatchProcessor(), lambda record: seen.append(record)) == []
    assert [row_of(record) for record in seen] == expected_user_records()
    assert [record.kinesis.aggregated for record in seen] == [False] + [True] * 7
    assert {record.shard_id for record in seen} == {SHARD}
    assert seen[3].kinesis.approximate_arrival_timestamp == 1545084651.123
    assert seen[3].event_source_arn == STREAM


@pytest.mark.requirement("LMB-2")
def test_failures_collapse_to_one_identifier_each(event: Any) -> None:
    def handler(record: KinesisUserRecord) -> None:
        if record.kinesis.aggregated:
            raise RuntimeError("no")

    processor = UserRecordBatchProcessor()
    assert run(event, processor, handler) == [str(FIRST + 1), str(FIRST + 2)]
    assert len(processor.fail_messages) == 7
    # a processor lives from invocation to invocation
    assert run(event, processor, lambda record: None) == []


def test_a_batch_of_failures_only_raises_as_powertools_does(event: Any) -> None:
    def handler(record: KinesisUserRecord) -> None:
        raise RuntimeError("no")

    with pytest.raises(BatchProcessingError):
        run(event, UserRecordBatchProcessor(), handler)
    quiet = UserRecordBatchProcessor(raise_on_entire_batch_failure=False)
    assert run(event, quiet, handler) == [str(FIRST), str(FIRST + 1), str(FIRST + 2)]


@pytest.mark.requirement("LMB-4")
def test_poison_fails_its_kinesis_record(poisoned: Any) -> None:
    seen: list[KinesisUserRecord] = []
    processor = UserRecordBatchProcessor()
    assert run(poisoned, processor, lambda record: seen.append(record)) == [str(FIRST + 1)]
    assert len(seen) == 3
    assert processor.exceptions[0][0] is kpl.ChecksumMismatch


def test_models_of_the_parser(event: Any) -> None:
    seen: list[KinesisUserRecordModel] = []
    processor = UserRecordBatchProcessor(model=KinesisUserRecordModel)
    assert run(event, processor, lambda record: seen.append(record)) == []
    rows = [
        (k.partitionKey, k.explicitHashKey, k.data, k.sequenceNumber, k.subSequenceNumber)
        for k in (model.kinesis for model in seen)
    ]
    assert rows == expected_user_records()


def test_a_model_that_refuses_fails_its_kinesis_record(event: Any) -> None:
    event["Records"][0]["awsRegion"] = None  # no valid record for the model
    seen: list[Any] = []
    processor = UserRecordBatchProcessor(model=KinesisUserRecordModel)
    assert run(event, processor, lambda record: seen.append(record)) == [str(FIRST)]
    assert len(seen) == 7


def test_event_for_data_class_and_model(event: Any) -> None:
    opened = user_record_event(event)
    payloads = [row[2] for row in expected_user_records()]
    assert [r.kinesis.data_as_bytes() for r in KinesisStreamEvent(opened).records] == payloads
    assert [r.kinesis.data for r in KinesisDataStreamModel.model_validate(opened).Records] == payloads
    assert json.loads(json.dumps(opened)) == opened


class Order(BaseModel):
    number: int


def orders(*values: Any) -> dict[str, Any]:
    data = kpl.encode([kpl.UserRecord("p", json.dumps(value).encode()) for value in values])
    record = kpl.KinesisRecord("a", data, "1", SHARD)
    return adapters.to_lambda([record], stream_arn=STREAM)


def test_the_envelope_gives_a_model_per_user_record() -> None:
    @event_parser(model=Order, envelope=KinesisUserRecordEnvelope)
    def handler(event: list[Order], context: Any) -> list[int]:
        return [order.number for order in event]

    event = orders({"number": 1}, {"number": 2}, {"number": 3})
    event["Records"][0]["kinesis"]["approximateArrivalTimestamp"] = 1.5
    assert handler(event, Context()) == [1, 2, 3]


# -- idempotency on a real DynamoDB server -------------------------------------------------------


@pytest.fixture(scope="module")
def dynamodb() -> Iterator[Any]:
    with idempotency_table("done") as client:
        yield client


def store(client: Any) -> DynamoDBPersistenceLayer:
    return DynamoDBPersistenceLayer(table_name="done", boto3_client=client)


FAILING = {(str(FIRST + 1), 3): 2, (str(FIRST + 2), 1): 1}


@pytest.mark.server
@pytest.mark.requirement("LMB-8")
@pytest.mark.parametrize("mode", ["stop", "continue"])
def test_good_siblings_are_not_handled_twice(event: Any, dynamodb: Any, mode: Any) -> None:
    handler = Handler(FAILING)
    guard = once(store(dynamodb), IdempotencyConfig(expires_after_seconds=600), key_prefix=mode)
    tries = deliver(event, lambda sent: process_user_records(sent, handler, once=guard, after_failure=mode))
    assert tries > 1
    done = Counter(identity(row) for row in handler.done)
    assert set(done.values()) == {1}
    assert len(done) == 8
    # The whole batch again, as after a lost checkpoint or in another container: nothing more is done.
    again = once(store(dynamodb), IdempotencyConfig(expires_after_seconds=600), key_prefix=mode)
    assert numbers(process_user_records(event, handler, once=again)) == []
    assert len(handler.done) == 8


@pytest.mark.server
@pytest.mark.requirement("LMB-8", "LMB-14")
def test_the_same_async(event: Any, dynamodb: Any) -> None:
    handler = Handler(FAILING)
    guard = once(store(dynamodb), IdempotencyConfig(expires_after_seconds=600), key_prefix="async")

    def function(sent: Any) -> Any:
        return aio.run(aio.process_user_records(sent, handler.run, once=async_once(guard), concurrency=4))

    deliver(event, function)
    assert set(Counter(identity(row) for row in handler.done).values()) == {1}
    assert len(handler.done) == 8


@pytest.mark.server
@pytest.mark.requirement("LMB-8")
def test_under_way_elsewhere_counts_as_failed(event: Any, dynamodb: Any) -> None:
    guard = once(store(dynamodb), IdempotencyConfig(expires_after_seconds=600), key_prefix="busy")
    inner: list[list[str]] = []

    def handler(record: kpl.DeaggregatedRecord) -> None:
        if not inner:
            inner.append([])
            inner[0] += numbers(process_user_records(event, handler, once=guard))

    assert numbers(process_user_records(event, handler, once=guard)) == []
    assert inner == [[str(FIRST)]]


def test_batch_processing_does_not_need_boto3() -> None:
    """Powertools' idempotency does, which only `once` loads."""
    code = "import sys; sys.modules['boto3'] = None; import kpl_codec.aws_lambda.powertools"
    subprocess.run([sys.executable, "-c", code], check=True)


class Seen:
    """A watch that keeps the events."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def check(self, event: Any) -> None:
        self.events.append(event)


def test_every_way_takes_the_watch_and_decompresses() -> None:
    packed = kpl.encode([kpl.UserRecord("a", gzip.compress(b"one")), kpl.UserRecord("b", b"two")])
    records = [kpl.KinesisRecord("x", packed, str(FIRST), SHARD)]
    event = adapters.to_lambda(records, stream_arn=STREAM)
    seen, data = Seen(), list[bytes]()

    async def later(record: kpl.DeaggregatedRecord) -> None:
        data.append(record.data)

    def plain(record: kpl.DeaggregatedRecord) -> None:
        data.append(record.data)

    options: dict[str, Any] = {"watch": seen, "max_decompressed_size": 10**6}
    process_user_records(event, plain, **options)
    aio.run(aio.process_user_records(event, later, **options))
    process_window({**event, "state": {}}, lambda state, record: plain(record), **options)
    process_partial_response(
        event=event,
        record_handler=lambda record: data.append(record.kinesis.data_as_bytes()),
        processor=UserRecordBatchProcessor(**options),
    )
    assert data == [b"one", b"two"] * 4
    assert [seen_event["Records"] for seen_event in seen.events] == [event["Records"]] * 4
