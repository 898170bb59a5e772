"""Reads files of aggregated records, one behind the other, as they were on the stream.

Only the digest shows where an aggregated record ends. After a broken record the next one is searched for: the
magic, and a message with its digest.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, Final

import pyarrow as pa

from ..format.codec import is_aggregated
from ..format.frame import FIRST_TAGS, sound_end
from ..format.records import KinesisRecord
from ..limits import MAGIC
from ..rendering.labels import plural
from .account import SourceAccount
from .capture_rows import CaptureRows, error_text

#: Bytes of a file that is one Kinesis record: the largest that Kinesis takes are 10 MiB.
MAX_RAW = 16 * 1024 * 1024
_LINE_ENDS: Final = re.compile(rb"[\r\n]*")
#: An aggregated record begins with the magic and the tag of its first field.
_START: Final = re.compile(re.escape(MAGIC) + b"[" + b"".join(FIRST_TAGS) + b"]")
#: The budget for attempts that find no sound aggregated record, in bytes that are hashed in vain: for any
#: file, and more for each of its bytes. An attempt, and each user record in it, counts as so many bytes.
_BUDGET: Final = 1 << 30
_BUDGET_OF_A_BYTE: Final = 64
_ATTEMPT_COST, _FIELD_COST = 4096, 512


class _Window:
    """The bytes of a file from byte ``position`` on: in ``data`` from ``at`` on, at least MAX_RAW of them if
    there are so many. ``gave_up``: the budget is spent, and nothing is searched for any more."""

    def __init__(self, stream: Any) -> None:
        self.data, self.at, self.position = b"", 0, 0
        self.ended = self.gave_up = False
        self.error: OSError | None = None
        self._stream = stream
        self._budget = _BUDGET

    def fill(self) -> bool:
        """Read more of the file if needed. False at its end, or after an ``error``."""
        if not self.ended and len(self.data) - self.at <= MAX_RAW:
            blocks, size = [self.data[self.at :]], len(self.data) - self.at
            self.at = 0
            try:
                while size <= 2 * MAX_RAW and not self.ended:
                    blocks.append(self._stream.read(1 << 22))
                    size += len(blocks[-1])
                    self.ended = not blocks[-1]
            except OSError as error:
                self.error, self.ended = error, True
            self.data = b"".join(blocks)
        return self.at < len(self.data)

    def take(self, end: int) -> bytes:
        """The bytes up to ``end`` of ``data``, which are used up."""
        data = self.data[self.at : end]
        self.at, self.position = end, self.position + len(data)
        self._budget += _BUDGET_OF_A_BYTE * len(data)
        return data

    def sound_end(self) -> int | None:
        """The end of the sound aggregated record that begins at ``at``; None if none begins there."""
        if self.position == 0 and self.ended and is_aggregated(self.data):
            return len(self.data)
        budget = self._budget
        self._spend(_ATTEMPT_COST)
        for whatever_follows in (False, True):
            if self.gave_up:
                return None
            end = sound_end(self.data, self.at, whatever_follows=whatever_follows, spend=self._spend)
            if end is not None:
                self._budget = budget
                return end
        return None

    def _spend(self, size: int) -> bool:
        self._budget -= size + _FIELD_COST
        self.gave_up |= self._budget < 0
        return not self.gave_up

    def next_start(self) -> int:
        """The next place after ``at`` where an aggregated record may begin, or the end of ``data``."""
        start = None if self.gave_up else _START.search(self.data, self.at + 1)
        if start is not None:
            return start.start()
        return len(self.data) if self.ended else len(self.data) - len(MAGIC)


def read_frames(
    stream: Any, rows: CaptureRows, source: SourceAccount
) -> Generator[pa.RecordBatch, None, int]:
    """The aggregated records of a file, one behind the other. Returns how many bytes were read or named."""
    # CAP-14: "Sound aggregated records one behind the other in one file, with or without line ends between,
    # MUST each be read, whatever is broken around them; other bytes MUST be named with their place, also
    # those that are not searched because too much is broken."
    window = _Window(stream)
    broken, broken_size, broken_at = bytearray(), 0, 0
    while window.fill():
        if broken_size == 0:
            line_ends = _LINE_ENDS.match(window.data, window.at)
            if window.position and line_ends is not None and line_ends.group():
                window.take(line_ends.end())
                continue
            broken_at = window.position
        end = window.sound_end()
        if end is None:
            piece = window.take(window.next_start())
            broken_size += len(piece)
            broken += piece[: MAX_RAW + 1 - len(broken)]
            continue
        _add_broken(rows, bytes(broken), broken_size, broken_at)
        broken, broken_size = bytearray(), 0
        position = window.position
        rows.record(KinesisRecord(None, window.take(end)), None, position)
        if rows.full():
            yield from rows.take()
    if window.error is not None:
        # SPK-12, as in piece_reading.py
        source.stopped = True
        rows.unreadable("file", error_text(window.error), broken_at if broken_size else window.position)
    elif broken_size and window.gave_up:
        text = f"{plural(broken_size, 'byte')}: too many broken aggregated records to search for a sound one"
        rows.unreadable("file", text, broken_at)
    else:
        _add_broken(rows, bytes(broken), broken_size, broken_at)
    return window.position


def _add_broken(rows: CaptureRows, data: bytes, size: int, position: int) -> None:
    """The ``size`` bytes between sound aggregated records, which begin with ``data``."""
    if size <= MAX_RAW and data.startswith(MAGIC):
        rows.record(KinesisRecord(None, data), None, position)
    elif size:
        none = "in which no sound aggregated record begins" if size > MAX_RAW else "no aggregated record"
        rows.unreadable("file", f"{plural(size, 'byte')}, {none}", position)
