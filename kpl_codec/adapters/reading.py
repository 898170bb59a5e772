"""Reads captured events and answers into KinesisRecords.

Records may come alone, in their event or answer, in lists, iterators and pages of those, and as JSON text,
one document or many. Shapes may be mixed; order is kept; nothing is read ahead.
Specification: spec/06-lambda.md, CAP-1, CAP-7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import CaptureError
from ..format.records import KinesisRecord
from .shapes import READERS, Shape, shape_of

_IDENTITIES = (
    ("sequenceNumber", "sequence_number"),
    ("SequenceNumber", "sequence_number"),
    ("recordId", "record_id"),
    ("RecordId", "record_id"),
)
_TEXT_IS_JSON = "text is read as JSON: of a file give the content, and base64 to base64.b64decode"


class _Reader:
    """One pass over a source. Its errors have no position yet."""

    def __init__(self, shape: Shape | None) -> None:
        self._shape = shape

    def walk(self, source: Any, path: str, shard_id: str | None) -> Iterator[KinesisRecord | CaptureError]:
        if isinstance(source, KinesisRecord):
            yield source if source.shard_id else source._replace(shard_id=shard_id)
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
            yield _error(CaptureError(code="unknown-shape", field=path), "")

    def _mapping(
        self, source: Mapping[str, Any], path: str, shard_id: str | None
    ) -> Iterator[KinesisRecord | CaptureError]:
        dot = path + "." if path else ""
        # SubscribeToShard: its answer, or one event of its stream.
        for key in ("EventStream", "SubscribeToShardEvent"):
            if key in source:
                yield from self.walk(source[key], dot + key, shard_id)
                return
        held = [key for key in ("Records", "records", "QueueRecords") if key in source]
        for key in held:
            records = source[key]
            if not isinstance(records, (list, tuple)):
                code = "wrong-type"
                yield _error(CaptureError(code=code, field=dot + key, requirement="CAP-4"), "")
                continue
            # The event of a tumbling window names its shard again.
            window_shard = source.get("shardId")
            if isinstance(window_shard, str):
                shard_id = window_shard
            for index, record in enumerate(records):
                if isinstance(record, Mapping) and {"messageId", "body"} <= record.keys():
                    # SQS's Lambda event: what somebody put into the queue is the body, as text.
                    yield from self.walk(record["body"], f"{dot}{key}[{index}].body", shard_id)
                else:
                    yield self._record(record, f"{dot}{key}[{index}]", shard_id)
        if held:
            return
        if self._shape is not None or shape_of(source) is not None:
            yield self._record(source, path, shard_id)
        elif isinstance(source.get("payload"), str):
            # A failed Lambda invocation in S3: the whole event, as text.
            yield from self.walk(source["payload"], dot + "payload", shard_id)
        else:
            yield _error(CaptureError(code="unknown-shape", field=path), "")

    def _record(self, record: Any, path: str, shard_id: str | None) -> KinesisRecord | CaptureError:
        # CAP-1: "A record that cannot be read MUST come out as an error with its position, its field
        # and a code; it MUST NOT hide the records before and after it."
        if isinstance(record, KinesisRecord):
            return record if record.shard_id else record._replace(shard_id=shard_id)
        shape = shape_of(record)
        if isinstance(record, Mapping) and self._shape not in (None, "raw", "kcl"):
            shape = self._shape
        if shape is None or self._shape not in (None, shape):
            return _error(CaptureError(code="unknown-shape", field=""), path)
        try:
            found = READERS[shape](record)
        except CaptureError as error:
            found_shape = shape_of(record)
            if found_shape is not None and found_shape != shape:
                hint = f"a {found_shape} record: kinesis_records reads any shape"
                error = error.at(hint=hint)
            return _error(error, path, record)
        # CAP-7: "A shard id given beside the source MUST be used only where the source has none."
        return found if found.shard_id else found._replace(shard_id=shard_id)

    def _json(self, source: str, path: str, shard_id: str | None) -> Iterator[KinesisRecord | CaptureError]:
        """One JSON document or many, one after the other, as in logs and the output of repeated CLI calls."""
        from .json_stream import Defect, json_documents  # handlers do not need it: their events are parsed

        json_follows = source.lstrip("\ufeff\x1e \t\r\n,")[:1] in ("{", "[", "")
        hint = None if json_follows else _TEXT_IS_JSON
        for count, found in enumerate(json_documents(source, max_size=len(source) + 1)):
            place = f"{path}<{count}>" if count else path
            if isinstance(found, Defect):
                requirement = "CAP-10" if found.code == "duplicate-member" else "CAP-1"
                error = CaptureError(
                    code=found.code, field=place, offset=found.offset, requirement=requirement, hint=hint
                )
                yield _error(error, "")
            elif isinstance(found.value, (dict, list)):
                yield from self.walk(found.value, place, shard_id)
            else:
                error = CaptureError(code="unknown-shape", field=place, offset=found.offset, hint=hint)
                yield _error(error, "")


def _error(error: CaptureError, path: str, record: Any = None) -> CaptureError:
    """``error`` with its place, and the sequence number or record id where they can be read."""
    fields = {**error.fields, "field": ".".join(part for part in (path, error.fields["field"]) if part)}
    fields.setdefault("requirement", "CAP-1")
    if isinstance(record, Mapping):
        inner = record.get("kinesis")
        for source in (inner if isinstance(inner, Mapping) else {}, record):
            for key, name in _IDENTITIES:
                if isinstance(source.get(key), str):
                    fields.setdefault(name, source[key])
    return CaptureError(**fields)


def _numbered(items: Iterable[KinesisRecord | CaptureError]) -> Iterator[KinesisRecord | CaptureError]:
    for position, item in enumerate(items):
        yield item.at(position=position) if isinstance(item, CaptureError) else item


def captured(
    source: Any, *, shard_id: str | None = None, shape: Shape | None = None
) -> Iterator[KinesisRecord | CaptureError]:
    """Every record of ``source`` in order, lazily: a KinesisRecord, or its CaptureError.

    ``source``: anything of this module's table. bytes are the data of one record; str is JSON.
    ``shard_id``: the shard, for shapes that do not say it. ``shape``: read every record as this shape.
    The errors have ``position`` (0-based, in the order of the source), ``field`` (as
    ``Records[3].kinesis.data``; ``<1>`` is the second JSON document), ``code`` (missing-field,
    wrong-type, base64, timestamp, utf-8, json, duplicate-member, unknown-shape), for a broken document in a
    text its ``offset`` in bytes of UTF-8, and, if they can be read, ``sequence_number`` and ``record_id``.
    Raises ValueError for an unknown ``shape``, TypeError for a path or an open file.
    """
    if shape is not None and shape not in READERS:
        raise ValueError(f"shape {shape!r}: one of {', '.join(READERS)}")
    if hasattr(source, "__fspath__") or hasattr(source, "read"):
        raise TypeError(
            f"{type(source).__name__} where the records or their JSON belong: give the file's text, as "
            "Path(...).read_text() has it"
        )
    return _numbered(_Reader(shape).walk(source, "", shard_id))


def kinesis_records(
    source: Any, *, shard_id: str | None = None, shape: Shape | None = None
) -> Iterator[KinesisRecord]:
    """Like `captured`, but raises the first CaptureError."""
    for item in captured(source, shard_id=shard_id, shape=shape):
        if isinstance(item, CaptureError):
            raise item
        yield item


def from_get_records(answer: Any, *, shard_id: str | None = None) -> Iterator[KinesisRecord]:
    """The records of one or more GetRecords answers, live or dumped as JSON."""
    return kinesis_records(answer, shard_id=shard_id, shape="boto3")


def from_kcl(records: Any, *, shard_id: str | None = None) -> Iterator[KinesisRecord]:
    """The records that amazon_kclpy gives."""
    return kinesis_records(records, shard_id=shard_id, shape="kcl")
