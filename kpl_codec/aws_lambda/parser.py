"""User records for Powertools' parser (pydantic): models and an envelope.

    @event_parser(model=Order, envelope=KinesisUserRecordEnvelope)
    def lambda_handler(event: list[Order], context): ...

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
