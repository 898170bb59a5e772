"""User records for Powertools' parser (pydantic): models and an envelope.

    >>> import kpl_codec as kpl
    >>> from datetime import datetime, timezone
    >>> from aws_lambda_powertools.utilities.parser import parse
    >>> from pydantic import BaseModel
    >>> from kpl_codec.adapters import to_lambda
    >>> from kpl_codec.aws_lambda.parser import KinesisUserRecordEnvelope
    >>> class Order(BaseModel):
    ...     number: int
    >>> orders = [kpl.UserRecord(f"customer-{n}", b'{"number": %d}' % n) for n in (1, 2)]
    >>> arrival = datetime(2026, 11, 1, tzinfo=timezone.utc)
    >>> record = kpl.KinesisRecord("a", kpl.encode(orders), "5", "shardId-000000000000", arrival)
    >>> event = to_lambda([record], stream_arn="arn:aws:kinesis:us-east-1:123456789012:stream/orders")
    >>> parse(event=event, model=Order, envelope=KinesisUserRecordEnvelope)
    [Order(number=1), Order(number=2)]

`powertools.UserRecordBatchProcessor(model=KinesisUserRecordModel)` gives models to its handler.
"""

from __future__ import annotations

from typing import Any

from ..base.lazy import public_names, require_extras

with require_extras("kpl_codec.aws_lambda.parser"):
    from aws_lambda_powertools.utilities.parser.envelopes.kinesis import KinesisDataStreamEnvelope
    from aws_lambda_powertools.utilities.parser.models import (
        KinesisDataStreamRecord,
        KinesisDataStreamRecordPayload,
    )

    from .powertools import user_record_event

__all__ = [
    "KinesisUserRecordEnvelope",
    "KinesisUserRecordModel",
    "KinesisUserRecordPayloadModel",
]
__dir__ = public_names(__name__)


__all__ = ["KinesisUserRecordEnvelope", "KinesisUserRecordModel", "KinesisUserRecordPayloadModel"]


class KinesisUserRecordPayloadModel(KinesisDataStreamRecordPayload):
    """``kinesis`` of a user record: Powertools' fields, and those that only user records have."""

    partitionKey: str | None = None  # type: ignore[assignment]
    approximateArrivalTimestamp: float | None = None  # type: ignore[assignment]
    subSequenceNumber: int = 0
    explicitHashKey: str | None = None
    aggregated: bool = False


class KinesisUserRecordModel(KinesisDataStreamRecord):
    """One user record in the shape of Lambda's Kinesis record. ``kinesis.data`` is bytes."""

    kinesis: KinesisUserRecordPayloadModel


class KinesisUserRecordEnvelope(KinesisDataStreamEnvelope):
    """One model per user record of the event. Raises DecodeError or CaptureError as `user_records`."""

    def parse(self, data: dict[str, Any] | Any | None, model: Any) -> Any:
        """The user records of a Lambda event, each as ``model``."""
        event = user_record_event(data)
        for record in event["Records"]:  # Powertools' base class needs both, and its parser gives neither
            kinesis = record["kinesis"]
            kinesis.update(partitionKey=kinesis["partitionKey"] or "")
            kinesis.setdefault("approximateArrivalTimestamp", 0.0)
        return super().parse(event, model)
