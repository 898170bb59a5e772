"""Reads one record of each shape into a KinesisRecord, and recognises the shape. Raises only CaptureError.

    shape     a record is recognised by            data     numbers in timestamps
    --------  -----------------------------------  -------  ---------------------
    lambda    "kinesis"                            base64   seconds
    pipes     "eventSource", no "kinesis"          base64   seconds
    firehose  "recordId" (Kinesis Analytics', too) base64   milliseconds
    queue     "RecordId" or "ReceiptHandle"        bytes, or base64 in a JSON dump; seconds
    boto3     "Data" or "SequenceNumber"           bytes, or base64 in a JSON dump; seconds
    kcl       amazon_kclpy's object, which has ``binary_data``; milliseconds
    raw       bytes, bytearray, memoryview         as it is

Specification: spec/06-lambda.md, CAP-2 to CAP-6; of queues spec/14-queues-and-channels.md.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from ..errors import CaptureError
from ..format.records import KinesisRecord

Shape = Literal["lambda", "pipes", "firehose", "queue", "boto3", "kcl", "raw"]
"""What a Kinesis record was captured as; spec/06, CAP-2 to CAP-6; of a queue spec/14."""
_RawRecord = Mapping[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Units of timestamps given as numbers.
SECONDS, MILLISECONDS = 1, 1000


def decode_base64(text: object, field: str) -> bytes:
    """The bytes of the base64 ``text``, which must be exactly what an encoder writes."""
    # CAP-2: "Base64 MUST be decoded strictly: a text that is not exactly the standard encoding of the
    # bytes it decodes to, padding included, is refused."
    if type(text) is not str:
        raise CaptureError(code="wrong-type", field=field, requirement="CAP-2")
    try:
        data = binascii.a2b_base64(text)
    except ValueError:  # binascii.Error, or a character beyond ASCII
        raise CaptureError(code="base64", field=field, requirement="CAP-2") from None
    if encode_base64(data) != text:
        raise CaptureError(code="base64", field=field, requirement="CAP-2")
    return data


def encode_base64(data: bytes) -> str:
    """Standard base64 with padding, no line breaks."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def read_timestamp(value: object, unit: int, field: str) -> datetime | None:
    """An aware datetime in UTC from a number in ``unit``, an ISO 8601 text or an aware datetime.

    None stays None. Numbers are exact to the microsecond.
    """
    # CAP-3: "A timestamp MUST be read to the microsecond: a number in the unit of its shape, an ISO
    # 8601 text with an offset, or an aware datetime; anything else is refused."
    try:
        if value is None:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return EPOCH + timedelta(microseconds=round(value * (1_000_000 // unit)))
        if isinstance(value, str):
            # fromisoformat reads a final Z from Python 3.11 on.
            value = datetime.fromisoformat(value[:-1] + "+00:00" if value[-1:] in ("Z", "z") else value)
        if not isinstance(value, datetime) or value.utcoffset() is None:
            raise TypeError
        return value.astimezone(timezone.utc)
    except (ValueError, TypeError, OverflowError):
        raise CaptureError(code="timestamp", field=field, requirement="CAP-3") from None


def mapping(source: Mapping[str, Any], key: str, prefix: str = "") -> Mapping[str, Any]:
    value = _present(source, key, prefix)
    if not isinstance(value, Mapping):
        raise CaptureError(code="wrong-type", field=prefix + key, requirement="CAP-4")
    return value


def text(source: Mapping[str, Any], key: str, prefix: str = "") -> str:
    """The text under ``key``, which must be there."""
    _present(source, key, prefix)
    return optional_text(source, key, prefix) or ""


def optional_text(source: Mapping[str, Any], key: str, prefix: str = "") -> str | None:
    """The text under ``key``, or None."""
    value = source.get(key)
    if value is None:
        return None
    # CAP-4: "A field of the wrong type, a required field that is absent, and a text without UTF-8
    # form are refused."
    if not isinstance(value, str):
        raise CaptureError(code="wrong-type", field=prefix + key, requirement="CAP-4")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise CaptureError(code="utf-8", field=prefix + key, requirement="CAP-4") from None
    return value


def sub_sequence_number(source: Mapping[str, Any], key: str, prefix: str = "") -> int | None:
    """The count under ``key``: a number or its decimal text; None where absent or empty."""
    value = source.get(key)
    if value is None or value == "":
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CaptureError(code="wrong-type", field=prefix + key, requirement="CAP-4")
    return value


def lambda_record(record: _RawRecord) -> KinesisRecord:
    """One element of ``event["Records"]``. The shard id is the part of ``eventID`` before the colon."""
    return _stream_record(record, mapping(record, "kinesis"), "kinesis.")


def pipes_record(record: _RawRecord) -> KinesisRecord:
    """One element of an EventBridge Pipes event: the Lambda record without its inner level."""
    return _stream_record(record, record, "")


def _stream_record(outer: _RawRecord, kinesis: _RawRecord, prefix: str) -> KinesisRecord:
    event_id = optional_text(outer, "eventID") or ""
    # (The last two stand in what was opened before: by `powertools.user_record_event`, or by aws_kinesis_agg.)
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
        optional_text(kinesis, "explicitHashKey", prefix),
        sub_sequence_number(kinesis, "subSequenceNumber", prefix),
    )


def firehose_record(record: _RawRecord) -> KinesisRecord:
    """One record of a Firehose transformation event, or of Kinesis Analytics' preprocessing. Without a
    Kinesis source it has no keys or numbers."""
    data = decode_base64(_present(record, "data"), "data")
    name, prefix = "approximateArrivalTimestamp", ""
    meta: _RawRecord = {}
    key = next((key for key in _METADATA if record.get(key) is not None), None)
    if key is not None:
        meta, prefix = mapping(record, key), f"{key}."
    arrival = (meta, prefix) if meta.get(name) is not None else (record, "")
    sub_key = "subSequenceNumber" if "subSequenceNumber" in meta else "subsequenceNumber"
    return KinesisRecord(
        optional_text(meta, "partitionKey", prefix),
        data,
        None if key in (None, "kinesisFirehoseRecordMetadata") else text(meta, "sequenceNumber", prefix),
        optional_text(meta, "shardId", prefix),
        read_timestamp(arrival[0].get(name), MILLISECONDS, arrival[1] + name),
        sub_sequence_number=sub_sequence_number(meta, sub_key, prefix),
    )


#: Where a record has its keys and numbers: Firehose's, and those of Kinesis Analytics.
_METADATA = ("kinesisRecordMetadata", "kinesisStreamRecordMetadata", "kinesisFirehoseRecordMetadata")


def queue_record(record: _RawRecord) -> KinesisRecord:
    """One of ``QueueRecords`` of a ReceiveQueueRecords or ReceiveDeadLetterQueueRecords answer."""
    # QUE-1: "A record from a queue MUST be identified by its RecordId; it has no shard and no sequence
    # number, and none MUST be made up."
    found = boto3_record(record, "RecordId")
    return found._replace(sequence_number=None, record_id=found.sequence_number)


def boto3_record(record: _RawRecord, identity: str = "SequenceNumber") -> KinesisRecord:
    """One of ``Records`` of a GetRecords answer or SubscribeToShard event, live or dumped as JSON."""
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
    """amazon_kclpy's object for a record. Its arrival is in milliseconds, or a naive datetime in local
    time."""
    if not isinstance(record.binary_data, bytes):
        raise CaptureError(code="wrong-type", field="binary_data", requirement="CAP-4")
    names = ("partition_key", "sequence_number", "sub_sequence_number", "timestamp_millis")
    fields = {name: getattr(record, name, None) for name in names}
    when = fields["timestamp_millis"]
    if when is None:
        when = getattr(record, "approximate_arrival_timestamp", None)
    return KinesisRecord(
        optional_text(fields, "partition_key"),
        record.binary_data,
        text(fields, "sequence_number"),
        None,
        read_timestamp(
            when.astimezone() if isinstance(when, datetime) else when, MILLISECONDS, "timestamp_millis"
        ),
        sub_sequence_number=sub_sequence_number(fields, "sub_sequence_number"),
    )


READERS: dict[Shape, Callable[[Any], KinesisRecord]] = {
    "lambda": lambda_record,
    "pipes": pipes_record,
    "firehose": firehose_record,
    "queue": queue_record,
    "boto3": boto3_record,
    "kcl": kcl_record,
    "raw": lambda data: KinesisRecord(None, bytes(data)),
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
    if "recordId" in record:
        return "firehose"
    if "RecordId" in record or "ReceiptHandle" in record:
        return "queue"
    if "Data" in record or "SequenceNumber" in record:
        return "boto3"
    if "eventSource" in record and "sequenceNumber" in record:
        return "pipes"
    return None


_NAMES = "streamName shardId sequenceNumber partitionKey explicitHashKey subSequenceNumber data"
#: The columns of a Kinesis record, as this library names them, and other names of the Kinesis connectors.
_COLUMNS = {name.lower(): name for name in (*_NAMES.split(), "approximateArrivalTimestamp")}
_COLUMNS |= {"stream": "streamName", "shard": "shardId", "arrivaltimestamp": "approximateArrivalTimestamp"}


def standard_name(name: str) -> str | None:
    """This library's name for a connector's column, in any case, with or without underscores; None for
    others."""
    return _COLUMNS.get(name.lower().replace("_", ""))
