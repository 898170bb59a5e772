"""Reads one piece of a file into batches of CAPTURE_SCHEMA. The file's first bytes say what it holds:

    PAR1          Parquet with the column names of the Kinesis connectors
    gzip          what follows here, compressed
    other forms   are named, with what makes a capture of them (`other_forms`)
    anything else aggregated records as they were on the stream (F3 89 9A C2), one behind the other, and JSON
                  that `kpl_codec.adapters` reads: one value a line, many, or one over many lines (`frames`)

No content of a file raises an error: what cannot be read becomes a row with its code and exact place, a byte
offset or a row of Parquet, and reading goes on after it. An account says what became of all of the file.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from .account import Account, SourceAccount
from .capture_rows import CaptureRows, error_text
from .files import HIDDEN, LEFT_OUT, NO_FILE, NOT_A_FILE, UNREADABLE, FileRange, Location
from .frames import read_contents
from .parquet_rows import read_parquet

_GZIP: Final = b"\x1f\x8b"
#: Where a compressed file is damaged, at most so many bytes of text before the damage are lost.
_BLOCK: Final = 1 << 20
#: How many packed bytes are read at a time: what is behind a member is copied for each member.
_PACKED_BLOCK: Final = 1 << 15


def read_piece(
    piece: FileRange, rows: CaptureRows | None = None, account: Account | None = None
) -> Iterator[pa.RecordBatch]:
    """Batches of CAPTURE_SCHEMA. ``rows``: collects the records of a file that is not Parquet. ``account``:
    is told what became of the piece. Raises nothing but MemoryError."""
    rows = rows or CaptureRows(piece.path)
    source = (account or Account()).of(piece.path, max(piece.size, 0))
    for batch in _batches(piece, rows, source):
        source.count(batch)
        yield batch


def _batches(piece: FileRange, rows: CaptureRows, source: SourceAccount) -> Iterator[pa.RecordBatch]:
    if piece.size == HIDDEN:
        source.left_out = True
        rows.unreadable("hidden", f"left out, as are {LEFT_OUT}", 0)
    elif piece.size == NO_FILE:
        source.stopped = True
        rows.unreadable("file", NOT_A_FILE, 0)
    elif piece.size == 0:
        source.stopped = True
        rows.unreadable("empty", "the file is empty", 0)
    else:
        try:
            system, inner = Location(piece.path).filesystem()
            with system.open_input_file(inner) as file:
                yield from _read(file, piece, rows, source)
        except UNREADABLE as error:
            # SPK-12: "A file that cannot be read, or not to its end, MUST be reported as file with
            # the place; what was read before it counts, and so do the other files."
            source.stopped = True
            rows.unreadable("file", error_text(error), piece.start)
    yield from rows.take()


def _read(file: Any, piece: FileRange, rows: CaptureRows, source: SourceAccount) -> Iterator[pa.RecordBatch]:
    head = file.read(4)
    file.seek(0)
    if head == b"PAR1":
        yield from read_parquet(piece, file, rows, source)
        return
    if piece.start:
        return  # the first piece reads all of a file that is not Parquet
    if head.startswith(_GZIP):
        unpacked = _Unpacked(file)
        yield from read_contents(unpacked, rows, source)
        if unpacked.behind is not None:
            # A plain record may be gzip, with others behind it.
            file.seek(unpacked.behind)
            yield from read_contents(file, rows, source, unpacked.behind)
    else:
        yield from read_contents(file, rows, source)
    source.cover(0, file.tell())


class _Unpacked:
    """The text of a gzip file: of all its members, each checked against its CRC and length. ``behind``: where
    in the file something begins that is no member; None if nothing does."""

    def __init__(self, file: Any) -> None:
        self._file, self._packed, self._member = file, b"", zlib.decompressobj(31)
        self.behind: int | None = None

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end. Raises OSError where the file is damaged."""
        try:
            while not self._member.eof or self._next_member():
                packed = self._packed or self._file.read(_PACKED_BLOCK)
                if not packed:
                    raise OSError("the end is missing of what is packed with gzip")
                text = self._member.decompress(packed, min(size, _BLOCK))
                self._packed = self._member.unconsumed_tail
                if text:
                    return text
        except zlib.error as error:
            raise OSError(str(error)) from None
        return b""

    def _next_member(self) -> bool:
        """Whether another member is behind the last one. Zeros between them are nothing (as in gzip)."""
        if self.behind is not None:
            return False
        packed = self._member.unused_data.lstrip(b"\0")
        while len(packed) < len(_GZIP) and (block := self._file.read(_PACKED_BLOCK)):
            packed = (packed + block).lstrip(b"\0")
        if packed.startswith(_GZIP):
            self._member, self._packed = zlib.decompressobj(31), packed
            return True
        if packed:
            self.behind = self._file.tell() - len(packed)
        return False
