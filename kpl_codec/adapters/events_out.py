"""Writes KinesisRecords as events or API responses, to make or replay a capture, or to try a handler. Reading
the result gives the same records. A record with a value that the shape cannot hold raises CaptureError
(not-representable), a record without a value that the shape needs CaptureError (missing-field)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from ..base.arguments import check_arguments, checked_items
from ..errors import CaptureError
from ..format.records import KinesisRecord, without_none
from .events_in import Around, read_record
from .shapes import EPOCH, MILLISECONDS, SECONDS, encode_base64, read_timestamp

_ARRIVAL = "approximate_arrival_timestamp"
_FIELDS = (
    *("partition_key", "data", "sequence_number", "shard_id", _ARRIVAL),
    *("explicit_hash_key", "sub_sequence_number", "record_id"),
)


def to_lambda(records: Iterable[KinesisRecord], *, stream_arn: str) -> dict[str, Any]:
    """The event of Lambda's event source mapping for ``records``."""
    check_arguments("to_lambda", locals())
    rows = []
    for at, record in _with_places("to_lambda", records, "Records"):
        kinesis = without_none(
            kinesisSchemaVersion="1.0",
            partitionKey=record.partition_key,
            sequenceNumber=_sequence_number(record, at),
            data=encode_base64(record.data),
            approximateArrivalTimestamp=_arrival(record, SECONDS, at),
        )
        row = without_none(
            kinesis=kinesis,
            eventSource="aws:kinesis",
            eventVersion="1.0",
            eventID=f"{record.shard_id}:{record.sequence_number}" if record.shard_id else None,
            eventName="aws:kinesis:record",
            invokeIdentityArn="",
            awsRegion=_region(stream_arn),
            eventSourceARN=stream_arn,
        )
        rows.append(_checked(row, record, at, Around(stream=stream_arn)))
    return {"Records": rows}


def to_firehose(
    records: Iterable[KinesisRecord], *, delivery_stream_arn: str, source_stream_arn: str | None = None
) -> dict[str, Any]:
    """The Firehose transformation event; records without a sequence number are direct puts.
    ``source_stream_arn``: by default that of the records, if they have one."""
    check_arguments("to_firehose", locals())
    places, rows = _with_places("to_firehose", records, "records"), []
    source = source_stream_arn or next((record.stream for _, record in places if record.stream), None)
    for index, (at, record) in enumerate(places):
        arrival = _arrival(record, MILLISECONDS, at)
        row = without_none(
            recordId=str(index), data=encode_base64(record.data), approximateArrivalTimestamp=arrival
        )
        if record.sequence_number is not None:
            row["kinesisRecordMetadata"] = without_none(
                sequenceNumber=record.sequence_number,
                partitionKey=record.partition_key,
                shardId=record.shard_id,
                subsequenceNumber=record.sub_sequence_number,
                approximateArrivalTimestamp=arrival,
            )
        rows.append(_checked(row, record, at, Around(stream=source if source and ":" in source else None)))
    return without_none(
        invocationId="00000000-0000-0000-0000-000000000000",
        deliveryStreamArn=delivery_stream_arn,
        sourceKinesisStreamArn=source,
        region=_region(delivery_stream_arn),
        records=rows,
    )


def to_get_records(records: Iterable[KinesisRecord], *, dump: bool = False) -> dict[str, Any]:
    """A GetRecords response, which is of one shard of one stream, as boto3 returns it; ``dump``: as ``aws
    kinesis get-records`` prints it. Raises CaptureError."""
    check_arguments("to_get_records", locals())
    rows = []
    around: Around | None = None
    for at, record in _with_places("to_get_records", records, "Records"):
        around = around or Around(record.shard_id, record.stream)
        if record.shard_id != around.shard_id:
            raise CaptureError(code="not-representable", field=at + "shard_id", requirement="CAP-8")
        when = read_timestamp(record.approximate_arrival_timestamp, SECONDS, at + _ARRIVAL)
        row = without_none(
            SequenceNumber=_sequence_number(record, at),
            ApproximateArrivalTimestamp=when.isoformat() if dump and when is not None else when,
            Data=encode_base64(record.data) if dump else record.data,
            PartitionKey=record.partition_key,
        )
        rows.append(_checked(row, record, at, around))
    return {"Records": rows, "MillisBehindLatest": 0}


def _with_places(
    function: str, records: Iterable[KinesisRecord], key: str
) -> list[tuple[str, KinesisRecord]]:
    records = checked_items(function, "records", records, "sequence_number", "a list of KinesisRecords")
    return [(f"{key}[{index}].", record) for index, record in enumerate(records)]


def _checked(row: dict[str, Any], record: KinesisRecord, at: str, around: Around) -> dict[str, Any]:
    """``row``, of which ``record`` is read again; ``around``: what the whole says, or what is to be given
    beside it. Raises CaptureError with the first field that is not."""
    # CAP-8: "What a shape has no place for MUST be refused on the way back, never left out."
    # CAP-9: "Reading back what was written MUST give the same records."
    again = read_record(row, at[:-1], around)
    if isinstance(again, CaptureError):
        field = again.fields["field"]
    else:
        differing = (name for name in _FIELDS if getattr(again, name) != getattr(record, name))
        field = next((at + name for name in differing), None)
        mine, its = record.opened_before, again.opened_before
        if mine is not None and (
            its is None or its.by != mine.by or (its.marked, mine.marked) == (False, True)
        ):
            field = field or at + "opened_before"
        if record.stream is not None and record.stream != again.stream:
            from ..shards.stream_name import may_be_one  # late: slow to import

            if not may_be_one(record.stream, again.stream or ""):
                field = at + "stream"
    if field is not None:
        raise CaptureError(code="not-representable", field=field, requirement="CAP-8")
    return row


def _sequence_number(record: KinesisRecord, at: str) -> str:
    if record.sequence_number is None:
        raise CaptureError(code="missing-field", field=at + "sequence_number", requirement="CAP-8")
    return record.sequence_number


def _arrival(record: KinesisRecord, unit: int, at: str) -> float | int | None:
    when = read_timestamp(record.approximate_arrival_timestamp, unit, at + _ARRIVAL)
    return None if when is None else as_number(when, unit)


def as_number(when: datetime, unit: int) -> float | int:
    """A time as a float of seconds, or an int of milliseconds."""
    since = when - EPOCH
    return since // timedelta(milliseconds=1) if unit == MILLISECONDS else since / timedelta(seconds=1)


def _region(arn: str) -> str | None:
    parts = arn.split(":")
    return parts[3] if len(parts) > 3 else None
