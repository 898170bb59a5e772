"""Reads records of captured events and API responses into KinesisRecords: single records, whole events or
responses, lists, iterators and pages of those, and JSON text of one document or many. Shapes may be mixed;
the order is kept; nothing is read ahead. Specification: spec/06-lambda.md, CAP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from ..base.arguments import check_arguments
from ..errors import CaptureError
from ..format.records import KinesisRecord, with_siblings
from .shapes import OF_REPORTS, READERS, shape_of, stream_in, text_among, time_error, wrong_type

_IDENTITIES = (
    ("sequenceNumber", "sequence_number"),
    ("SequenceNumber", "sequence_number"),
    ("recordId", "record_id"),
    ("RecordId", "record_id"),
)
_TEXT_IS_JSON = "text is read as JSON: decode base64 (base64.b64decode), and of a file give the content"
_NOTICE = (
    "Lambda's notice of a batch that failed: it names the records and holds none; "
    "kpl-codec cat --stream NAME --only FILE reads them"
)
_HTTP = "a request over HTTP, not an event of a Kinesis stream: give its body, if that holds records"
#: Events without a Kinesis record, by the name of a member that only they have: what the event is, what to
#: do.
_OTHERS = {
    "KinesisBatchInfo": _NOTICE,
    "DDBStreamBatchInfo": "Lambda's notice of a batch of DynamoDB Streams, which are no Kinesis stream",
    "dynamodb": "a record of DynamoDB Streams, not of a Kinesis stream",
    "Sns": "a message of SNS: give its Sns.Message",
    "s3": "a notice of S3: give the content of the object that it names",
    **dict.fromkeys(OF_REPORTS, "a row of the report policy, judged already: give what it was made of"),
    "aggregated": "a user record as kpl-codec cat prints it, data as text: give what cat read",
    "receiptHandle": "a message of SQS: kpl_codec.adapters.kinesis_records reads what its body holds",
    "requestContext": _HTTP,
    "httpMethod": _HTTP,
    "awslogs": "CloudWatch Logs' own event, not one of a Kinesis stream",
    "detail-type": "an event of EventBridge, not of a Kinesis stream: give its detail, if that holds records",
}
#: Messages without records between the KCL's MultiLangDaemon and a consumer: their actions, their members.
_NO_RECORDS = (
    "initialize",
    "shutdown",
    "shutdownRequested",
    "leaseLost",
    "shardEnded",
    "checkpoint",
    "status",
)
_OF_MESSAGES = frozenset(
    (
        "action",
        "shardId",
        "sequenceNumber",
        "subSequenceNumber",
        "reason",
        "responseFor",
        "error",
        "checkpoint",
    )
)


def hint_of(value: object) -> str | None:
    """For a ``value`` that is no Kinesis record: what it is and what to do. None if that is not known."""
    if isinstance(value, Mapping):
        return next((text for name, text in _OTHERS.items() if name in value), None)
    return _TEXT_IS_JSON if isinstance(value, str) else None


class Around:
    """What stands around a record: the shard and the stream of a record that does not say its own."""

    __slots__ = ("shard_id", "stream")

    def __init__(self, shard_id: str | None = None, stream: str | None = None) -> None:
        self.shard_id, self.stream = shard_id, stream

    def within(self, source: Mapping[str, Any]) -> Around:
        """What stands around the records of an event or answer."""
        # CAP-15: "The stream and the shard that an event or answer names MUST be those of each record in it
        # that does not name its own, at any depth."
        around = self
        for named in (source, source.get("KinesisBatchInfo")):  # of a notice with its payload
            if isinstance(named, Mapping):
                shard_id = text_among(named, ("ShardId", "shardId", "shard_id"))
                around = around.beside(shard_id, stream_in(named))
        return around

    def beside(self, shard_id: str | None, stream: str | None) -> Around:
        """What stands around a record that names these itself, either of them None. The shard around it is of
        the stream around it, and of no other."""
        if stream is not None and self.stream is not None and stream != self.stream:
            from ..shards.stream_name import may_be_one  # late: in most events the two are one text

            if not may_be_one(stream, self.stream):
                return Around(shard_id, stream)
        return Around(shard_id or self.shard_id, stream or self.stream)


_NOTHING = Around()


def read_record(record: Any, path: str, around: Around = _NOTHING) -> KinesisRecord | CaptureError:
    """One record of any shape; ``path``: where it is in its source, for the error."""
    # CAP-1: "A record that cannot be read MUST come out as an error with its position, its field
    # and a code; it MUST NOT hide the records before and after it."
    shape = shape_of(record)
    if isinstance(record, KinesisRecord):
        kinesis_record = record
    elif shape is None:
        return _error(CaptureError(code="unknown-shape", field="", hint=hint_of(record)), path, record)
    else:
        try:
            kinesis_record = READERS[shape](record)
        except CaptureError as error:
            return _error(error, path, record)
    # CAP-7: "A shard id or a stream given beside the source MUST be used only where the source has none."
    if kinesis_record.shard_id and kinesis_record.stream:
        return kinesis_record
    if isinstance(record, Mapping):
        around = around.within(record)
    known = around.beside(kinesis_record.shard_id, kinesis_record.stream)
    if known.shard_id == kinesis_record.shard_id and known.stream == kinesis_record.stream:
        return kinesis_record
    return kinesis_record.replace(shard_id=known.shard_id, stream=known.stream)


def _error(error: CaptureError, path: str, record: Any) -> CaptureError:
    """``error`` with ``path`` before its field, and with the sequence number or record id of ``record``."""
    fields = {**error.fields, "field": ".".join(part for part in (path, error.fields["field"]) if part)}
    if isinstance(record, Mapping):
        inner = record.get("kinesis")
        for source in (inner if isinstance(inner, Mapping) else {}, record):
            for key, name in _IDENTITIES:
                if isinstance(source.get(key), str):
                    fields.setdefault(name, source[key])
    return CaptureError(**fields)


def _walk(source: Any, path: str, around: Around) -> Iterator[KinesisRecord | CaptureError]:
    if isinstance(source, str):
        # Of an iterator nothing is read ahead, so it shows no siblings: it may be one of a live stream.
        yield from with_siblings(_json(source, path, around))
    elif isinstance(source, Mapping):
        yield from with_siblings(_mapping(source, path, around))
    elif isinstance(source, Iterable) and not isinstance(source, KinesisRecord) and shape_of(source) is None:
        items = (_walk(item, f"{path}[{index}]", around) for index, item in enumerate(source))
        whole = chain.from_iterable(items)
        yield from with_siblings(whole) if isinstance(source, (list, tuple)) else whole
    else:
        yield from _record(source, path, around)


def _record(record: Any, path: str, around: Around) -> tuple[KinesisRecord | CaptureError, ...]:
    """``record`` as a KinesisRecord, followed by a CaptureError if its time cannot be read."""
    item = read_record(record, path, around)
    if item is not record and getattr(item, "approximate_arrival_timestamp", record) is None:
        error = time_error(record)
        if error is not None:
            return item, _error(error, path, record)
    return (item,)


def _mapping(source: Mapping[str, Any], path: str, around: Around) -> Iterator[KinesisRecord | CaptureError]:
    dot = path + "." if path else ""
    around = around.within(source)
    # The response of SubscribeToShard, or one event of its stream.
    streams = [key for key in ("EventStream", "SubscribeToShardEvent") if key in source]
    for key in streams:
        yield from _walk(source[key], dot + key, around)
    keys = [key for key in ("Records", "records", "QueueRecords") if key in source]
    for key in keys:
        records = source[key]
        # The body that Firehose posts to an HTTP endpoint: its records have data and nothing else.
        posted = {"recordId": source["requestId"]} if key == "records" and "requestId" in source else None
        if not isinstance(records, (list, tuple)):
            yield wrong_type(records, "a list", dot + key)
            continue
        for index, record in enumerate([*records]):  # whoever reads them may change the event
            if _is_message(record):
                yield from _walk(record["body"], f"{dot}{key}[{index}].body", around)
            else:
                whole = {**posted, **record} if posted and isinstance(record, Mapping) else record
                yield from _record(whole, f"{dot}{key}[{index}]", around)
    if source.get("action") in _NO_RECORDS and source.keys() <= _OF_MESSAGES:
        return
    # CAP-16: "Each member of an event or answer that may hold records MUST be read, and a record that has
    # such a member itself; a text that should hold them and is blank MUST be an error."
    if shape_of(source) is not None:
        yield from _record(source, path, around)
        return
    # Lambda's notice of a failed invocation has the event as text (in S3, of a batch) or as an object
    # (of an asynchronous invocation).
    within = [key for key, kind in _EVENT_WITHIN.items() if isinstance(source.get(key), kind)]
    # A message by itself, or in the list that EventBridge Pipes gives.
    within += ["body"] if _is_message(source) and "receiptHandle" in source else []
    for key in within:
        yield from _walk(source[key], dot + key, around)
    if not (streams or keys or within):
        yield from _record(source, path, around)


#: What a message of SQS has beside its body.
_OF_SQS = frozenset(("messageId", "eventSource"))


def _is_message(value: Any) -> bool:
    """Whether ``value`` is a message of SQS, as Lambda and EventBridge Pipes give it: its body is the text
    that somebody put into the queue."""
    return isinstance(value, Mapping) and "body" in value and not _OF_SQS.isdisjoint(value)


_EVENT_WITHIN: dict[str, type | tuple[type, ...]] = {"payload": str, "requestPayload": (dict, list, str)}


def _json(source: str, path: str, around: Around) -> Iterator[KinesisRecord | CaptureError]:
    """One JSON document or many, one after the other, as in logs and the output of repeated CLI calls."""
    from .json_stream import Defect, json_documents  # late: a Lambda handler gets parsed events

    json_follows = source.lstrip("\ufeff\x1e \t\r\n,")[:1] in ("{", "[", "")
    hint = None if json_follows else _TEXT_IS_JSON
    count = -1
    for item in json_documents(source, max_size=len(source) + 1):
        count += not item.in_list
        place = (f"{path}<{count}>" if count else path) + (
            f"[{item.in_list}]" if item.in_list is not None else ""
        )
        if isinstance(item, Defect):
            requirement = "CAP-10" if item.code == "duplicate-member" else "CAP-1"
            yield CaptureError(
                code=item.code, field=place, offset=item.offset, requirement=requirement, hint=hint
            )
        elif isinstance(item.value, (dict, list)):
            yield from _walk(item.value, place, around)
        else:
            yield CaptureError(code="unknown-shape", field=place, offset=item.offset, hint=hint)
    if count < 0 and path:
        # CAP-16, as above
        blank = "it is blank, where the text of an event belongs"
        yield CaptureError(code="json", field=path, offset=0, requirement="CAP-16", hint=blank)


def captured(
    source: Any, *, shard_id: str | None = None, stream: str | None = None
) -> Iterator[KinesisRecord | CaptureError]:
    """Every record of ``source`` in order, lazily: a KinesisRecord, or a CaptureError for one that cannot be
    read. If only its time cannot be read, the KinesisRecord has no time, and the error (timestamp) follows.

    ``source``: anything that `kpl_codec.adapters.shapes` lists, alone or in its event; bytes are the data of
    one record, str is JSON. ``shard_id``, ``stream``: the shard and the stream (its name or ARN) of records
    of which the source does not say it. The errors have ``position`` (0-based, in the order of the source),
    ``field`` (as ``Records[3].kinesis.data``; ``<1>`` is the second JSON document), ``code``, for a broken
    document in a text its ``offset`` in bytes of UTF-8, and, if they can be read, ``sequence_number`` and
    ``record_id``. Raises TypeError for a path or an open file.
    """
    check_arguments("captured", {"shard_id": shard_id, "stream": stream})
    if hasattr(source, "__fspath__") or hasattr(source, "read"):
        raise TypeError(
            f"{type(source).__name__} where the records or their JSON belong: give the file's text, as "
            "Path(...).read_text() has it"
        )
    return _with_positions(_walk(source, "", Around(shard_id, stream)))


def _with_positions(
    items: Iterator[KinesisRecord | CaptureError],
) -> Iterator[KinesisRecord | CaptureError]:
    position = -1
    for item in items:
        if isinstance(item, KinesisRecord):
            position += 1
            yield item
        else:
            position += not is_about_time(item)
            yield item.at(position=position)


def is_about_time(item: KinesisRecord | CaptureError) -> bool:
    """Whether ``item`` is an error about the time of the KinesisRecord before it."""
    return isinstance(item, CaptureError) and item.code == "timestamp"


def kinesis_records(
    source: Any, *, shard_id: str | None = None, stream: str | None = None
) -> Iterator[KinesisRecord]:
    """Like `captured`, but raises the first CaptureError. A record whose time cannot be read comes without a
    time."""
    check_arguments("kinesis_records", {"shard_id": shard_id, "stream": stream})
    return _without_errors(captured(source, shard_id=shard_id, stream=stream))


def _without_errors(items: Iterator[KinesisRecord | CaptureError]) -> Iterator[KinesisRecord]:
    for item in items:
        if isinstance(item, KinesisRecord):
            yield item
        elif not is_about_time(item):
            raise item
