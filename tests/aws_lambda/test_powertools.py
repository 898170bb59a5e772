"""Powertools, as published, on user records: batch processors, data class, parser, idempotency."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import Any

import boto3
import pytest
from aws_lambda_powertools.utilities.batch import process_partial_response
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig

import kpl_codec as kpl
from kpl_codec.aws_lambda import aio, process_user_records
from kpl_codec.aws_lambda.powertools import (
    KinesisUserRecord,
    UserRecordBatchProcessor,
    async_once,
    once,
)

from ..every import every
from .conftest import FIRST, SHARD, STREAM, expected_user_records
from .source_mapping import deliver
from .ways import Context, Handler, identity, numbers


def run(event: Any, processor: Any, handler: Any) -> list[str]:
    return numbers(process_partial_response(event, handler, processor, Context(lambda: 1)))


def test_the_batch_processor_sees_user_records(event: Any) -> None:
    records: list[KinesisUserRecord] = []
    assert run(event, UserRecordBatchProcessor(), lambda record: records.append(record)) == []
    assert [record.kinesis.explicit_hash_key for record in records] == [
        row[1] for row in expected_user_records()
    ]
    assert [record.kinesis.aggregated for record in records] == [False] + [True] * 7
    assert {record.shard_id for record in records} == {SHARD}
    assert records[3].kinesis.approximate_arrival_timestamp == 1545084651.123
    assert records[3].event_source_arn == STREAM


def test_a_batch_of_failures_only_raises_as_powertools_does(event: Any) -> None:
    def handler(record: KinesisUserRecord) -> None:
        raise RuntimeError("no")

    with pytest.raises(BatchProcessingError):
        run(event, UserRecordBatchProcessor(), handler)
    quiet = UserRecordBatchProcessor(raise_on_entire_batch_failure=False)
    assert run(event, quiet, handler) == [str(FIRST), str(FIRST + 1), str(FIRST + 2)]


# -- idempotency on a DynamoDB server ------------------------------------------------------------


@pytest.fixture
def dynamodb(moto_url: str) -> Any:
    """A client whose server has the table that Powertools' documentation asks for."""
    settings = {"region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}
    client = boto3.client("dynamodb", endpoint_url=moto_url, **settings)
    client.create_table(
        TableName="done",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return client


def store(client: Any) -> DynamoDBPersistenceLayer:
    return DynamoDBPersistenceLayer(table_name="done", boto3_client=client)


FAILING = {(str(FIRST + 1), 3): 2, (str(FIRST + 2), 1): 1}


@pytest.mark.server
@pytest.mark.requirement("LMB-8", "LMB-14", "LMB-24")
@every(("way", "new"), [("stop", True), ("async", True), ("continue", False), ("async", False)])
def test_good_siblings_are_not_handled_twice(event: Any, dynamodb: Any, new: bool, way: Any) -> None:
    """The guide makes a `once` in each invocation, for one store. ``new``: each invocation is in a new
    container."""
    layer, handler, looked_up = store(dynamodb), Handler(FAILING), Counter[str]()
    put_record = layer._put_record

    def counted(data_record: Any) -> None:
        looked_up[data_record.idempotency_key] += 1
        put_record(data_record)

    layer._put_record = counted  # type: ignore[method-assign]

    def invoke(event: Any) -> Any:
        guard = once(store(dynamodb) if new else layer, context=60, key_prefix=f"{way} {new}")
        if way != "async":
            return process_user_records(event, handler, once=guard, after_failure=way)
        return aio.run(aio.process_user_records(event, handler.run, once=async_once(guard), concurrency=4))

    assert deliver(event, invoke) > 1
    # What was handled here is not looked up again: only the two that failed are, after each failure.
    assert sorted(looked_up.values()) == ([] if new else [1] * 6 + [2, 3])
    # The whole batch again, as after a lost checkpoint: nothing more is handled.
    assert numbers(invoke(event)) == []
    assert set(Counter(map(identity, handler.done)).values()) == {1}
    assert len(handler.done) == 8


@pytest.mark.server
@pytest.mark.requirement("LMB-8")
def test_a_record_that_another_invocation_handles_counts_as_failed(event: Any, dynamodb: Any) -> None:
    guard = once(store(dynamodb), context=60, key_prefix="busy")
    inner: list[list[str]] = []

    def handler(record: kpl.DeaggregatedRecord) -> None:
        if not inner:
            inner.append([])
            inner[0] += numbers(process_user_records(event, handler, once=guard))

    assert numbers(process_user_records(event, handler, once=guard)) == []
    assert inner == [[str(FIRST)]]


class Killed(BaseException):
    """Ends an invocation in the middle of a call."""


@pytest.mark.server
@pytest.mark.requirement("LMB-34")
@every("way", ["lambda", "seconds", "config"])
def test_a_user_record_whose_invocation_was_killed_is_handled_by_the_next(
    event: Any, dynamodb: Any, way: str
) -> None:
    """The store as it is after a kill: Powertools deletes the entry of a handler that only raised."""

    def guard(milliseconds: int) -> Any:
        config = IdempotencyConfig(expires_after_seconds=600) if way == "config" else None
        context = milliseconds / 1000 if way == "seconds" else Context(lambda: milliseconds)
        if config is not None:
            config.register_lambda_context(context)  # type: ignore[arg-type]
        return once(store(dynamodb), config, context=None if config else context, key_prefix=way)

    begun: list[dict[str, Any]] = []

    def killed(record: Any) -> None:
        begun.extend(item for item in dynamodb.scan(TableName="done")["Items"] if way in item["id"]["S"])
        raise Killed

    with pytest.raises(Killed):
        process_user_records(event, killed, once=guard(1))
    for item in begun:
        dynamodb.put_item(TableName="done", Item=item)
    handler = Handler()
    time.sleep(0.01)  # the killed invocation had a millisecond
    assert numbers(process_user_records(event, handler, once=guard(60_000))) == []
    assert len(handler.done) == 8
    # While the other invocation may still run, it is refused.
    dynamodb.delete_item(TableName="done", Key={"id": begun[0]["id"]})
    with pytest.raises(Killed):
        process_user_records(event, killed, once=guard(60_000))
    dynamodb.put_item(TableName="done", Item=begun[-1])
    assert numbers(process_user_records(event, Handler(), once=guard(60_000))) == [str(FIRST)]


@pytest.mark.requirement("LMB-34")
@every("context", [None, 0, -1.0, math.inf, math.nan])
def test_a_store_without_the_time_of_the_invocation_is_refused(context: Any) -> None:
    layer = DynamoDBPersistenceLayer(table_name="done", boto3_client=object())
    for config in (None, IdempotencyConfig(expires_after_seconds=7200)):
        with pytest.raises(ValueError, match="context"):
            once(layer, config, context=context)


@pytest.mark.server
@pytest.mark.requirement("LMB-23")
def test_functions_that_share_a_store_each_handle_every_user_record(
    event: Any, dynamodb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("billing", "search"):
        monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", name)
        handler = Handler()
        for _ in range(2):
            guard = once(store(dynamodb), context=60)
            assert numbers(process_user_records(event, handler, once=guard)) == []
        assert len(handler.done) == 8
