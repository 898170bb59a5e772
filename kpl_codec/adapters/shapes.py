"""Reads one record of each shape into a KinesisRecord, and recognises the shape. Raises only CaptureError.

    shape     a record is recognised by            data     numbers in timestamps
    --------  -----------------------------------  -------  ---------------------
    lambda    "kinesis"                            base64   seconds
    pipes     "eventSource", no "kinesis"          base64   seconds
    firehose  "recordId" (Kinesis Analytics, too)  base64   milliseconds
    failed    "rawData": Firehose writes it to S3  base64   milliseconds
              after a failed transformation, format
              conversion or delivery
    daemon    "action": "record", as the KCL's     base64   milliseconds
              MultiLangDaemon writes it
    queue     "RecordId" or "ReceiptHandle"        bytes, or base64 in a JSON dump; seconds
    boto3     "Data" or "SequenceNumber"           bytes, or base64 in a JSON dump; seconds
    kcl       amazon_kclpy's or kcl_rs's object, which has ``binary_data``; milliseconds
    named     "data" and "sequenceNumber", as       bytes, or base64 in a JSON dump; seconds
              text, in the spellings of Kinesis
              connectors: `standard_name`
    raw       bytes, bytearray, memoryview         as it is

A number that is no time from 2013 to 9999 in the shape's unit is read in another unit: see `read_timestamp`.
A time that cannot be read is left out of the record, and `time_error` says what is wrong with it.
Specification: spec/06-lambda.md, CAP-2 to CAP-6, QUE-1.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from numbers import Number
from typing import Any, Literal

from ..errors import CaptureError
from ..format.records import KinesisRecord, Opener, opened_before

Shape = Literal["lambda", "pipes", "firehose", "failed", "daemon", "queue", "boto3", "kcl", "named", "raw"]
"""What a Kinesis record was captured as; spec/06, CAP-2 to CAP-6, QUE-1."""
_RawRecord = Mapping[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Units of timestamps that are numbers, as parts of a second.
SECONDS, MILLISECONDS = 1, 1000
_ALL_UNITS = (SECONDS, MILLISECONDS, 10**6, 10**9)
#: Kinesis began in 2013, and no record is of 2100, in seconds since 1970.
_OLDEST, _NEWEST = 1_356_998_400, 4_102_444_800
#: The last time that a datetime can hold, in seconds since 1970.
_LATEST = 253_402_300_799


def wrong_type(value: object, wanted: str, field: str, requirement: str = "CAP-4") -> CaptureError:
    hint = f"it is {type(value).__name__}, and must be {wanted}"
    return CaptureError(code="wrong-type", field=field, requirement=requirement, hint=hint)


def decode_base64(text: object, field: str) -> bytes:
    """The bytes of ``text``, standard base64 with padding. Raises CaptureError for any other text."""
    # CAP-2: "Base64 MUST be decoded strictly: a text that is not exactly the standard encoding of the
    # bytes it decodes to, padding included, is refused."
    if type(text) is not str:
        raise wrong_type(text, "base64 text", field, "CAP-2")
    try:
        data = binascii.a2b_base64(text)
    except ValueError:  # binascii.Error, or a character beyond ASCII
        raise CaptureError(code="base64", field=field, requirement="CAP-2") from None
    if encode_base64(data) != text:
        raise CaptureError(code="base64", field=field, requirement="CAP-2")
    return data


def encode_base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def read_timestamp(value: object, unit: int, field: str) -> datetime | None:
    """An aware datetime in UTC from a number in ``unit``, an ISO 8601 text or an aware datetime; numbers are
    exact to the microsecond. Raises CaptureError."""
    # CAP-3: "A timestamp MUST be read to the microsecond: a number in the unit of its shape, an ISO 8601
    # text with an offset, or an aware datetime. A number that is a time before 2013, or none, in that unit,
    # and one from 2013 to 2099 in seconds, milliseconds, microseconds or nanoseconds, is in that one."
    try:
        if value is None:
            return None
        if isinstance(value, Number) and not isinstance(value, (bool, int, float)):
            whole = int(value)  # type: ignore[call-overload]  # a Decimal, or numpy's
            value = whole if whole == value else float(value)  # type: ignore[arg-type]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if not _OLDEST <= value / unit <= _LATEST:
                unit = next((own for own in _ALL_UNITS if _OLDEST <= value / own < _NEWEST), unit)
            micros = value * 1_000_000 // unit if isinstance(value, int) else value * (1_000_000 / unit)
            return EPOCH + timedelta(microseconds=round(micros))
        if isinstance(value, str):
            # fromisoformat reads a final Z from Python 3.11 on.
            value = datetime.fromisoformat(value[:-1] + "+00:00" if value[-1:] in ("Z", "z") else value)
        if not isinstance(value, datetime) or value.utcoffset() is None:
            raise TypeError
        return value.astimezone(timezone.utc)
    except (ValueError, TypeError, OverflowError):
        raise CaptureError(code="timestamp", field=field, requirement="CAP-3") from None


def arrival(source: _RawRecord, key: str, unit: int) -> datetime | None:
    """The time under ``key``; None where it is absent, and where it cannot be read."""
    # CAP-13: "A time that cannot be read MUST NOT cost the record: it comes without a time, and an error of
    # its own names the time."
    value = source.get(key)
    try:
        return None if value is None else read_timestamp(value, unit, key)
    except CaptureError:
        return None


def time_error(record: Any) -> CaptureError | None:
    """What is wrong with the time of a record that was read without a time; None if ``record`` has no
    time."""
    levels: dict[str, _RawRecord]
    if isinstance(record, Mapping):
        levels = {f"{key}.": record[key] for key in _LEVELS if isinstance(record.get(key), Mapping)}
        levels[""] = record
    else:
        levels = {"": {name: getattr(record, name, None) for name in _TIMES}}
    for prefix, level in levels.items():
        for name, value in level.items():
            if value is not None and (name in _TIMES or standard_name(str(name)) == _TIMES[0]):
                return CaptureError(
                    code="timestamp", field=prefix + name, requirement="CAP-13", hint="the record has no time"
                )
    return None


def mapping(source: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = _present(source, key)
    if type(value) is not dict and not isinstance(value, Mapping):
        raise wrong_type(value, "an object", key)
    return value


def text(source: Mapping[str, Any], key: str, prefix: str = "") -> str:
    _present(source, key, prefix)
    return optional_text(source, key, prefix) or ""


def optional_text(source: Mapping[str, Any], key: str, prefix: str = "") -> str | None:
    value = source.get(key)
    if value is None:
        return None
    # CAP-4: "A field of the wrong type, a required field that is absent, and a text without UTF-8
    # form are refused."
    if not isinstance(value, str):
        raise wrong_type(value, "text", prefix + key)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise CaptureError(code="utf-8", field=prefix + key, requirement="CAP-4") from None
    return value


def sub_sequence_number(source: Mapping[str, Any], key: str, prefix: str = "") -> int | None:
    """The count under ``key``: a number below 2^63, or its decimal text; None where absent, empty or -1."""
    value = source.get(key)
    # CAP-32: "A sub-sequence number of -1 MUST count as none, but in a row with an errorCount that is
    # passed on; another number below 0, and what is no number, MUST be refused."
    if value is None or value in ("", "-1", -1):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    # CAP-4, as above; no column holds more than 63 bits.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise wrong_type(value, "a number from 0 to 2^63 - 1", prefix + key)
    return value


def opened_fields(
    source: _RawRecord, by: Opener = "other", key: str = "subSequenceNumber", prefix: str = ""
) -> Any:
    """The fields of a KinesisRecord that a user record has which somebody has opened before."""
    # PLC-6, as in format/records.py
    marked = source.get("aggregated")
    # CAP-4, as above
    if not isinstance(marked, (bool, type(None))):
        raise wrong_type(marked, "true or false", prefix + "aggregated")
    sub = sub_sequence_number(source, key, prefix)
    explicit_hash_key = optional_text(source, "explicitHashKey", prefix)
    opened = opened_before(
        by, marked is True, sub, optional_text(source, "partitionKey", prefix), explicit_hash_key
    )
    return {
        "explicit_hash_key": explicit_hash_key, "sub_sequence_number": sub, "opened_before": opened,
    }  # fmt: skip


#: The members that name the stream of a record, or of what is within an event or answer: its ARN, or what
#: `captured` users write beside GetRecords' answers, which name none. In the spellings of AWS's events, its
#: SDKs and this library.
_STREAM_ARNS = (
    *("eventSourceARN", "sourceKinesisStreamArn", "eventSourceArn", "event_source_arn"),
    *("streamArn", "StreamARN", "StreamArn", "streamARN", "stream_arn"),
    *("ConsumerARN", "ConsumerArn", "consumerArn", "consumerARN", "consumer_arn"),
)
_STREAM_NAMES = ("StreamName", "streamName", "stream_name")
_NAMING_STREAM = frozenset((*_STREAM_ARNS, *_STREAM_NAMES))


def stream_in(source: _RawRecord) -> str | None:
    """The ARN, or else the name, of the Kinesis stream that a record or an event names; None if it names
    none. The ARN of a consumer of enhanced fan-out is that of its stream."""
    if _NAMING_STREAM.isdisjoint(source):
        return None
    for key in _STREAM_ARNS:
        arn = source.get(key)
        if isinstance(arn, str) and ":kinesis:" in arn:
            return with_utf_8(arn.partition("/consumer/")[0])
    return text_among(source, _STREAM_NAMES)


def text_among(source: _RawRecord, names: Iterable[str]) -> str | None:
    """The first text under one of ``names`` that is not empty."""
    values = (source.get(name) for name in names)
    return next((with_utf_8(value) for value in values if isinstance(value, str) and value), None)


def with_utf_8(text: str) -> str:
    """``text`` without halves of surrogate pairs, which JSON can escape and no column can hold."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def lambda_record(
    outer: _RawRecord, kinesis: _RawRecord, prefix: str, unit: int = SECONDS, by: Opener = "other"
) -> KinesisRecord:
    """One element of ``event["Records"]`` (``outer``) with its ``kinesis`` member. A record of EventBridge
    Pipes or of the KCL's MultiLangDaemon has no such member: it is given as both. ``by``: who has opened what
    was opened before."""
    event_id = optional_text(outer, "eventID") or ""
    return KinesisRecord(
        optional_text(kinesis, "partitionKey", prefix),
        _bytes(kinesis, "data", prefix),
        text(kinesis, "sequenceNumber", prefix),
        # CAP-5: "The shard id of a Lambda record MUST be taken from its eventID, the part before the
        # last colon."
        event_id.rpartition(":")[0] or None,
        arrival(kinesis, "approximateArrivalTimestamp", unit),
        stream=stream_in(outer),
        # User records that the KCL, `powertools.user_record_event` or aws_kinesis_agg unpacked have these.
        **opened_fields(kinesis, by, prefix=prefix),
    )


def firehose_record(record: _RawRecord) -> KinesisRecord:
    """One record of a Firehose transformation event, or of Kinesis Analytics' preprocessing. It has keys
    and a sequence number only if the source is a Kinesis stream."""
    name, prefix = "approximateArrivalTimestamp", ""
    data, meta = _bytes(record, "data"), dict[str, Any]()
    key = next((key for key in _METADATA if record.get(key) is not None), None)
    if key is not None:
        meta, prefix = dict(mapping(record, key)), f"{key}."
    sub_key = "subSequenceNumber" if "subSequenceNumber" in meta else "subsequenceNumber"
    return KinesisRecord(
        optional_text(meta, "partitionKey", prefix),
        data,
        None if key in (None, "kinesisFirehoseRecordMetadata") else text(meta, "sequenceNumber", prefix),
        optional_text(meta, "shardId", prefix),
        arrival(meta, name, MILLISECONDS) or arrival(record, name, MILLISECONDS),
        **opened_fields(meta, key=sub_key, prefix=prefix),
    )


#: Where a record has its keys and numbers: Firehose's, and those of Kinesis Analytics.
_METADATA = ("kinesisRecordMetadata", "kinesisStreamRecordMetadata", "kinesisFirehoseRecordMetadata")
#: The members that a record's time may be in, and the names that it may have there.
_LEVELS = ("kinesis", *_METADATA)
_TIMES = (
    *("approximateArrivalTimestamp", "ApproximateArrivalTimestamp", "arrivalTimestamp"),
    *("timestamp_millis", "approximate_arrival_timestamp"),
)


def failed_record(record: _RawRecord) -> KinesisRecord:
    """What Firehose keeps of a record whose transformation, format conversion or delivery failed: its data
    as it came. After a failed conversion it has the numbers of the user record that Firehose opened."""
    return KinesisRecord(
        None,
        _bytes(record, "rawData"),
        optional_text(record, "sequenceNumber") or None,
        None,
        arrival(record, "arrivalTimestamp", MILLISECONDS),
        **opened_fields(record),
    )


def named_record(record: _RawRecord) -> KinesisRecord:
    """A record by itself, with this library's names or those of a Kinesis connector: the ``kinesis`` member
    of Lambda's records, or a row that Spark wrote as JSON."""
    row: dict[str, Any] = {}
    for name, value in record.items():
        ours = standard_name(name) if isinstance(name, str) else None
        if ours in row and value is not None:
            raise wrong_type(value, f"given once: {ours} is there, too", name)
        if ours is not None:
            row.setdefault(ours, value)
    data = row["data"]
    return KinesisRecord(
        optional_text(row, "partitionKey"),
        bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else _bytes(row, "data"),
        text(row, "sequenceNumber"),
        optional_text(row, "shardId") or None,
        arrival(row, "approximateArrivalTimestamp", SECONDS),
        stream=stream_in(row),
        # The KCL's own record, as Java's Jackson writes it, has both members.
        **opened_fields(row, "kcl" if {"aggregated", "encryptionType"} <= record.keys() else "other"),
    )


def queue_record(record: _RawRecord) -> KinesisRecord:
    """One of ``QueueRecords`` of a ReceiveQueueRecords or ReceiveDeadLetterQueueRecords response."""
    # QUE-1: "A record from a queue MUST be identified by its RecordId; it has no shard and no sequence
    # number, and none MUST be made up."
    by_id = boto3_record(record, "RecordId")
    return by_id.replace(sequence_number=None, shard_id=None, record_id=by_id.sequence_number)


def boto3_record(record: _RawRecord, identity: str = "SequenceNumber") -> KinesisRecord:
    """One of ``Records`` of a GetRecords response or SubscribeToShard event, live or dumped as JSON."""
    data = record.get("Data")
    return KinesisRecord(
        optional_text(record, "PartitionKey"),
        bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else _bytes(record, "Data"),
        text(record, identity),
        optional_text(record, "ShardId") or None,  # what some programs add
        arrival(record, "ApproximateArrivalTimestamp", SECONDS),
    )


def kcl_record(record: Any) -> KinesisRecord:
    """amazon_kclpy's or kcl_rs's object. Its arrival is in milliseconds, or a naive datetime in local
    time."""
    if not isinstance(record.binary_data, bytes):
        raise wrong_type(record.binary_data, "bytes", "binary_data")
    names = ("partition_key", "sequence_number", "sub_sequence_number", "timestamp_millis")
    fields = {name: getattr(record, name, None) for name in names}
    if fields["timestamp_millis"] is None:
        when = getattr(record, "approximate_arrival_timestamp", None)
        with suppress(OverflowError, ValueError, OSError):
            when = when.astimezone() if isinstance(when, datetime) else when
        fields["timestamp_millis"] = when
    return KinesisRecord(
        optional_text(fields, "partition_key"),
        record.binary_data,
        text(fields, "sequence_number"),
        None,
        arrival(fields, "timestamp_millis", MILLISECONDS),
        **opened_fields({**fields, "partitionKey": fields["partition_key"]}, "kcl", "sub_sequence_number"),
    )


READERS: dict[Shape, Callable[[Any], KinesisRecord]] = {
    "lambda": lambda record: lambda_record(record, mapping(record, "kinesis"), "kinesis."),
    "pipes": lambda record: lambda_record(record, record, ""),
    "firehose": firehose_record,
    "failed": failed_record,
    "daemon": lambda record: lambda_record(record, record, "", MILLISECONDS, "kcl"),
    "queue": queue_record,
    "boto3": boto3_record,
    "kcl": kcl_record,
    "named": named_record,
    "raw": lambda data: KinesisRecord(None, bytes(data)),
}


def _bytes(source: _RawRecord, key: str, prefix: str = "") -> bytes:
    """The data under ``key``: base64, or bytes as JavaScript's JSON.stringify writes them."""
    value = _present(source, key, prefix)
    # CAP-6: "In an AWS API answer data is bytes; in its JSON dump it is base64, or a Buffer or Uint8Array as
    # JavaScript dumps it. No other type."
    if type(value) is not str and isinstance(value, Mapping):
        listed = value.get("data") if value.get("type") == "Buffer" else None
        if value and list(value) == [*map(str, range(len(value)))]:  # Uint8Array: indices and bytes
            listed = list(value.values())
        if isinstance(listed, list):
            with suppress(TypeError, ValueError):
                return bytes(listed)
    return decode_base64(value, prefix + key)


def _present(source: _RawRecord, key: str, prefix: str = "") -> object:
    value = source.get(key)
    if value is None:
        raise CaptureError(code="missing-field", field=prefix + key, requirement="CAP-4")
    return value


#: What Firehose keeps beside the data of a failed record.
_OF_FAILED = frozenset(("errorCode", "attemptsMade", "arrivalTimestamp"))


def shape_of(record: Any) -> Shape | None:
    """The shape of one record, by the table of this module."""
    if isinstance(record, (bytes, bytearray, memoryview)):
        return "raw"
    if not isinstance(record, Mapping):
        return "kcl" if hasattr(record, "binary_data") else None
    if "kinesis" in record:
        return "lambda"
    if "recordId" in record and "aggregated" not in record:  # what opened Firehose's records has both
        return "firehose"
    if "rawData" in record and not _OF_FAILED.isdisjoint(record):
        return "failed"
    if record.get("action") == "record" and "sequenceNumber" in record:
        return "daemon"
    if "RecordId" in record or "ReceiptHandle" in record:
        return "queue"
    if "Data" in record or "SequenceNumber" in record:
        return "boto3"
    if "eventSource" in record and "sequenceNumber" in record:
        return "pipes"
    return "named" if _is_named(record) else None


def _is_named(record: _RawRecord) -> bool:
    """Whether ``record`` has data and a sequence number in the spellings of `standard_name`. What
    ``kpl-codec cat`` prints is no such record: its data is text, not base64. Nor is a row of a report."""
    row = {standard_name(name): value for name, value in record.items() if isinstance(name, str)}
    data = row.get("data")
    # ACC-3: "Results of this library MUST NOT be read as input, whole or half-written, in their folder or
    # moved out of it, and neither MUST rows that were saved under the report policy: they hold what was read
    # before."
    return (
        not _is_printed_by_cat(record)
        and OF_REPORTS.isdisjoint(record)
        and isinstance(row.get("sequenceNumber"), str)
        and (isinstance(data, (str, bytes, bytearray, memoryview, Mapping)))
    )


def _is_printed_by_cat(record: _RawRecord) -> bool:
    """Whether ``record`` is a line of ``kpl-codec cat``. Others write a member ``aggregated``, too: the Java
    KCL and aws_kinesis_agg beside members that cat does not have, and Spark beside a time in another form."""
    when = record.get("approximateArrivalTimestamp")
    in_its_form = when is None or (isinstance(when, str) and when.endswith("+00:00"))
    return "aggregated" in record and record.keys() <= _PRINTED and in_its_form


_NAMES = (
    "aggregated "
    "streamName streamArn shardId sequenceNumber partitionKey explicitHashKey subSequenceNumber data"
)
#: The members of a line of ``kpl-codec cat`` that has data.
_PRINTED = frozenset(
    (
        *(*_NAMES.split(), "recordId", "approximateArrivalTimestamp", "schemaVersionId", "defects"),
        *("file", "line", "position", "item", "offset"),
    )
)
#: Columns that only the report policy adds, in the results of `validate` and in rows of `kpl_codec.arrow` and
#: Spark: each row is judged already.
OF_REPORTS = frozenset(
    ("aggregatePlacement", "errorOffset", "errorRecordIndex", "errorRequirement", "errorText", "errorCount")
)
#: This library's name of each column, by its name in this library or in a Kinesis connector, in lower case.
_COLUMNS = {name.lower(): name for name in (*_NAMES.split(), "approximateArrivalTimestamp")}
_COLUMNS |= {"stream": "streamName", "shard": "shardId", "arrivaltimestamp": "approximateArrivalTimestamp"}
#: npm's aws-kinesis-agg calls the explicit hash key so.
_COLUMNS["explicitpartitionkey"] = "explicitHashKey"


def standard_name(name: str) -> str | None:
    """This library's name for a connector's column, in any case, with or without underscores."""
    return _COLUMNS.get(name.lower().replace("_", ""))
