"""User records for Powertools for AWS Lambda: batch processing, data class, idempotency.

    >>> import kpl_codec as kpl
    >>> from kpl_codec.adapters import to_lambda
    >>> stream = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
    >>> data = kpl.encode([kpl.UserRecord("customer-1", b"one"), kpl.UserRecord("customer-2", b"two")])
    >>> record = kpl.KinesisRecord("a", data, "5", "shardId-000000000000")
    >>> event = to_lambda([record], stream_arn=stream)
    >>> from aws_lambda_powertools.utilities.batch import process_partial_response
    >>> from kpl_codec.aws_lambda.powertools import KinesisUserRecord, UserRecordBatchProcessor
    >>> def record_handler(record: KinesisUserRecord) -> None:
    ...     payload = record.kinesis
    ...     print(payload.partition_key, payload.sub_sequence_number, payload.data_as_text())
    >>> processor = UserRecordBatchProcessor()  # instead of BatchProcessor(event_type=...)
    >>> process_partial_response(event, record_handler, processor, context=None)
    customer-1 0 one
    customer-2 1 two
    {'batchItemFailures': []}

Each user record is handled once, whatever comes again:

    >>> import boto3
    >>> from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer
    >>> from kpl_codec.aws_lambda import process_user_records
    >>> from kpl_codec.aws_lambda.powertools import once
    >>> layer = DynamoDBPersistenceLayer(table_name="handled", boto3_client=boto3.client("dynamodb"))
    >>> def lambda_handler(event, context):
    ...     return process_user_records(event, print, once=once(layer, context=context))

Needs aws-lambda-powertools 3; pydantic models are in `parser`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..adapters.events_out import as_number
from ..adapters.shapes import SECONDS, encode_base64
from ..base.arguments import check_arguments
from ..base.lazy import public_names, require_extras
from ..deaggregation.deaggregated_record import DeaggregatedRecord
from ..errors import KplError
from .batch import Once, OpenedRecord, StoreOnce, check_has_run
from .events import check_options, records_of_event

with require_extras("kpl_codec.aws_lambda.powertools"):
    from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType
    from aws_lambda_powertools.utilities.data_classes.kinesis_stream_event import (
        KinesisStreamRecord,
        KinesisStreamRecordPayload,
    )

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig
    from aws_lambda_powertools.utilities.idempotency.persistence.base import BasePersistenceLayer
    from typing_extensions import Unpack

    from .events import OpenOptions

__all__ = [
    "KinesisUserRecord",
    "KinesisUserRecordPayload",
    "UserRecordBatchProcessor",
    "async_once",
    "once",
]
__dir__ = public_names(__name__)


class KinesisUserRecordPayload(KinesisStreamRecordPayload):
    """``record.kinesis`` of a user record: Powertools' fields, and those that only user records have."""

    @property
    def partition_key(self) -> str | None:  # type: ignore[override]
        """The partition key; None where the stream distributes records AUTO."""
        return self.get("partitionKey")

    @property
    def approximate_arrival_timestamp(self) -> float | None:  # type: ignore[override]
        """Seconds since 1970; None where the event has no time that can be read."""
        return self.get("approximateArrivalTimestamp")

    @property
    def sub_sequence_number(self) -> int:
        """The sub-sequence number: the user record's index in its aggregated record, from 0."""
        return int(self["subSequenceNumber"])

    @property
    def explicit_hash_key(self) -> str | None:
        """The user record's explicit hash key; None without one."""
        return self.get("explicitHashKey")

    @property
    def aggregated(self) -> bool:
        """Whether the user record came in an aggregated record."""
        return bool(self["aggregated"])


class KinesisUserRecord(KinesisStreamRecord):
    """A user record as Powertools' data class for Kinesis records."""

    @property
    def kinesis(self) -> KinesisUserRecordPayload:
        """Key, data and numbers of the user record."""
        return KinesisUserRecordPayload(self["kinesis"])

    @property
    def shard_id(self) -> str | None:
        """The shard id, from the event id."""
        return str(self.get("eventID") or "").rpartition(":")[0] or None


def user_record_dict(raw: Mapping[str, Any], record: DeaggregatedRecord) -> dict[str, Any]:
    """``record`` in the shape of the Lambda record ``raw`` that it came in. ``data`` is base64 text."""
    kinesis = {
        **raw.get("kinesis", raw),  # a record of EventBridge Pipes has all members in one level
        "partitionKey": record.partition_key,
        "sequenceNumber": record.sequence_number,
        "data": encode_base64(record.data),
        "subSequenceNumber": record.sub_sequence_number,
        "explicitHashKey": record.explicit_hash_key,
        "aggregated": record.aggregated,
    }
    # The time as it was read: in the event it may be in another unit, or unreadable.
    kinesis.pop("approximateArrivalTimestamp", None)
    if record.approximate_arrival_timestamp is not None:
        kinesis["approximateArrivalTimestamp"] = as_number(record.approximate_arrival_timestamp, SECONDS)
    return {**raw, "kinesis": kinesis}


def _user_record_dicts(unit: OpenedRecord) -> list[dict[str, Any]]:
    """(The row about a frame of the report policy is left out: a dict has no place for its defect.)"""
    return [user_record_dict(unit.event_record, one) for one in unit.user_records if one.is_user_record]


def user_record_event(event: Any) -> dict[str, Any]:
    """``event``, Lambda's or a pipe's list, with one record for each user record instead of each Kinesis
    record.

    Raises DecodeError or CaptureError if any Kinesis record cannot be decoded.
    """
    rows: list[dict[str, Any]] = []
    for unit in records_of_event(event):
        if unit.poison is not None:
            raise unit.poison.error
        rows += _user_record_dicts(unit)
    return {**(event if isinstance(event, Mapping) else {}), "Records": rows}


#: The member of a record that has its error, if it cannot be decoded.
_ERROR = "kpl_codec.error"


class UserRecordBatchProcessor(BatchProcessor):
    """Powertools' BatchProcessor over user records.

    ``model``, ``raise_on_entire_batch_failure``, ``logger``: BatchProcessor's arguments. ``opening``:
    ``policy``, ``shard_map``, ``on_drop``, ``max_decompressed_size``, as in
    `kpl_codec.aws_lambda.process_user_records`. As Powertools does, it handles every record of a batch, also
    after a failure; use idempotency, or `process_user_records`.
    """

    def __init__(
        self,
        *,
        model: Any = None,
        raise_on_entire_batch_failure: bool = True,
        logger: Any = None,
        **opening: Unpack[OpenOptions],
    ) -> None:
        own = {"model": model, "logger": logger}
        own["raise_on_entire_batch_failure"] = raise_on_entire_batch_failure
        check_options("UserRecordBatchProcessor", opening, type(self).__init__, **own)
        self._opening = opening
        super().__init__(EventType.KinesisDataStreams, model, raise_on_entire_batch_failure, logger)

    def __call__(
        self, records: list[dict[str, Any]], handler: Callable[..., Any], lambda_context: Any = None
    ) -> Any:
        return super().__call__(list(self._user_record_dicts(records)), handler, lambda_context)

    def _user_record_dicts(self, records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for unit in records_of_event({"Records": records}, **self._opening):
            if unit.poison is not None:
                # Powertools asks for the sequence number here.
                kinesis = {"sequenceNumber": unit.identifier}
                yield {**unit.event_record, "kinesis": kinesis, _ERROR: unit.poison.error}
            yield from _user_record_dicts(unit)

    def _to_batch_type(self, record: dict[str, Any], event_type: EventType, model: Any = None) -> Any:
        return KinesisUserRecord(record) if model is None else model.model_validate(record)

    def _process_record(self, record: dict[str, Any]) -> Any:
        if _ERROR not in record:
            return super()._process_record(record)
        try:
            raise record[_ERROR]
        except KplError:
            return self.failure_handler(record=KinesisUserRecord(record), exception=sys.exc_info())

    def success_handler(self, record: Any, result: Any) -> Any:
        """Raises TypeError for what a coroutine or generator function returned (LMB-15)."""
        return super().success_handler(record, check_has_run(result))

    def response(self) -> Any:
        """The response: each failed Kinesis record once (LMB-2), in event order."""
        failures = super().response()["batchItemFailures"]
        once = dict.fromkeys(failure["itemIdentifier"] for failure in failures)
        return {"batchItemFailures": [{"itemIdentifier": number} for number in once]}


#: Seconds for which a handled user record is known: a stream's longest usual retention, and a day.
_EXPIRES_AFTER = 8 * 24 * 3600


class _CallTime(NamedTuple):
    """Where there is no Lambda context: the seconds within which a call of the handler ends."""

    seconds: float

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


def once(
    persistence_store: BasePersistenceLayer,
    config: IdempotencyConfig | None = None,
    *,
    context: Any = None,
    key_prefix: str | None = None,
) -> Once:
    """The ``once`` of `process_user_records`, with a Powertools persistence layer (DynamoDB, Redis). Make it
    in each invocation.

    ``context``: Lambda's context; in other programs the seconds within which
    ``handler`` returns or is dead. A user record whose invocation was killed may be handled again when that
    time is over: Powertools alone would refuse it for ``config.expires_after_seconds``, and Lambda would give
    up the batch meanwhile.

    ``config``: by default a user record is not handled again for eight days; with yours for its
    ``expires_after_seconds``, which must be longer than the record can come again: the mapping's maximum
    record age, else the stream's retention. ``key_prefix``: of the keys in the store; two handlers of one
    Lambda function need one each. Without it it has the function's name, so functions on one stream may share
    a store.

    A user record that another invocation is handling now counts as failed. The store does not get the
    handler's result. Raises ValueError if there is no context, neither here nor in ``config``, or if its
    seconds are not above 0.
    """
    check_arguments("once", locals())
    # LMB-23: "Functions that share a store MUST each handle every user record."
    key_prefix = key_prefix or f"{os.environ.get('AWS_LAMBDA_FUNCTION_NAME', '')}.kpl_codec".lstrip(".")
    # Imports boto3, which batch processing alone does not need.
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function

    config = config or IdempotencyConfig(expires_after_seconds=_EXPIRES_AFTER)
    if isinstance(context, (int, float)):
        context = _CallTime(context)
    if context is not None:
        config.register_lambda_context(context)
    # LMB-34: "A store MUST NOT keep a user record from being handled after the invocation that was handling
    # it has been killed."
    if config.lambda_context is None:
        raise ValueError(
            "once needs context=, Lambda's context or the seconds within which the handler ends: else a user "
            "record whose invocation is killed is refused until its entry in the store expires"
        )

    @idempotent_function(  # type: ignore[untyped-decorator]
        data_keyword_argument="key", persistence_store=persistence_store, config=config, key_prefix=key_prefix
    )
    def call_once(key: str, call: Callable[[], object]) -> None:
        check_has_run(call())

    return StoreOnce(lambda key, call: call_once(key=key, call=call), (persistence_store, key_prefix))


def async_once(blocking: Once) -> Callable[[str, Callable[[], Awaitable[object]]], Awaitable[object]]:
    """A `once` for `aio.process_user_records`: it calls the store in a thread, and awaits the handler in the
    event loop."""
    check_arguments("async_once", {"blocking": blocking})

    async def run(key: str, call: Callable[[], Awaitable[object]]) -> None:
        loop = asyncio.get_running_loop()

        async def make_call() -> None:
            await call()

        def call_on_loop() -> None:
            asyncio.run_coroutine_threadsafe(make_call(), loop).result()

        await asyncio.to_thread(blocking, key, call_on_loop)

    return StoreOnce(run, blocking.store) if isinstance(blocking, StoreOnce) else run
