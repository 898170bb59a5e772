"""Captured records in JSON: one value a line, many, or one over many lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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

#: Members that hold records.
_RECORDS: Final = frozenset(("Records", "records", "QueueRecords", "EventStream", "SubscribeToShardEvent"))
#: How many values of unknown shape are kept until it is clear whether the file has records.
_MOST_UNKNOWN: Final = 1000


def read_text(
    blocks: Iterable[bytes], rows: CaptureRows, source: SourceAccount, start: int
) -> Iterator[pa.RecordBatch]:
    """The records of the values in ``blocks`` of a file, which begin at its byte ``start``."""
    values, position, first = _Values(rows, source), start, b""

    def begun() -> Iterator[bytes]:
        nonlocal first
        for block in blocks:
            first = first or block[:16]
            yield block

    try:
        for document in json_documents(begun(), offset=start):
            position, line = document.offset, None if start else document.line
            if isinstance(document, Defect):
                # SPK-14: "A value that is not JSON, not UTF-8, or no capture MUST be reported with its
                # place; values before and after it count."
                # SPK-13: "A JSON value of more than 32 MiB MUST be reported as too-large; of a list each item
                # is a value by itself."
                over = f"{plural(document.end - document.offset, 'byte')} passed over"
                text = f"{document.reason} (byte {document.at}; {over})"
                text += f"; it begins with {first!r}" if first else ""
                first = b""
                rows.unreadable(document.code, text, position, line)
            else:
                values.add(document.value, position, line)
                first = b"" if isinstance(document.value, (dict, list)) else first
            if rows.full():
                yield from rows.take()
    except OSError as error:
        # SPK-12, as in piece_reading.py
        source.stopped = True
        rows.unreadable("file", error_text(error), position)
    values.finish()


class _Values:
    """Adds what the JSON values of one text hold to ``rows``. If all are of unknown shape, they are user
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
