"""Reads one piece of a file into batches of CAPTURE_SCHEMA. The file's first bytes say what it holds:

    PAR1          Parquet with the column names of the Kinesis connectors
    gzip          aggregated records or JSON, compressed
    F3 89 9A C2   the data of one aggregated record as it was on the stream, or of several one after another,
                  with or without line ends between them
    other forms   are named, with the command that makes a capture of them (`other_forms`)
    anything else JSON that `kpl_codec.adapters` reads: one value a line, many, or one over many lines

No content of a file raises an error: what cannot be read becomes a row with its code and exact place, a byte
offset or a row of Parquet, and reading goes on after it. An account says what became of all of the file.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any, Final

import pyarrow as pa

from ..limits import MAGIC
from .account import Account, SourceAccount
from .capture_rows import CaptureRows, error_text
from .files import HIDDEN, LEFT_OUT, NO_FILE, NOT_A_FILE, UNREADABLE, FileRange, Location
from .frames import read_frames
from .other_forms import looks_like_json, other_form
from .parquet_rows import read_parquet
from .text import read_text

#: Bytes at a file's start in which the magic shows that it holds aggregated records: 1 MiB, the usual largest
#: record of Kinesis.
_HEAD: Final = 1 << 20
#: Where a compressed file is damaged, at most so many bytes of text before the damage are lost.
_BLOCK: Final = 1 << 20


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
    head = file.read(_HEAD)
    file.seek(0)
    if head.startswith(b"PAR1"):
        yield from read_parquet(piece, file, rows, source)
    elif head.startswith(b"\x1f\x8b"):
        # What follows cannot be cut: the first piece reads all of the file.
        if not piece.start:
            yield from _read_whole(_Unzipped(file), _beginning(head), piece, rows, source)
            source.cover(0, file.tell())
    elif _holds_frames(head):
        if not piece.start:
            source.cover(0, (yield from read_frames(file, rows, source)))
    else:
        yield from _read_text(file, head, piece, rows, source, packed=False)


def _read_whole(
    stream: Any, head: bytes, piece: FileRange, rows: CaptureRows, source: SourceAccount
) -> Iterator[pa.RecordBatch]:
    """What a compressed file that begins with ``head`` holds."""
    if _holds_frames(head):
        yield from read_frames(stream, rows, source)
    else:
        yield from _read_text(stream, head, piece, rows, source, packed=True)


def _read_text(
    stream: Any, head: bytes, piece: FileRange, rows: CaptureRows, source: SourceAccount, *, packed: bool
) -> Iterator[pa.RecordBatch]:
    form = other_form(head)
    if form is None:
        yield from read_text(stream, piece, rows, source, packed=packed)
        return
    # Only the piece that names the file stops it: where that could read it, the file was changed since, and
    # the account does not close.
    if packed or not piece.start:
        source.stopped = True
        rows.unreadable("other-form", f"the file is {form}", 0)


def _holds_frames(head: bytes) -> bool:
    """Whether a file that begins with these bytes holds aggregated records, of which the first may be broken.
    No UTF-8 text has the magic in it."""
    return head.startswith(MAGIC) or (
        MAGIC in head and not looks_like_json(head) and other_form(head) is None
    )


class _Unzipped:
    """The text of a gzip file: of all its members, each checked against its CRC and length."""

    def __init__(self, file: Any) -> None:
        self._file = gzip.GzipFile(fileobj=file)

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end. Raises OSError where the file is damaged."""
        try:
            return self._file.read1(min(size, _BLOCK))
        except (EOFError, zlib.error) as error:
            raise OSError(str(error)) from None


def _beginning(head: bytes) -> bytes:
    """How the text begins of a gzip file that begins with ``head``."""
    text, begun = b"", _Unzipped(BytesIO(head))
    with suppress(OSError):  # `head` is cut off
        while len(text) < _HEAD and (block := begun.read(_HEAD)):
            text += block
    return text
