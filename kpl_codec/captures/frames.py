"""Reads files of aggregated records as they were on the stream, one behind the other, and of JSON.

An aggregated record is found by the magic, and its end by the digest; no text in UTF-8 has the magic in it.
What stands before, between and behind sound aggregated records is read as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from ..format.codec import is_aggregated
from ..format.frame import FIRST_TAGS, sound_end
from ..format.limits import MAGIC
from ..format.records import KinesisRecord
from ..rendering.labels import plural
from .account import SourceAccount
from .capture_rows import CaptureRows, error_text
from .other_forms import other_form
from .text import read_text

#: Bytes of a file that is one Kinesis record: the largest that Kinesis takes are 10 MiB.
MAX_RAW = 16 * 1024 * 1024
#: How many bytes are searched at a time, and of a file's beginning for what it is.
_BLOCK: Final = 1 << 20
_LINE_ENDS: Final = re.compile(rb"[\r\n]*")
#: An aggregated record begins with the magic and the tag of its first field.
_START: Final = re.compile(re.escape(MAGIC) + b"[" + b"".join(FIRST_TAGS) + b"]")
#: The budget for attempts that find no sound aggregated record, in bytes that are hashed in vain: for any
#: file, and more for each of its bytes. An attempt, and each user record in it, counts as so many bytes.
_BUDGET: Final = 1 << 30
_BUDGET_OF_A_BYTE: Final = 64
_ATTEMPT_COST, _FIELD_COST = 4096, 512
#: How many places are tried in the beginning of a file that seems to be of another form.
_MOST_TRIED: Final = 99


class _Window:
    """The bytes of a file from byte ``position`` on, in ``data`` from ``at`` on. ``end``: of the sound
    aggregated record that begins there, if `to_next` has found one. ``gave_up``: the budget is spent, and
    nothing is searched for any more."""

    def __init__(self, stream: Any, position: int) -> None:
        self.data, self.at, self.position = b"", 0, position
        self.end: int | None = None
        self.ended = self.gave_up = False
        self._error: OSError | None = None
        self._stream, self._budget = stream, _BUDGET

    def fill(self, wanted: int) -> bool:
        """Have at least so many bytes, if there are so many. False if there is none."""
        if not self.ended and len(self.data) - self.at < wanted:
            blocks, size = [self.data[self.at :]], len(self.data) - self.at
            self.at = 0
            try:
                while size < 2 * wanted and not self.ended:
                    blocks.append(self._stream.read(_BLOCK))
                    size += len(blocks[-1])
                    self.ended = not blocks[-1]
            except OSError as error:
                self._error, self.ended = error, True
            self.data = b"".join(blocks)
        return self.at < len(self.data)

    def take(self, end: int) -> bytes:
        """The bytes up to ``end`` of ``data``, which are used up."""
        data = self.data[self.at : end]
        self.at, self.position = end, self.position + len(data)
        self._budget += _BUDGET_OF_A_BYTE * len(data)
        return data

    def sound_end(self, *, whatever_follows: bool) -> int | None:
        """The end of the sound aggregated record that begins at ``at``; None if none begins there."""
        if self.gave_up or not self.data.startswith(MAGIC, self.at):
            return None
        self.fill(MAX_RAW)
        if self.position == 0 and self.ended and is_aggregated(self.data):
            return len(self.data)
        budget = self._budget
        self._spend(_ATTEMPT_COST)
        end = sound_end(self.data, self.at, whatever_follows=whatever_follows, spend=self._spend)
        if end is not None:
            self._budget = budget
        return end

    def _spend(self, size: int) -> bool:
        self._budget -= size + _FIELD_COST
        self.gave_up |= self._budget < 0
        return not self.gave_up

    def to_next(self) -> Iterator[bytes]:
        """The bytes before the next sound aggregated record, or all that there are, in blocks; they are used
        up. Raises OSError where the stream does."""
        self.end, tried = None, 0
        while self.fill(_BLOCK):
            start = None if self.gave_up else _START.search(self.data, self.at + tried)
            if start is not None:
                if start.start() > self.at:
                    yield self.take(start.start())
                self.end = self.sound_end(whatever_follows=True)
                if self.end is not None:
                    return
                tried = 1
                continue
            end, tried = len(self.data) - (0 if self.ended else len(MAGIC)), 0
            if end > self.at:
                yield self.take(end)
        if self._error is not None:
            raise self._error


def read_contents(
    stream: Any, rows: CaptureRows, source: SourceAccount, position: int = 0
) -> Iterator[pa.RecordBatch]:
    """The records of a stream whose first byte is byte ``position`` of its file."""
    # CAP-14: "Sound aggregated records one behind the other in one file, with or without line ends between,
    # MUST each be read, whatever is around them; other bytes MUST be read as JSON or named with their place,
    # also those that are not searched because too much is broken."
    window = _Window(stream, position)
    window.fill(_BLOCK)
    head = window.data[:_BLOCK]
    form = other_form(head)
    if form is not None and (form.holds_records or not _has_sound_record(head)):
        source.stopped = True
        rows.unreadable("other-form", f"the file is {form.text}", position)
        return
    while window.fill(_BLOCK):
        line_ends = _LINE_ENDS.match(window.data, window.at)
        if window.position and line_ends is not None and line_ends.group():
            window.take(line_ends.end())
            continue
        end = window.sound_end(whatever_follows=False)
        if end is None:
            if window.data.startswith(MAGIC, window.at):
                _add_broken(window, rows, source)
            else:
                yield from read_text(window.to_next(), rows, source, window.position)
            end = window.end
        if end is not None:
            begin = window.position
            rows.record(KinesisRecord(None, window.take(end)), None, begin)
        if rows.full():
            yield from rows.take()
    # SPK-11: "A file without a byte in it, or of white space alone, also unpacked, MUST be reported as
    # empty."
    if not rows.has_rows:
        rows.unreadable("empty", "nothing but white space in it", position)


def _has_sound_record(head: bytes) -> bool:
    starts = islice(_START.finditer(head), _MOST_TRIED)
    return any(sound_end(head, start.start(), whatever_follows=True) for start in starts)


def _add_broken(window: _Window, rows: CaptureRows, source: SourceAccount) -> None:
    """The bytes from a broken aggregated record to the next sound one."""
    begin, data = window.position, bytearray()
    try:
        for block in window.to_next():
            data += block[: MAX_RAW + 1 - len(data)]
    except OSError as error:
        # SPK-12, as in piece_reading.py
        source.stopped = True
        rows.unreadable("file", error_text(error), begin)
        return
    size = window.position - begin
    if size > MAX_RAW:
        rows.unreadable("file", f"{plural(size, 'byte')}, in which no sound aggregated record begins", begin)
    elif window.gave_up:
        text = f"{plural(size, 'byte')}: too many broken aggregated records to search for a sound one"
        rows.unreadable("file", text, begin)
    elif size:
        rows.record(KinesisRecord(None, bytes(data)), None, begin)
