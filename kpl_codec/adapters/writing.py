"""Writes KinesisRecords in the shapes of shapes.py, to make, repair or replay a capture.

Reading the result gives the same records. A value that the shape cannot hold raises CaptureError with code
not-representable; a value that the shape needs and the record lacks, with missing-field. The AWS API and the
KCL name one shard for all records, so all records must be of one shard.
Specification: spec/06-lambda.md, CAP-8, CAP-9.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import CaptureError
from ..format.records import KinesisRecord
from .values import MILLISECONDS, SECONDS, encode_base64, write_timestamp

_ARRIVAL = "approximateArrivalTimestamp"


def to_lambda(
    records: Iterable[KinesisRecord], *, stream_arn: str, invoke_identity_arn: str = ""
) -> dict[str, Any]:
    """The event of Lambda's event source mapping for ``records``."""
    return {
        "Records": [
            {
                "kinesis": _stream_fields(record, at),
                **_stream_envelope(record, stream_arn, invoke_identity_arn),
            }
            for at, record in _placed(records, "Records")
        ]
    }


def to_pipes(
    records: Iterable[KinesisRecord], *, stream_arn: str, invoke_identity_arn: str = ""
) -> list[dict[str, Any]]:
    """The EventBridge Pipes event for ``records``."""
    return [
        {**_stream_fields(record, at), **_stream_envelope(record, stream_arn, invoke_identity_arn)}
        for at, record in _placed(records, "")
    ]


def _stream_fields(record: KinesisRecord, at: str) -> dict[str, Any]:
    _refuse(record, at, "explicit_hash_key", "sub_sequence_number")
    return _without_none(
        kinesisSchemaVersion="1.0",
        partitionKey=record.partition_key,
        sequenceNumber=_sequence_number(record, at),
        data=encode_base64(record.data),
        approximateArrivalTimestamp=_arrival(record, SECONDS, at),
    )


def _stream_envelope(record: KinesisRecord, stream_arn: str, invoke_identity_arn: str) -> dict[str, Any]:
    return _without_none(
        eventSource="aws:kinesis",
        eventVersion="1.0",
        eventID=f"{record.shard_id}:{record.sequence_number}" if record.shard_id else None,
        eventName="aws:kinesis:record",
        invokeIdentityArn=invoke_identity_arn,
        awsRegion=_region(stream_arn),
        eventSourceARN=stream_arn,
    )


def to_firehose(
    records: Iterable[KinesisRecord],
    *,
    delivery_stream_arn: str,
    source_stream_arn: str | None = None,
    invocation_id: str = "00000000-0000-0000-0000-000000000000",
    record_ids: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The Firehose transformation event; records without a sequence number are direct puts.

    ``record_ids``: one per record; their index if not given.
    """
    return _without_none(
        invocationId=invocation_id,
        deliveryStreamArn=delivery_stream_arn,
        sourceKinesisStreamArn=source_stream_arn,
        region=_region(delivery_stream_arn),
        records=[
            _delivered(
                record, at, _record_id(record_ids, i), "kinesisRecordMetadata", "subsequenceNumber", None
            )
            for i, (at, record) in enumerate(_placed(records, "records"))
        ],
    )


def to_analytics(
    records: Iterable[KinesisRecord],
    *,
    application_arn: str,
    stream_arn: str,
    invocation_id: str = "00000000-0000-0000-0000-000000000000",
    record_ids: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The preprocessing event of Managed Flink / Kinesis Analytics; records without a sequence number are
    from Firehose."""
    stream, firehose = "kinesisStreamRecordMetadata", "kinesisFirehoseRecordMetadata"
    return {
        "invocationId": invocation_id,
        "applicationArn": application_arn,
        "streamArn": stream_arn,
        "records": [
            _delivered(record, at, _record_id(record_ids, i), stream, "subSequenceNumber", firehose)
            for i, (at, record) in enumerate(_placed(records, "records"))
        ],
    }


def _delivered(
    record: KinesisRecord, at: str, record_id: str, meta_key: str, sub_key: str, other_key: str | None
) -> dict[str, Any]:
    _refuse(record, at, "explicit_hash_key")
    written = {"recordId": record_id, "data": encode_base64(record.data)}
    arrival = _without_none(**{_ARRIVAL: _arrival(record, MILLISECONDS, at)})
    if record.sequence_number is None:
        _refuse(record, at, "partition_key", "shard_id", "sub_sequence_number")
        return {**written, **(arrival if other_key is None else {other_key: arrival})}
    meta = _without_none(
        sequenceNumber=record.sequence_number,
        partitionKey=record.partition_key,
        shardId=record.shard_id,
        **{sub_key: record.sub_sequence_number},
        **arrival,
    )
    return {**written, **(arrival if other_key is None else {}), meta_key: meta}


def to_get_records(records: Iterable[KinesisRecord], *, dump: bool = False) -> dict[str, Any]:
    """A GetRecords answer as boto3 gives it; ``dump``: as ``aws kinesis get-records`` prints it."""
    rows = [
        _without_none(
            SequenceNumber=_sequence_number(record, at),
            ApproximateArrivalTimestamp=_aws_arrival(record, dump, at),
            Data=encode_base64(record.data) if dump else record.data,
            PartitionKey=record.partition_key,
        )
        for at, record in _one_shard(records, "Records")
    ]
    return {"Records": rows, "MillisBehindLatest": 0}


def to_subscribe_to_shard(records: Iterable[KinesisRecord], *, dump: bool = False) -> dict[str, Any]:
    """A SubscribeToShard answer whose stream is one event with ``records``."""
    event = to_get_records(records, dump=dump)
    if event["Records"]:
        event["ContinuationSequenceNumber"] = event["Records"][-1]["SequenceNumber"]
    return {"EventStream": [{"SubscribeToShardEvent": event}]}


def to_kcl(records: Iterable[KinesisRecord]) -> dict[str, Any]:
    """The multi-lang message ``processRecords``."""
    rows = []
    for at, record in _one_shard(records, "records"):
        row = _without_none(
            action="record",
            data=encode_base64(record.data),
            partitionKey=record.partition_key,
            sequenceNumber=_sequence_number(record, at),
            subSequenceNumber=record.sub_sequence_number,
            approximateArrivalTimestamp=_arrival(record, MILLISECONDS, at),
        )
        rows.append(row)
    return {"action": "processRecords", "records": rows, "millisBehindLatest": 0}


def _one_shard(records: Iterable[KinesisRecord], key: str) -> Iterable[tuple[str, KinesisRecord]]:
    shard_ids = set()
    for at, record in _placed(records, key):
        shard_ids.add(record.shard_id)
        if len(shard_ids) > 1:
            raise CaptureError(code="not-representable", field=at + "shard_id", requirement="CAP-8")
        _refuse(record, at, "explicit_hash_key", *(["sub_sequence_number"] if key == "Records" else []))
        yield at, record


def _placed(records: Iterable[KinesisRecord], key: str) -> Iterable[tuple[str, KinesisRecord]]:
    return ((f"{key}[{index}].", record) for index, record in enumerate(records))


def _refuse(record: KinesisRecord, at: str, *names: str) -> None:
    for name in names:
        if getattr(record, name) is not None:
            raise CaptureError(code="not-representable", field=at + name, requirement="CAP-8")


def _sequence_number(record: KinesisRecord, at: str) -> str:
    if record.sequence_number is None:
        raise CaptureError(code="missing-field", field=at + "sequence_number", requirement="CAP-8")
    return record.sequence_number


def _arrival(record: KinesisRecord, unit: int, at: str) -> float | int | None:
    when = record.approximate_arrival_timestamp
    return None if when is None else write_timestamp(when, unit, at + "approximate_arrival_timestamp")


def _aws_arrival(record: KinesisRecord, dump: bool, at: str) -> object:
    when = record.approximate_arrival_timestamp
    if when is not None and when.utcoffset() is None:
        raise CaptureError(code="timestamp", field=at + "approximate_arrival_timestamp", requirement="CAP-3")
    return when.isoformat() if dump and when is not None else when


def _record_id(record_ids: Sequence[str] | None, index: int) -> str:
    return str(index) if record_ids is None else record_ids[index]


def _region(arn: str) -> str | None:
    parts = arn.split(":")
    return parts[3] if len(parts) > 3 else None


def _without_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
