"""Captured records in JSON: one value a line, many, or one over many lines. The bounds of a piece move to
a place where a value certainly begins, so each value is in exactly one piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from .. import adapters
from ..adapters.events_in import is_about_time
from ..adapters.json_stream import Defect, json_documents
from ..adapters.shapes import shape_of
from ..errors import CaptureError
from ..rendering.labels import plural
from .account import SourceAccount
from .capture_rows import CaptureRows, error_text
from .files import FileRange

_NO_CAPTURE: Final = "it is no capture that is known; if it is base64, decode it first (base64 -d)"
#: Members that hold records.
_RECORDS: Final = frozenset(("Records", "records", "QueueRecords", "EventStream", "SubscribeToShardEvent"))
#: How many values of unknown shape are kept until it is clear whether the file has records.
_MOST_UNKNOWN: Final = 1000
_BLOCK: Final = 1 << 20
#: How many bytes before a bracket are examined.
_LOOK_BACK: Final = 16
#: Where `json_stream` would begin a value.
_START: Final = re.compile(rb"[\n\x1e][{\[]")


def read_text(
    stream: Any, piece: FileRange, rows: CaptureRows, source: SourceAccount, *, packed: bool
) -> Iterator[pa.RecordBatch]:
    """The records of the values that begin in the piece; of the whole file if it is ``packed``."""
    start = 0 if packed else _begin(stream, piece)
    if start is None:
        return
    if packed or piece.stop == piece.size:
        blocks = _to_end(stream)
    else:
        blocks = _to_cut(stream, start, piece.stop)
    values = _Values(rows, source)
    position, end = start, start

    def counted() -> Iterator[bytes]:
        nonlocal end
        for block in blocks:
            end += len(block)
            yield block

    try:
        for document in json_documents(counted(), offset=start):
            position, line = document.offset, None if start else document.line
            if isinstance(document, Defect):
                # SPK-14: "A value that is not JSON, not UTF-8, or no capture MUST be reported with its
                # place; values before and after it count."
                # SPK-13: "A JSON value of more than 32 MiB MUST be reported as too-large; of a list each item
                # is a value by itself."
                hint = f": {_NO_CAPTURE}" if document.at == document.offset else ""
                over = f"{plural(document.end - document.offset, 'byte')} passed over"
                text = f"{document.reason} (byte {document.at}; {over}){hint}"
                rows.unreadable(document.code, text, position, line)
            else:
                values.add(document.value, position, line)
            if rows.full():
                yield from rows.take()
        if not packed:
            source.cover(start, end)
    except OSError as error:
        # SPK-12, as in piece_reading.py
        source.stopped = True
        rows.unreadable("file", error_text(error), position)
    values.finish()
    # SPK-11: "A file without a byte in it, or of white space alone, also unpacked, MUST be reported as
    # empty."
    if start == 0 and not rows.has_rows:
        rows.unreadable("empty", "nothing but white space in it", 0)


def _begin(stream: Any, piece: FileRange) -> int | None:
    """The place where the first value of a piece certainly begins, with the stream at that byte; None if
    there is no such place."""
    at = max(0, piece.start - _LOOK_BACK)
    stream.seek(at)
    for block in _to_cut(stream, at, piece.start) if piece.start else ():
        at += len(block)
        if at >= piece.stop:
            return None
    stream.seek(at)
    return at


def _to_end(stream: Any) -> Iterator[bytes]:
    return iter(lambda: stream.read(_BLOCK), b"")


def _to_cut(stream: Any, at: int, first: int) -> Iterator[bytes]:
    """The blocks of a stream from its present byte ``at`` to the first cut (`_cut`) at or after byte
    ``first``."""
    before = b""
    for block in _to_end(stream):
        text = before + block
        begin = at - len(before)
        cut = _cut(text, max(first - begin, len(before)))
        if cut is not None:
            yield block[: cut - len(before)]
            return
        yield block
        at += len(block)
        before = text[-_LOOK_BACK:]


def _cut(text: bytes, first: int) -> int | None:
    """The first place from ``first`` on where a value begins that is certainly not within another one."""
    # SPK-10: "Every value in every file at or under a path MUST be read exactly once, however files are cut
    # into pieces; a path that is not there, or holds no file, is refused at once."
    # Within a JSON value a { or [ stands behind a comma, a colon or a [; texts have no line feed in them.
    for match in _START.finditer(text, max(first - 1, 0)):
        bracket = match.end() - 1
        head = text[max(0, bracket - _LOOK_BACK) : bracket].rstrip(b" \t\r\n")
        if bracket >= first and head and head[-1:] not in (b",", b":", b"["):
            return bracket
    return None


class _Values:
    """Adds what the JSON values of one piece hold to ``rows``. If all are of unknown shape, they are user
    data, as Firehose writes to S3, and reported once."""

    def __init__(self, rows: CaptureRows, source: SourceAccount) -> None:
        self._rows, self._source = rows, source
        self._unknown: list[tuple[str, int, int | None, int | None]] = []
        self._unknown_count = 0
        self._captures = False  # whether a value was a capture, or could not be read
        self._index = 0

    def add(self, value: Any, position: int, line: int | None) -> None:
        """One value: a response, an event, a record, or a list of those."""
        self._rows.has_rows = True
        if _is_shard_listing(value):
            self._source.empty += 1
            return
        self._index = 0
        self._source.empty += value == []
        members = value.values() if isinstance(value, dict) else ()
        several = isinstance(value, list) or any(isinstance(member, list) for member in members)
        for part in value if isinstance(value, list) else (value,):
            found = False
            for item in adapters.captured(part):
                found = True
                index = self._index if several else None
                if is_about_time(item):
                    index = self._index - 1 if several else None
                    self._rows.unreadable("timestamp", str(item), position, line, index)
                    continue
                if not isinstance(item, CaptureError):
                    self._captures = True
                    self._rows.record(item, item.stream, position, line, index)
                elif item.code == "unknown-shape" and not self._captures:
                    self._unknown_count += 1
                    if len(self._unknown) < _MOST_UNKNOWN:
                        self._unknown.append((str(item), position, line, index))
                else:
                    self._captures = True
                    self._rows.unreadable(item.code, str(item), position, line, index)
                self._index += 1
            self._source.empty += not found

    def finish(self) -> None:
        if self._unknown_count > 1 and not self._captures:
            _, position, line, _ = self._unknown[0]
            # SPK-44: "A file of JSON values that are no Kinesis records MUST be one finding: it is user data,
            # as Firehose writes it to S3."
            values = plural(self._unknown_count, "JSON value")
            text = f"{values}, none of them a Kinesis record: user data, it seems"
            self._rows.unreadable("user-data", text, position, line)
            return
        for text, position, line, index in self._unknown:
            self._rows.unreadable("unknown-shape", text, position, line, index)
        more = self._unknown_count - len(self._unknown)
        if more:
            text = f"{plural(more, 'more value')} of no known shape"
            self._rows.unreadable("unknown-shape", text, position, line)


def _is_shard_listing(value: Any) -> bool:
    """Whether ``aws kinesis list-shards`` or ``kpl-codec shards list --json`` prints it: both are often
    stored next to captures."""
    shards = value.get("Shards", value.get("shards")) if isinstance(value, dict) else None
    return (
        isinstance(shards, list)
        and shards != []
        and shape_of(value) is None
        and all(isinstance(each, dict) and not _RECORDS & each.keys() for each in (value, *shards))
        and all({"ShardId", "shardId"} & shard.keys() for shard in shards)
    )
