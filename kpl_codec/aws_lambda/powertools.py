"""User records for Powertools for AWS Lambda: batch processing, data class, idempotency.

    processor = UserRecordBatchProcessor()                    # instead of BatchProcessor(event_type=...)

    def record_handler(record: KinesisUserRecord): ...        # a KinesisStreamRecord per user record

    def lambda_handler(event, context):
        return process_partial_response(event=event, record_handler=record_handler,
                                        processor=processor, context=context)

Needs aws-lambda-powertools 3; pydantic models are in `parser`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from aws_lambda_powertools.utilities.batch import AsyncBatchProcessor, BatchProcessor, EventType
from aws_lambda_powertools.utilities.data_classes.kinesis_stream_event import (
    KinesisStreamRecord,
    KinesisStreamRecordPayload,
)

from ..adapters.shapes import encode_base64
from ..deaggregation.policies import Policy
from ..deaggregation.records import DeaggregatedRecord, Drop
from ..errors import CaptureError, DecodeError, KplError
from .batch import Once, UserRecordFailed, done
from .events import Opening, event_records, units

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig
    from aws_lambda_powertools.utilities.idempotency.persistence.base import BasePersistenceLayer

__all__ = [
    "AsyncUserRecordBatchProcessor",
    "KinesisUserRecord",
    "KinesisUserRecordPayload",
    "UserRecordBatchProcessor",
    "async_once",
    "once",
]


class KinesisUserRecordPayload(KinesisStreamRecordPayload):
    """``record.kinesis`` of a user record: Powertools' fields, and those that only user records have."""

    @property
    def sub_sequence_number(self) -> int:
        """Its number in the Kinesis record, from 0."""
        return int(self["subSequenceNumber"])

    @property
    def explicit_hash_key(self) -> str | None:
        """The explicit hash key, if it has one."""
        return self.get("explicitHashKey")

    @property
    def aggregated(self) -> bool:
        """Whether it came in an aggregated record."""
        return bool(self["aggregated"])


class KinesisUserRecord(KinesisStreamRecord):
    """A user record as Powertools' data class for Kinesis records."""

    @property
    def kinesis(self) -> KinesisUserRecordPayload:
        """Key, data and numbers of the user record."""
        return KinesisUserRecordPayload(self["kinesis"])

    @property
    def shard_id(self) -> str | None:
        """The shard, out of the event id."""
        return str(self["eventID"]).rpartition(":")[0] or None


def user_record_dict(raw: Mapping[str, Any], record: DeaggregatedRecord) -> dict[str, Any]:
    """``record`` in the shape of the Lambda record ``raw`` that it came in. ``data`` is base64 text."""
    kinesis = {
        **_kinesis(raw),
        "sequenceNumber": record.sequence_number,
        "data": encode_base64(record.data),
        "subSequenceNumber": record.sub_sequence_number,
        "explicitHashKey": record.explicit_hash_key,
        "aggregated": record.aggregated,
    }
    if record.schema_version_id is not None:
        kinesis["schemaVersionId"] = record.schema_version_id
    if record.partition_key is not None:
        kinesis["partitionKey"] = record.partition_key
    return {**raw, "kinesis": kinesis}


def _kinesis(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Kinesis fields of a Lambda record, also where they are not nested, as in a pipe's records."""
    nested = raw.get("kinesis")
    return nested if isinstance(nested, Mapping) else raw


def user_record_event(
    event: Mapping[str, Any], policy: Policy = "strict", *, on_drop: Callable[[Drop], None] | None = None
) -> dict[str, Any]:
    """``event`` with its records deaggregated, for anything that reads Lambda's Kinesis events:
    Powertools' ``KinesisStreamEvent``, ``KinesisDataStreamModel``, envelopes.

    ``on_drop``: called with what the KCL drops; the policy ``kcl`` needs it.
    Raises DecodeError or CaptureError if any Kinesis record cannot be opened.
    """
    rows: list[dict[str, Any]] = []
    records = event_records(event, "Records")
    for raw, unit in zip(records, units(event, policy=policy, on_drop=on_drop), strict=True):
        if unit.poison is not None:
            raise unit.poison.error
        rows += [user_record_dict(raw, record) for record in unit.user_records]
    return {**event, "Records": rows}


class _Poison(dict[str, Any]):
    """A Lambda record that cannot be opened, in a processor."""

    error: DecodeError | CaptureError | UserRecordFailed


class _UserRecords:
    """What both processors add to those of Powertools."""

    def __init__(self, **settings: Any) -> None:
        given = {name: settings.pop(name) for name in Opening.__annotations__ if name in settings}
        self._opening = cast("Opening", given)
        settings.setdefault("event_type", EventType.KinesisDataStreams)
        if settings["event_type"] is not EventType.KinesisDataStreams:
            raise ValueError("user records come from Kinesis data streams")
        super().__init__(**settings)

    def __call__(
        self, records: list[dict[str, Any]], handler: Callable[..., Any], lambda_context: Any = None
    ) -> Any:
        return super().__call__(list(self._opened(records)), handler, lambda_context)  # type: ignore[misc]

    def _opened(self, records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for raw, unit in zip(records, units({"Records": records}, **self._opening), strict=True):
            if unit.poison is not None:
                # Powertools asks for the sequence number here.
                kinesis = {**_kinesis(raw), "sequenceNumber": unit.sequence_number}
                poison = _Poison({**raw, "kinesis": kinesis})
                poison.error = unit.poison.error
                yield poison
            yield from (user_record_dict(raw, record) for record in unit.user_records)

    def _to_batch_type(self, record: dict[str, Any], event_type: EventType, model: Any = None) -> Any:
        return KinesisUserRecord(record) if model is None else model.model_validate(record)

    def _refuse(self, record: _Poison) -> Any:
        """Let a record that cannot be opened fail like an exception of the handler."""
        try:
            raise record.error
        except KplError:
            return self.failure_handler(  # type: ignore[attr-defined]
                record=self._to_batch_type(record, EventType.KinesisDataStreams), exception=sys.exc_info()
            )

    def response(self) -> Any:
        """The answer: each failed Kinesis record once (LMB-2), in event order."""
        failures = super().response()["batchItemFailures"]  # type: ignore[misc]
        once = dict.fromkeys(failure["itemIdentifier"] for failure in failures)
        return {"batchItemFailures": [{"itemIdentifier": number} for number in once]}


class UserRecordBatchProcessor(_UserRecords, BatchProcessor):
    """Powertools' BatchProcessor over user records.

    Takes BatchProcessor's arguments (``model``, ``raise_on_entire_batch_failure``, ``logger``) and those
    of `process_user_records` that fit: ``policy``, ``shard_map``, ``on_drop``, ``watch``,
    ``max_decompressed_size``, ``unframe``.
    As Powertools does, it handles every record of a batch even after a failure; use idempotency, or
    `process_user_records`.
    """

    def _process_record(self, record: dict[str, Any]) -> Any:
        return self._refuse(record) if isinstance(record, _Poison) else super()._process_record(record)


class AsyncUserRecordBatchProcessor(_UserRecords, AsyncBatchProcessor):
    """Powertools' AsyncBatchProcessor over user records."""

    async def _async_process_record(self, record: dict[str, Any]) -> Any:
        if isinstance(record, _Poison):
            return self._refuse(record)
        return await super()._async_process_record(record)


def once(
    persistence_store: BasePersistenceLayer,
    config: IdempotencyConfig | None = None,
    *,
    key_prefix: str = "kpl_codec",
) -> Once:
    """The ``once`` of `process_user_records`, kept by a Powertools persistence layer (DynamoDB, Redis).

    A user record that was handled is not handled again until ``config.expires_after_seconds``; set it
    above the event source mapping's maximum record age. One that another invocation is handling now counts as
    failed, so that it comes again. The handler's result is not kept. Powertools needs the time left:
    ``config.register_lambda_context(context)`` in the handler.
    """
    # Imports boto3, which batch processing alone does not need.
    from aws_lambda_powertools.utilities.idempotency import idempotent_function

    @idempotent_function(  # type: ignore[untyped-decorator]
        data_keyword_argument="key", persistence_store=persistence_store, config=config, key_prefix=key_prefix
    )
    def call_once(key: str, call: Callable[[], object]) -> None:
        done(call())

    def run(key: str, call: Callable[[], object]) -> None:
        call_once(key=key, call=call)

    return run


def async_once(
    persistence_store: BasePersistenceLayer,
    config: IdempotencyConfig | None = None,
    *,
    key_prefix: str = "kpl_codec",
) -> Callable[[str, Callable[[], Awaitable[object]]], Awaitable[object]]:
    """`once` for `aio.process_user_records`: asks the store in a thread, awaits the handler on the loop."""
    blocking = once(persistence_store, config, key_prefix=key_prefix)

    async def run(key: str, call: Callable[[], Awaitable[object]]) -> None:
        loop = asyncio.get_running_loop()

        async def awaited() -> None:
            await call()

        def on_loop() -> None:
            asyncio.run_coroutine_threadsafe(awaited(), loop).result()

        await asyncio.to_thread(blocking, key, on_loop)

    return run
