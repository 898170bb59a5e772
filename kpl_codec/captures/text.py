"""Captured records in JSON: one value a line, many, or one over many lines. The bounds of a piece are moved
to where a value begins for certain, so each value is in one piece, whatever the file holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from ..adapters.json_stream import Defect, json_documents
from .files import Piece
from .rows import Rows, first_line
from .values import Values

_BLOCK: Final = 1 << 20
#: Bytes before a bracket that are looked at.
_LOOK_BACK: Final = 16
#: Where `json_stream` would begin a value.
_START: Final = re.compile(rb"[\n\x1e][{\[]")


def read_text(stream: Any, piece: Piece, rows: Rows, *, packed: bool) -> Iterator[pa.RecordBatch]:
    """The records of the values that begin in the piece; of the whole file if it is ``packed``."""
    start = 0 if packed else _begin(stream, piece)
    if start is None:
        return
    if packed or piece.stop == piece.size:
        blocks = _to_end(stream)
    else:
        blocks = _to_cut(stream, start, piece.stop)
    values = Values(rows)
    position = start
    try:
        for found in json_documents(blocks, offset=start):
            position, line = found.offset, None if start else found.line
            if isinstance(found, Defect):
                # SPK-14: "A value that is not JSON, not UTF-8, or no capture MUST be reported with its
                # place; values before and after it count."
                # SPK-13: "A JSON value of more than 32 MiB MUST be reported as too-large; of a list each item
                # is a value by itself."
                rows.unreadable(found.code, f"{found.reason} (byte {found.at})", position, line)
            else:
                values.add(found.value, position, line)
            if rows.full():
                yield from rows.take()
    except OSError as error:
        # SPK-12, as in reading.py
        rows.unreadable("file", first_line(error), position)
    values.finish()
    # SPK-11: "A file without a byte in it, or of white space alone, also unpacked, MUST be reported as
    # empty."
    if start == 0 and not rows.seen:
        rows.unreadable("empty", "nothing but white space in it", 0)


def _begin(stream: Any, piece: Piece) -> int | None:
    """Where the first value of a piece begins for certain, and the stream stands then; None if none does."""
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
    """The blocks of a stream that stands at byte ``at``, to the first cut at or after byte ``first``."""
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
    """Where, at ``first`` or later, a value begins that is not within another, whatever stands before."""
    # SPK-10: "Every value in every file at or under a path MUST be read exactly once, however files are cut
    # into pieces; a path that is not there, or holds no file, is refused at once."
    # Within a JSON value a { or [ stands behind a comma, a colon or a [; texts have no line feed in them.
    for found in _START.finditer(text, max(first - 1, 0)):
        bracket = found.end() - 1
        head = text[max(0, bracket - _LOOK_BACK) : bracket].rstrip(b" \t\r\n")
        if bracket >= first and head and head[-1:] not in (b",", b":", b"["):
            return bracket
    return None
