"""Reads one record of each shape into a KinesisRecord, and recognises the shape.

    shape               a record is recognised by          data     numbers in timestamps
    ------------------  ---------------------------------  -------  ---------------------
    lambda              "kinesis"                          base64   seconds
    pipes               "eventSource", no "kinesis"        base64   seconds
    analytics           "kinesis{Stream,Firehose}RecordMetadata"  base64   milliseconds
    firehose            "recordId"                         base64   milliseconds
    queue               "RecordId" or "ReceiptHandle"      bytes, or base64 in a JSON dump; seconds
    boto3               "Data" or "SequenceNumber"         bytes, or base64 in a JSON dump; seconds
    kcl                 "action": "record", or kclpy's object with ``binary_data``; milliseconds
    raw                 bytes, bytearray, memoryview       as it is

Specification: spec/06-lambda.md, CAP-2 to CAP-6; of queues spec/14-queues-and-channels.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

from ..errors import CaptureError
from ..format.records import KinesisRecord
from .values import (
    MILLISECONDS,
    SECONDS,
    decode_base64,
    mapping,
    optional_text,
    read_timestamp,
    sub_sequence_number,
    text,
)

Shape = Literal["lambda", "pipes", "analytics", "firehose", "queue", "boto3", "kcl", "raw"]
"""What a Kinesis record was captured as; spec/06, CAP-2 to CAP-6; of a queue spec/14."""
_RawRecord = Mapping[str, Any]


def lambda_record(record: _RawRecord) -> KinesisRecord:
    """One element of ``event["Records"]``. The shard id is the part of ``eventID`` before the colon."""
    kinesis = mapping(record, "kinesis")
    return _stream_record(record, kinesis, "kinesis.")


def pipes_record(record: _RawRecord) -> KinesisRecord:
    """One element of an EventBridge Pipes event: the Lambda record without its inner level."""
    return _stream_record(record, record, "")


def _stream_record(outer: _RawRecord, kinesis: _RawRecord, prefix: str) -> KinesisRecord:
    event_id = optional_text(outer, "eventID") or ""
    return KinesisRecord(
        optional_text(kinesis, "partitionKey", prefix),
        decode_base64(_present(kinesis, "data", prefix), prefix + "data"),
        text(kinesis, "sequenceNumber", prefix),
        # CAP-5: "The shard id of a Lambda record MUST be taken from its eventID, the part before the
        # last colon."
        event_id.rpartition(":")[0] or None,
        read_timestamp(
            kinesis.get("approximateArrivalTimestamp"), SECONDS, prefix + "approximateArrivalTimestamp"
        ),
    )


def firehose_record(record: _RawRecord) -> KinesisRecord:
    """One record of a Firehose transformation event. Without a Kinesis source it has no keys or numbers."""
    return _delivered(record, ("kinesisRecordMetadata",), "subsequenceNumber")


def analytics_record(record: _RawRecord) -> KinesisRecord:
    """One record of a Managed Flink / Kinesis Analytics preprocessing event."""
    return _delivered(
        record, ("kinesisStreamRecordMetadata", "kinesisFirehoseRecordMetadata"), "subSequenceNumber"
    )


def _delivered(record: _RawRecord, metadata_keys: tuple[str, ...], sub_key: str) -> KinesisRecord:
    data = decode_base64(_present(record, "data"), "data")
    name, prefix = "approximateArrivalTimestamp", ""
    meta: _RawRecord = {}
    for key in metadata_keys:
        if record.get(key) is not None:
            meta, prefix = mapping(record, key), f"{key}."
    from_stream = record.get(metadata_keys[0]) is not None
    arrival = (meta, prefix) if meta.get(name) is not None else (record, "")
    return KinesisRecord(
        optional_text(meta, "partitionKey", prefix),
        data,
        text(meta, "sequenceNumber", prefix) if from_stream else None,
        optional_text(meta, "shardId", prefix),
        read_timestamp(arrival[0].get(name), MILLISECONDS, arrival[1] + name),
        sub_sequence_number=sub_sequence_number(meta, sub_key, prefix),
    )


def boto3_record(record: _RawRecord) -> KinesisRecord:
    """One of ``Records`` of a GetRecords answer or SubscribeToShard event, live or dumped as JSON."""
    return _answered(record, "SequenceNumber")


def queue_record(record: _RawRecord) -> KinesisRecord:
    """One of ``QueueRecords`` of a ReceiveQueueRecords or ReceiveDeadLetterQueueRecords answer."""
    # QUE-1: "A record from a queue MUST be identified by its RecordId; it has no shard and no sequence
    # number, and none MUST be made up."
    found = _answered(record, "RecordId")
    return found._replace(sequence_number=None, record_id=found.sequence_number)


def _answered(record: _RawRecord, identity: str) -> KinesisRecord:
    data = _present(record, "Data")
    return KinesisRecord(
        optional_text(record, "PartitionKey"),
        # CAP-6: "In an AWS API answer data is bytes; in its JSON dump it is base64. No other type."
        bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else decode_base64(data, "Data"),
        text(record, identity),
        None,
        read_timestamp(record.get("ApproximateArrivalTimestamp"), SECONDS, "ApproximateArrivalTimestamp"),
    )


def kcl_record(record: Any) -> KinesisRecord:
    """One record of a KCL multi-lang ``processRecords`` message, or amazon_kclpy's object for it."""
    if isinstance(record, Mapping):
        data, fields = decode_base64(_present(record, "data"), "data"), record
    else:
        data = record.binary_data
        if not isinstance(data, bytes):
            raise CaptureError(code="wrong-type", field="binary_data", requirement="CAP-4")
        fields = {
            "partitionKey": getattr(record, "partition_key", None),
            "sequenceNumber": getattr(record, "sequence_number", None),
            "subSequenceNumber": getattr(record, "sub_sequence_number", None),
            "approximateArrivalTimestamp": _kclpy_arrival(record),
        }
    return KinesisRecord(
        optional_text(fields, "partitionKey"),
        data,
        text(fields, "sequenceNumber"),
        None,
        read_timestamp(
            fields.get("approximateArrivalTimestamp"), MILLISECONDS, "approximateArrivalTimestamp"
        ),
        sub_sequence_number=sub_sequence_number(fields, "subSequenceNumber"),
    )


def _kclpy_arrival(record: Any) -> object:
    """The arrival of an amazon_kclpy object: milliseconds, or its naive datetime in local time."""
    millis = getattr(record, "timestamp_millis", None)
    when = getattr(record, "approximate_arrival_timestamp", None) if millis is None else millis
    return when.astimezone() if isinstance(when, datetime) else when


def raw_record(data: bytes | bytearray | memoryview) -> KinesisRecord:
    """The data of one Kinesis record; nothing else is known."""
    return KinesisRecord(None, bytes(data))


READERS: dict[Shape, Callable[[Any], KinesisRecord]] = {
    "lambda": lambda_record,
    "pipes": pipes_record,
    "analytics": analytics_record,
    "firehose": firehose_record,
    "queue": queue_record,
    "boto3": boto3_record,
    "kcl": kcl_record,
    "raw": raw_record,
}


def _present(source: _RawRecord, key: str, prefix: str = "") -> object:
    if source.get(key) is None:
        raise CaptureError(code="missing-field", field=prefix + key, requirement="CAP-4")
    return source[key]


def shape_of(record: Any) -> Shape | None:
    """The shape of one record, by the table of this module; None if it is not a record."""
    if isinstance(record, (bytes, bytearray, memoryview)):
        return "raw"
    if not isinstance(record, Mapping):
        return "kcl" if hasattr(record, "binary_data") else None
    if "kinesis" in record:
        return "lambda"
    if "kinesisStreamRecordMetadata" in record or "kinesisFirehoseRecordMetadata" in record:
        return "analytics"
    if "recordId" in record:
        return "firehose"
    if "RecordId" in record or "ReceiptHandle" in record:
        return "queue"
    if "Data" in record or "SequenceNumber" in record:
        return "boto3"
    if record.get("action") == "record":
        return "kcl"
    if "eventSource" in record and "sequenceNumber" in record:
        return "pipes"
    return None
