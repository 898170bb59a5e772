"""Captured records in JSON: one value a line, many, or one over many lines, compressed or not.

Memory: `adapters.json_parts` reads a value of any size in parts; a record in it may have 64 MiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ..adapters.json_parts import json_parts
from ..adapters.json_stream import Defect
from .files import Piece
from .rows import Rows, first_line
from .values import Values

#: Bytes at the beginning of a file that tell whether it can be cut into pieces.
_HEAD = 1024 * 1024
_TOKEN = re.compile(rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?|[{}\[\]]')


class Prefixed:
    """Bytes read already, then the rest of a stream."""

    def __init__(self, head: bytes, stream: Any) -> None:
        self._head, self._stream = head, stream

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end."""
        if self._head:
            block, self._head = self._head[:size], self._head[size:]
            return block
        return bytes(self._stream.read(size))


def read_text(stream: Any, piece: Piece, rows: Rows, *, packed: bool) -> Iterator[pa.RecordBatch]:
    """The records of the values in the piece; of the whole file if it is ``packed``."""
    start, stop = piece.start, None if packed or piece.stop == piece.size else piece.stop
    whole = packed or (start == 0 and stop is None)
    if not whole and _starts_within(stream.read(_HEAD)):
        # Such a file cannot be cut: the first piece reads all of it.
        if start:
            return
        stop, whole = None, True
    if not packed:
        stream.seek(max(start - 1, 0))
    values = Values(rows)
    position = start
    try:
        blocks = iter(lambda: stream.read(1 << 20), b"")
        for found in json_parts(blocks, offset=max(start - 1, 0), inside=start > 0, stop=stop):
            position, line = found.offset, None if start else found.line
            if isinstance(found, Defect):
                # SPK-14: "A value that is not JSON, not UTF-8, or no capture MUST be reported with its
                # place; values before and after it count."
                # SPK-13: "A record of more than 64 MiB in a JSON value MUST be reported as too-large; the
                # value itself may be of any size."
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
    if whole and not rows.seen:
        rows.unreadable("empty", "nothing but white space in it", 0)


def _starts_within(head: bytes) -> bool:
    """Whether a line within a JSON value begins with ``{`` or ``[``: where a piece that starts in the middle
    would take part of a value for a value."""
    depth = 0
    for token in _TOKEN.finditer(head):
        bracket = token.group()
        if bracket in (b"{", b"["):
            if depth and head[token.start() - 1 : token.start()] == b"\n":
                return True
            depth += 1
        elif bracket in (b"}", b"]"):
            depth = max(0, depth - 1)
    return False
