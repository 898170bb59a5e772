"""Captured records in text: JSON values with their places, line by line or spread over lines, packed or not.

Memory: one line. A line over MAX_LINE bytes is passed over and reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from .. import adapters
from ..adapters.json_stream import Documents
from ..errors import CaptureError
from .files import PIECE_BYTES, Piece
from .rows import Rows, first_line

#: GetRecords answers have at most 10 MiB of data, so less than 16 MiB in base64 and JSON.
MAX_LINE = 64 * 1024 * 1024


class Prefixed:
    """Bytes read already, then the rest of a stream."""

    def __init__(self, head: bytes, stream: Any, error: OSError | None = None) -> None:
        self._head, self._stream, self._error = head, stream, error

    def read(self, size: int) -> bytes:
        if self._head:
            block, self._head = self._head[:size], self._head[size:]
            return block
        if self._error is not None:
            raise self._error
        return bytes(self._stream.read(size))


def _lines(
    source: Any, offset: int, stop: int | None, number: int | None
) -> Iterator[tuple[int, Any, int | None]]:
    """(offset, line with its end, line number); for a line over MAX_LINE its length stands for it.

    ``source`` stands at ``offset``, where a line starts; lines that start at ``stop`` or later are left.
    """
    parts: list[bytes] = []  # of a line that goes on
    size = 0
    while True:
        block = source.read(1 << 20)
        start = 0
        while block:
            cut = block.find(b"\n", start) + 1
            if not cut:
                break
            if stop is not None and offset >= stop:
                return
            size += cut - start
            parts.append(block[start:cut])
            yield offset, (size if size > MAX_LINE else b"".join(parts)), number
            offset, start, parts, size = offset + size, cut, [], 0
            number = number + 1 if number is not None else None
        if stop is not None and offset >= stop:
            return
        if not block:
            if size:
                yield offset, (size if size > MAX_LINE else b"".join(parts)), number
            return
        size += len(block) - start
        if size > MAX_LINE:
            parts = []
        else:
            parts.append(block[start:])


def read_text(stream: Any, piece: Piece, rows: Rows, *, packed: bool) -> Iterator[pa.RecordBatch]:
    """The records of the values in the piece; of the whole file if it is ``packed``."""
    position = piece.start
    try:
        for position in _read(stream, piece, rows, packed=packed):  # noqa: B007  where a failure would be
            yield from rows.take()
    except OSError as error:
        # SPK-12: see reading.py
        rows.unreadable("file", first_line(error), position)
    # SPK-11: "A file without a byte in it, or of white space alone, also unpacked, MUST be reported as
    # empty."
    if not rows.seen and (packed or piece == Piece(piece.path, 0, piece.size, piece.size)):
        rows.unreadable("empty", "nothing but white space in it", 0)


def _read(stream: Any, piece: Piece, rows: Rows, *, packed: bool) -> Iterator[int]:
    """Adds the records of the values in the piece to ``rows``; gives the offset whenever it is full."""
    offset, number, source = piece.start, 1 if piece.start == 0 else None, stream
    if piece.start:
        stream.seek(piece.start - 1)  # a line that starts exactly here is ours
        skipped = next(_lines(stream, piece.start - 1, None, None), None)
        if skipped is None:
            return
        offset = piece.start - 1 + (skipped[1] if isinstance(skipped[1], int) else len(skipped[1]))
        stream.seek(offset)
    elif packed or piece.stop == piece.size:
        blocks: list[bytes] = []
        size, error = 0, None
        try:
            while size <= PIECE_BYTES:
                blocks.append(stream.read(1 << 20))
                size += len(blocks[-1])
                if not blocks[-1]:
                    break
        except OSError as caught:
            error = caught
        head = b"".join(blocks)
        del blocks
        ended = error is not None or len(head) <= PIECE_BYTES
        if ended and _spread(head):
            # One value over many lines, as `aws kinesis get-records` prints it.
            _add_values(head, 0, 1, rows)
            if error is not None:
                rows.unreadable("file", first_line(error), len(head))
            return
        source = Prefixed(head, stream, error)
    for at, line, count in _lines(source, offset, None if packed else piece.stop, number):
        if isinstance(line, int):
            # SPK-13: "A line of more than 64 MiB MUST be reported as line-too-long and passed over."
            rows.unreadable("line-too-long", f"{line} bytes without a line end", at, count)
        else:
            _add_values(line, at, count, rows)
        if rows.full():
            yield at


def _spread(data: bytes) -> bool:
    """Whether JSON values in ``data`` go over line ends: the first line is the beginning of a value, and
    the next is no value of its own (as it would be behind a line that was cut off)."""
    lines = [line for line in data[: 1 << 20].split(b"\n", 40) if line.strip()][:2]
    if len(lines) < 2 or lines[0].lstrip(b"\xef\xbb\xbf \t\r")[:1] not in (b"{", b"["):
        return False
    return not _is_value(lines[0]) and not _is_value(lines[1])


def _is_value(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8-sig")), dict | list)
    except (ValueError, RecursionError):
        return False


def _add_values(data: bytes, offset: int, line: int | None, rows: Rows) -> None:
    """The records of the JSON values in ``data``, which starts at ``offset``."""
    # SPK-14: "A value that is not JSON, not UTF-8, or no capture MUST be reported with its place; values
    # before and after it count."
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        rows.unreadable("utf-8", "not UTF-8", offset + error.start, line)
        if data.count(b"\n", 0, -1) == 0:
            return
        # Values over many lines: the others are not to suffer.
        text = data.decode("utf-8", "surrogateescape")
    pos = 1 if offset == 0 and text[:1] == "\ufeff" else 0
    documents = Documents()
    told = 0  # up to where ``offset`` and ``line`` have been counted
    while True:
        while pos < len(text) and text[pos] in " \t\r\n,":
            pos += 1
        if pos >= len(text):
            return
        offset += _size(text[told:pos])
        line = line + text.count("\n", told, pos) if line is not None else None
        told, rows.seen = pos, True
        try:
            value, end = documents.read(text, pos)
        except (ValueError, RecursionError) as error:  # also numbers of 5000 digits, nesting without end
            reason = type(error).__name__
            if isinstance(error, json.JSONDecodeError):
                where = offset + _size(text[pos : error.pos])
                reason = f"{error.msg} (byte {where})"
            rows.unreadable("json", reason, offset, line)
            # The next value starts a line, as the broken one did.
            after = [at for at in (text.find("\n{", pos), text.find("\n[", pos)) if at >= 0]
            if not after:
                return
            end = min(after)
        else:
            if documents.repeats:  # CAP-10, as adapters/reading.py
                rows.unreadable("duplicate-member", "a member twice in one object", offset, line)
            else:
                _add_records(value, offset, line, rows)
        pos = end


def _size(text: str) -> int:
    """How many bytes of the file ``text`` was."""
    return len(text.encode("utf-8", "surrogateescape"))


def _add_records(value: Any, position: int, line: int | None, rows: Rows) -> None:
    """The records of one JSON value: an answer, an event, a record, or a list of those."""
    index = 0
    for part in value if isinstance(value, list) else (value,):
        envelope = part if isinstance(part, dict) else {}
        stream, shard_id = _name(envelope, "StreamName"), _name(envelope, "ShardId")
        records = envelope.get("Records")
        arns = [_stream_of(r) for r in records] if stream is None and isinstance(records, list) else []
        for at, item in enumerate(adapters.captured(part, shard_id=shard_id)):
            if isinstance(item, CaptureError):
                rows.unreadable(item.code, str(item), position, line, index)
            else:
                name = stream or (arns[at] if at < len(arns) else _stream_of(envelope))
                rows.record(item, name, position, line, index)
            index += 1


def _name(envelope: dict[str, Any], key: str) -> str | None:
    """What a capture says beside ``Records``: GetRecords itself names neither stream nor shard."""
    value = envelope.get(key, envelope.get(key[0].lower() + key[1:]))
    # JSON can escape half a surrogate pair, which has no UTF-8 form: no column could hold it.
    return value.encode(errors="replace").decode() if isinstance(value, str) and value else None


def _stream_of(record: Any) -> str | None:
    """The stream in the ARN that a Lambda record carries."""
    arn = record.get("eventSourceARN") if isinstance(record, dict) else None
    return arn.rpartition("/")[2] if isinstance(arn, str) and ":kinesis:" in arn else None
