"""The records in JSON values, and other values: shard listings and user data."""

from __future__ import annotations

from typing import Any

from .. import adapters
from ..errors import CaptureError
from .rows import Rows

#: How many values of unknown shape are kept until it is clear whether the file has records.
_HELD = 1000


class Values:
    """Adds what the JSON values of one piece hold to ``rows``. If there are only values of unknown shape,
    they are user data, as Firehose writes to S3, and reported once."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._unknown: list[tuple[str, int, int | None, int]] = []
        self._unknown_count = 0
        self._captures = False  # whether there was anything else
        self._position, self._index = -1, 0

    def add(self, value: Any, position: int, line: int | None) -> None:
        """One value: an answer, an event, a record, or a list of those. The items of a large list come one by
        one, with its position."""
        self._rows.seen = True
        if is_shard_listing(value):
            return
        if position != self._position:
            self._position, self._index = position, 0
        for part in value if isinstance(value, list) else (value,):
            envelope = part if isinstance(part, dict) else {}
            stream, shard_id = _name(envelope, "StreamName"), _name(envelope, "ShardId")
            records = envelope.get("Records")
            arns = [_stream_of(r) for r in records] if stream is None and isinstance(records, list) else []
            for at, item in enumerate(adapters.captured(part, shard_id=shard_id)):
                if not isinstance(item, CaptureError):
                    self._has_captures()
                    name = stream or (arns[at] if at < len(arns) else _stream_of(envelope))
                    self._rows.record(item, name, position, line, self._index)
                elif item.code == "unknown-shape" and not self._captures:
                    self._unknown_count += 1
                    if len(self._unknown) < _HELD:
                        self._unknown.append((str(item), position, line, self._index))
                else:
                    self._has_captures()
                    self._rows.unreadable(item.code, str(item), position, line, self._index)
                self._index += 1

    def finish(self) -> None:
        if self._unknown_count < 2:
            self._has_captures()
            return
        _, position, line, _ = self._unknown[0]
        # SPK-44: "A file of JSON values that are no Kinesis records MUST be one finding: it is user data, as
        # Firehose writes it to S3."
        text = f"{self._unknown_count} JSON values, none of them a Kinesis record: user data, it seems"
        self._rows.unreadable("user-data", text, position, line)

    def _has_captures(self) -> None:
        """From now on values of unknown shape are reported one by one."""
        self._captures = True
        for text, position, line, index in self._unknown:
            self._rows.unreadable("unknown-shape", text, position, line, index)
        more = self._unknown_count - len(self._unknown)
        if more:
            _, position, line, _ = self._unknown[-1]
            self._rows.unreadable("unknown-shape", f"{more} more values of no known shape", position, line)
        self._unknown, self._unknown_count = [], 0


def is_shard_listing(value: Any) -> bool:
    """Whether a value is what ``aws kinesis list-shards`` prints, which is often stored next to captures."""
    shards = value.get("Shards") if isinstance(value, dict) and "Records" not in value else None
    return isinstance(shards, list) and all(isinstance(s, dict) and "ShardId" in s for s in shards)


def _name(envelope: dict[str, Any], key: str) -> str | None:
    """Stream and shard beside ``Records``, if the capture has them: GetRecords itself names neither."""
    value = envelope.get(key, envelope.get(key[0].lower() + key[1:]))
    # JSON can escape half a surrogate pair, which has no UTF-8 form: no column could hold it.
    return value.encode(errors="replace").decode() if isinstance(value, str) and value else None


def _stream_of(record: Any) -> str | None:
    arn = record.get("eventSourceARN") if isinstance(record, dict) else None
    return arn.rpartition("/")[2] if isinstance(arn, str) and ":kinesis:" in arn else None
