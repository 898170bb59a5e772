"""Captured events and answers -> KinesisRecord. Recognises the shape, or is told it.

    shape               a record is recognised by          data     numbers in timestamps
    ------------------  ---------------------------------  -------  ---------------------
    lambda              "kinesis"                          base64   seconds
    pipes               "eventSource", no "kinesis"        base64   seconds
    analytics           "kinesis{Stream,Firehose}RecordMetadata"  base64   milliseconds
    firehose            "recordId"                         base64   milliseconds
    boto3               "Data" or "SequenceNumber"         bytes, or base64 in a JSON dump; seconds
    kcl                 "action": "record", or kclpy's object with ``binary_data``; milliseconds
    raw                 bytes, bytearray, memoryview       as it is

Records may come alone, in the event or answer they came in, in lists, iterators and pages of those, and
as JSON text, one document or many. The shapes mix freely; order is kept; nothing is read ahead.
Specification: spec/06-lambda.md, CAP-1 to CAP-7, CAP-10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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

Shape = Literal["lambda", "pipes", "analytics", "firehose", "boto3", "kcl", "raw"]
_RawRecord = Mapping[str, Any]


def lambda_record(record: _RawRecord) -> KinesisRecord:
    """One element of ``event["Records"]``. The shard id is what stands before the colon in ``eventID``."""
    kinesis = mapping(record, "kinesis")
    return _stream_record(record, kinesis, "kinesis.")


def pipes_record(record: _RawRecord) -> KinesisRecord:
    """One element of what EventBridge Pipes sends: the Lambda record without its inner level."""
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
    data = _present(record, "Data")
    return KinesisRecord(
        optional_text(record, "PartitionKey"),
        # CAP-6: "In an AWS API answer data is bytes; in its JSON dump it is base64. No other type."
        bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else decode_base64(data, "Data"),
        text(record, "SequenceNumber"),
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
    """The data of one Kinesis record, nothing else known."""
    return KinesisRecord(None, bytes(data))


_READERS: dict[str, Callable[[Any], KinesisRecord]] = {
    "lambda": lambda_record,
    "pipes": pipes_record,
    "analytics": analytics_record,
    "firehose": firehose_record,
    "boto3": boto3_record,
    "kcl": kcl_record,
    "raw": raw_record,
}


def _present(source: _RawRecord, key: str, prefix: str = "") -> object:
    if source.get(key) is None:
        raise CaptureError(code="missing-field", field=prefix + key, requirement="CAP-4")
    return source[key]


def shape_of(record: Any) -> str | None:
    """The shape of one record, by the table of this module; None for what is no record."""
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
    if "Data" in record or "SequenceNumber" in record:
        return "boto3"
    if record.get("action") == "record":
        return "kcl"
    if "eventSource" in record and "sequenceNumber" in record:
        return "pipes"
    return None


class _Reader:
    """One walk through a source. State: how many items came out, and the shard ids seen on the way."""

    def __init__(self, shape: str | None) -> None:
        self._shape = shape
        self._position = 0
        self._kcl_shard_id: str | None = None

    def walk(self, source: Any, path: str, shard_id: str | None) -> Iterator[KinesisRecord | CaptureError]:
        if isinstance(source, KinesisRecord):
            yield self._count(source if source.shard_id else source._replace(shard_id=shard_id))
        elif isinstance(source, str):
            yield from self._json(source, path, shard_id)
        elif isinstance(source, Mapping):
            yield from self._mapping(source, path, shard_id)
        elif shape_of(source) is not None:
            yield self._record(source, path, shard_id)
        elif isinstance(source, Iterable):
            for index, item in enumerate(source):
                yield from self.walk(item, f"{path}[{index}]", shard_id)
        else:
            yield self._error(CaptureError(code="unknown-shape", field=path), "")

    def _mapping(
        self, source: _RawRecord, path: str, shard_id: str | None
    ) -> Iterator[KinesisRecord | CaptureError]:
        dot = path + "." if path else ""
        # SubscribeToShard: the answer, and one event of its stream.
        for key in ("EventStream", "SubscribeToShardEvent"):
            if key in source:
                yield from self.walk(source[key], dot + key, shard_id)
                return
        held = [key for key in ("Records", "records") if key in source]
        for key in held:
            records = source[key]
            if not isinstance(records, (list, tuple)):
                code = "wrong-type"
                yield self._error(CaptureError(code=code, field=dot + key, requirement="CAP-4"), "")
                continue
            # A tumbling window's event names its shard once more.
            window_shard = source.get("shardId")
            if isinstance(window_shard, str):
                shard_id = window_shard
            elif source.get("action") is not None:
                shard_id = self._kcl_shard_id or shard_id
            for index, record in enumerate(records):
                yield self._record(record, f"{dot}{key}[{index}]", shard_id)
        if held:
            return
        if source.get("action") in _KCL_ACTIONS:
            # A recorded KCL session: only `initialize` tells the shard.
            if source["action"] == "initialize":
                told = source.get("shardId")
                self._kcl_shard_id = told if isinstance(told, str) else None
        elif self._shape is not None or shape_of(source) is not None:
            yield self._record(source, path, shard_id)
        elif isinstance(source.get("payload"), str):
            # What a failed Lambda invocation leaves in S3: the whole event, as text.
            yield from self.walk(source["payload"], dot + "payload", shard_id)
        else:
            yield self._error(CaptureError(code="unknown-shape", field=path), "")

    def _record(self, record: Any, path: str, shard_id: str | None) -> KinesisRecord | CaptureError:
        # CAP-1: "A record that cannot be read MUST come out as an error with its position, its field
        # and a code; it MUST NOT hide the records before and after it."
        if isinstance(record, KinesisRecord):
            return self._count(record if record.shard_id else record._replace(shard_id=shard_id))
        shape = shape_of(record)
        if self._shape is not None and isinstance(record, Mapping) and self._shape != "raw":
            shape = self._shape
        if shape is None or self._shape not in (None, shape):
            return self._error(CaptureError(code="unknown-shape", field=""), path)
        try:
            found = _READERS[shape](record)
        except CaptureError as error:
            return self._error(error, path, record)
        # CAP-7: "A shard id given beside the source MUST be used only where the source has none."
        return self._count(found if found.shard_id else found._replace(shard_id=shard_id))

    def _count(self, record: KinesisRecord) -> KinesisRecord:
        self._position += 1
        return record

    def _error(self, error: CaptureError, path: str, record: Any = None) -> CaptureError:
        """``error`` with its place, and the sequence number or record id where they can be read."""
        field = ".".join(part for part in (path, error.fields["field"]) if part)
        fields = {**error.fields, "field": field, "position": self._position}
        fields.setdefault("requirement", "CAP-1")
        if isinstance(record, Mapping):
            inner = record.get("kinesis")
            for source in (inner if isinstance(inner, Mapping) else {}, record):
                for key, name in _IDENTITIES:
                    if isinstance(source.get(key), str):
                        fields.setdefault(name, source[key])
        self._position += 1
        return CaptureError(**fields)

    def _json(self, source: str, path: str, shard_id: str | None) -> Iterator[KinesisRecord | CaptureError]:
        """One JSON document or many, one after the other, as logs and repeated CLI calls leave them."""
        from .json_stream import Defect, json_documents  # handlers do without: their events come parsed

        for count, found in enumerate(json_documents(source, max_size=len(source) + 1)):
            place = f"{path}<{count}>" if count else path
            if isinstance(found, Defect):
                requirement = "CAP-10" if found.code == "duplicate-member" else "CAP-1"
                error = CaptureError(
                    code=found.code, field=place, offset=found.offset, requirement=requirement
                )
                yield self._error(error, "")
            elif isinstance(found.value, (dict, list)):
                yield from self.walk(found.value, place, shard_id)
            else:
                yield self._error(CaptureError(code="unknown-shape", field=place, offset=found.offset), "")


_KCL_ACTIONS = (
    "initialize",
    "leaseLost",
    "shardEnded",
    "shutdown",
    "shutdownRequested",
    "checkpoint",
    "status",
)
_IDENTITIES = (
    ("sequenceNumber", "sequence_number"),
    ("SequenceNumber", "sequence_number"),
    ("recordId", "record_id"),
)


def captured(
    source: Any, *, shard_id: str | None = None, shape: Shape | None = None
) -> Iterator[KinesisRecord | CaptureError]:
    """Every record of ``source`` in order, lazily: a KinesisRecord, or the CaptureError about it.

    ``source``: anything of this module's table. bytes are the data of one record; str is JSON.
    ``shard_id``: the shard, for shapes that do not say it. ``shape``: read every record as this shape.
    The errors have ``position`` (0-based, in the order of the source), ``field`` (as
    ``Records[3].kinesis.data``; ``<1>`` is the second JSON document), ``code`` (missing-field,
    wrong-type, base64, timestamp, utf-8, json, duplicate-member, unknown-shape), where a document of a
    text is at fault its ``offset`` in bytes of UTF-8, and, where they can be read, ``sequence_number``
    and ``record_id``. Raises nothing of its own but ValueError for an unknown ``shape``.
    """
    if shape is not None and shape not in _READERS:
        raise ValueError(f"shape {shape!r}: one of {', '.join(_READERS)}")
    return _Reader(shape).walk(source, "", shard_id)


def kinesis_records(
    source: Any, *, shard_id: str | None = None, shape: Shape | None = None
) -> Iterator[KinesisRecord]:
    """`captured`, raising the first CaptureError instead of handing it out."""
    for item in captured(source, shard_id=shard_id, shape=shape):
        if isinstance(item, CaptureError):
            raise item
        yield item


def from_lambda(event: Any) -> Iterator[KinesisRecord]:
    """The records of a Lambda event for a Kinesis stream (a tumbling window's too), or of its records."""
    return kinesis_records(event, shape="lambda")


def from_pipes(event: Any) -> Iterator[KinesisRecord]:
    """The records of what EventBridge Pipes sends: a list."""
    return kinesis_records(event, shape="pipes")


def from_firehose(event: Any) -> Iterator[KinesisRecord]:
    """The records of a Firehose transformation event."""
    return kinesis_records(event, shape="firehose")


def from_analytics(event: Any) -> Iterator[KinesisRecord]:
    """The records of a Managed Flink / Kinesis Analytics preprocessing event."""
    return kinesis_records(event, shape="analytics")


def from_get_records(answer: Any, *, shard_id: str | None = None) -> Iterator[KinesisRecord]:
    """The records of one GetRecords answer or many, live or dumped as JSON."""
    return kinesis_records(answer, shard_id=shard_id, shape="boto3")


def from_subscribe_to_shard(answer: Any, *, shard_id: str | None = None) -> Iterator[KinesisRecord]:
    """The records of a SubscribeToShard answer, of its event stream, or of one event; lazily."""
    return kinesis_records(answer, shard_id=shard_id, shape="boto3")


def from_kcl(messages: Any, *, shard_id: str | None = None) -> Iterator[KinesisRecord]:
    """The records of KCL multi-lang messages (parsed, or the lines of a session) or kclpy's objects."""
    return kinesis_records(messages, shard_id=shard_id, shape="kcl")


def from_raw(
    data: bytes | bytearray | memoryview | Iterable[bytes], *, shard_id: str | None = None
) -> Iterator[KinesisRecord]:
    """A record for ``data``, or for each of its items."""
    return kinesis_records(data, shard_id=shard_id, shape="raw")
