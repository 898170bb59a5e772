"""Reads one piece of a file into batches of CAPTURE_SCHEMA. The file's first bytes say what it holds:

    PAR1                  Parquet with the column names of the Kinesis connectors
    gzip, bz2, zstd, lz4  data of Kinesis records or JSON, compressed
    F3 89 9A C2           the data of one aggregated record as it was on the stream, or of several one after
                          another, with or without line ends between them
    anything else         JSON that `kpl_codec.adapters` reads: one value a line, many, or one over many lines

No content of a file raises an error: what cannot be read becomes a row with its code and exact place, a byte
offset or a row of Parquet, and reading goes on after it.
"""

from __future__ import annotations

import bz2
import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from math import isnan
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..adapters.shapes import (
    MILLISECONDS,
    arrival,
    optional_text,
    standard_name,
    sub_sequence_number,
    time_error,
)
from ..errors import CaptureError
from ..format.codec import is_aggregated
from ..format.frame import FIRST_TAGS, sound_end
from ..format.records import KinesisRecord
from ..limits import MAGIC
from ..rendering.labels import plural
from .capture_rows import CAPTURE_SCHEMA, CaptureRows, capture_batch, error_text
from .files import HIDDEN, LEFT_OUT, NO_FILE, FileRange, Location
from .text import read_text

#: Microseconds since 1970.
_YEAR_1, _YEAR_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000
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
#: How a file of JSON begins.
_JSON: Final = re.compile(rb"(\xef\xbb\xbf)?[ \t\r\n,\x1e]*[{\[]")
#: Bytes at a file's start in which the magic shows that it holds aggregated records: 1 MiB, the usual largest
#: record of Kinesis.
_HEAD: Final = 1 << 20
#: About how many bytes a batch of rows from Parquet has.
_BATCH_BYTES = 4 * 1024 * 1024
#: The first bytes of a compressed file, by compression; the file's name does not matter.
_PACKED: Final = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}


def read_piece(piece: FileRange, rows: CaptureRows | None = None) -> Iterator[pa.RecordBatch]:
    """Batches of CAPTURE_SCHEMA. ``rows``: collects the records of a file that is not Parquet. Raises nothing
    but MemoryError."""
    rows = rows or CaptureRows(piece.path)
    if piece.size == 0:
        rows.unreadable("empty", "the file is empty", 0)
    elif piece.size == HIDDEN:
        rows.unreadable("hidden", f"left out, as are {LEFT_OUT}", 0)
    elif piece.size == NO_FILE:
        rows.unreadable("file", "not a file: a pipe, or a link to nothing", 0)
    else:
        try:
            system, inner = Location(piece.path).filesystem()
            with system.open_input_file(inner) as source:
                yield from _read(source, piece, rows)
        except (OSError, pa.ArrowException) as error:
            # SPK-12: "A file that cannot be read, or not to its end, MUST be reported as file with
            # the place; what was read before it counts, and so do the other files."
            rows.unreadable("file", error_text(error), piece.start)
    yield from rows.take()


def _read(source: Any, piece: FileRange, rows: CaptureRows) -> Iterator[pa.RecordBatch]:
    head = source.read(_HEAD)
    source.seek(0)
    if head.startswith(b"PAR1"):
        yield from _read_parquet(piece, source, rows)
        return
    kind = next((kind for start, kind in _PACKED.items() if head.startswith(start)), None)
    if kind is None and not _holds_frames(head):
        yield from read_text(source, piece, rows, head, packed=False)
        return
    # What follows cannot be cut: the first piece reads all of the file.
    if piece.start:
        return
    if kind is None:
        yield from read_frames(source, rows)
        return
    stream, beginning = _Unpacked(source, kind), b""
    with suppress(OSError):  # `head` is cut off
        begun = _Unpacked(pa.BufferReader(head), kind)
        while len(beginning) < _HEAD and (block := begun.read(_HEAD)):
            beginning += block
    if _holds_frames(beginning):
        yield from read_frames(stream, rows)
    else:
        yield from read_text(stream, piece, rows, beginning, packed=True)


def _holds_frames(head: bytes) -> bool:
    """Whether a file that begins with these bytes holds aggregated records, of which the first may be broken.
    No UTF-8 text has the magic in it."""
    return head.startswith(MAGIC) or (MAGIC in head and not _JSON.match(head))


class _Unpacked:
    """The bytes of a compressed file."""

    def __init__(self, source: Any, kind: str) -> None:
        # Where the file is damaged, at most one block of data before the damage is lost.
        self._block = 1 << 12 if kind in ("zstd", "lz4") else 1 << 20
        if kind == "gzip":
            self._read: Any = gzip.GzipFile(fileobj=source).read1
        elif kind == "bz2":
            self._read = bz2.BZ2File(source).read1
        else:
            self._read = pa.CompressedInputStream(source, kind).read

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end. Raises OSError where the file is damaged."""
        try:
            return bytes(self._read(min(size, self._block)))
        except (EOFError, zlib.error, pa.ArrowException) as error:
            raise OSError(str(error)) from None


# -- aggregated records one behind the other ------------------------------------------------------
# Only the digest shows where an aggregated record ends. After a broken record the next one is searched for:
# the magic, and a message with its digest.


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


def read_frames(stream: Any, rows: CaptureRows) -> Iterator[pa.RecordBatch]:
    """The aggregated records of a file, one behind the other."""
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
        rows.record(KinesisRecord(None, window.take(end)), None, position, None, 0)
        if rows.full():
            yield from rows.take()
    if window.error is not None:
        # SPK-12, as above
        rows.unreadable("file", error_text(window.error), broken_at if broken_size else window.position)
    elif broken_size and window.gave_up:
        text = f"{plural(broken_size, 'byte')}: too many broken aggregated records to search for a sound one"
        rows.unreadable("file", text, broken_at)
    else:
        _add_broken(rows, bytes(broken), broken_size, broken_at)


def _add_broken(rows: CaptureRows, data: bytes, size: int, position: int) -> None:
    """The ``size`` bytes between sound aggregated records, which begin with ``data``."""
    if size <= MAX_RAW and data.startswith(MAGIC):
        rows.record(KinesisRecord(None, data), None, position, None, 0)
    elif size:
        none = "in which no sound aggregated record begins" if size > MAX_RAW else "no aggregated record"
        rows.unreadable("file", f"{plural(size, 'byte')}, {none}", position)


# -- Parquet --------------------------------------------------------------------------------------


def _read_parquet(piece: FileRange, source: Any, rows: CaptureRows) -> Iterator[pa.RecordBatch]:
    """The row groups whose middle is in the piece."""
    try:
        # Pages are read when needed: a row group may be larger than the memory.
        file = pq.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False)
        columns = _columns(file.schema_arrow)
    except (pa.ArrowException, OSError, CaptureError) as error:
        if piece.start == 0:
            code = error.code if isinstance(error, CaptureError) else "file"
            rows.unreadable(code, error_text(error), 0)
        return
    row = 0
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        chunk = group.column(0)
        middle = (chunk.dictionary_page_offset or chunk.data_page_offset) + group.total_byte_size // 2
        count, first, row = group.num_rows, row, row + group.num_rows
        last = number == file.metadata.num_row_groups - 1 and piece.stop == piece.size
        if not (piece.start <= middle < piece.stop or (last and middle >= piece.stop)):
            continue
        read, names = 0, list(columns.values())
        try:
            for batch in file.iter_batches(_batch_rows(group), row_groups=[number], columns=names):
                try:
                    yield _capture_columns(batch, columns, piece.path, first + read)
                except pa.ArrowException:
                    _one_by_one(batch, columns, rows, first + read)
                    yield from rows.take()
                read += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            text = f"{plural(count - read, 'row')} of row group {number}: {error_text(error)}"
            rows.unreadable("file", text, first + read)
            yield from rows.take()
    if row == 0 and piece.start == 0:
        rows.unreadable("empty", "no rows", 0)


def _batch_rows(group: pq.RowGroupMetaData) -> int:
    """Rows of about 4 MiB; a multiple of 32 if they are more: so many frames are hashed at a time."""
    rows = max(1, min(512, int(group.num_rows) * _BATCH_BYTES // max(1, int(group.total_byte_size))))
    return rows - rows % 32 or rows


def _columns(schema: pa.Schema) -> dict[str, str]:
    """The file's name of each column by this library's name. Raises CaptureError without a column
    ``data``."""
    pairs = ((standard_name(name), name) for name in reversed(schema.names))
    names_in_file = {ours: name for ours, name in pairs if ours is not None}
    # SPK-15: "A Parquet file without a column data, or with one that is not binary, MUST be reported: text
    # may be base64 or not."
    if "data" not in names_in_file:
        hint = f"there are {', '.join(schema.names)[:200]}"
        raise CaptureError(code="no-data-column", field="the column data", hint=hint)
    for ours, name in names_in_file.items():
        same = [each for each in schema.names if each == name or standard_name(each) == ours == "data"]
        if len(same) > 1:
            hint = f"there are several: {', '.join(same)}"
            raise CaptureError(code="wrong-type", field=f"the column {name}", hint=hint)
    kind = schema.field(names_in_file["data"]).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if "binary" not in str(kind):  # binary, large_binary, binary_view, fixed_size_binary
        field, hint = f"the column {names_in_file['data']}", f"it is {kind}, and must be binary"
        raise CaptureError(code="wrong-type", field=field, hint=hint)
    return names_in_file


def _capture_columns(batch: pa.RecordBatch, columns: dict[str, str], path: str, row: int) -> pa.RecordBatch:
    count = batch.num_rows
    arrays = {
        "file": pa.repeat(path, count),
        "position": pa.array(range(row, row + count), pa.int64()),
        "recordIndex": pa.repeat(pa.scalar(0, pa.int64()), count),
    }
    for field in CAPTURE_SCHEMA:
        if field.name in columns:
            column, is_time = batch.column(columns[field.name]), pa.types.is_timestamp(field.type)
            kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            exact = not pa.types.is_floating(kind) or field.name == "subSequenceNumber"
            if not exact or (is_time and not pa.types.is_timestamp(kind)):
                raise pa.ArrowInvalid("not exact, or of an unknown unit")
            if is_time and not kind.tz:
                column = column.cast(pa.timestamp("us"), safe=False)
            arrays[field.name] = column.cast(field.type, safe=not is_time)
            if is_time:
                bounds = pc.min_max(arrays[field.name].cast(pa.int64()))
                least, most = (bounds[name].as_py() or 0 for name in ("min", "max"))
                if least < _YEAR_1 or most >= _YEAR_10000:
                    raise pa.ArrowInvalid("not a time that Python's datetime holds")
    return capture_batch(arrays, count)


def _one_by_one(batch: pa.RecordBatch, columns: dict[str, str], rows: CaptureRows, row: int) -> None:
    """As `_capture_columns`, row by row: for a batch with a value that CAPTURE_SCHEMA cannot hold."""
    # CAP-1: "A record that cannot be read MUST come out as an error with its position, its field and a code;
    # it MUST NOT hide the records before and after it."
    arrays = (batch.column(name) for name in columns.values())
    values = ((c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c).to_pylist() for c in arrays)
    for at, fields in enumerate(zip(*values, strict=True), row):
        row_fields = dict(zip(columns, fields, strict=True))
        try:
            record, stream = _record_of(row_fields)
        except CaptureError as error:
            rows.unreadable(error.code, str(error), at)
            continue
        rows.record(record, stream, at, None, 0)
        defect = time_error(row_fields) if record.approximate_arrival_timestamp is None else None
        if defect is not None:
            rows.unreadable(defect.code, str(defect), at)


def _record_of(row: Mapping[str, Any]) -> tuple[KinesisRecord, str | None]:
    """A row by this library's names of columns, and its stream. Its data may be None."""
    sub = row.get("subSequenceNumber")
    if isinstance(sub, float):  # pandas makes floats of a column of integers with nulls
        row = {**row, "subSequenceNumber": None if isnan(sub) else int(sub) if sub.is_integer() else sub}
    return KinesisRecord(
        _text_of(row, "partitionKey"),
        row["data"],
        _text_of(row, "sequenceNumber"),
        _text_of(row, "shardId"),
        arrival(row, "approximateArrivalTimestamp", MILLISECONDS),
        _text_of(row, "explicitHashKey"),
        sub_sequence_number(row, "subSequenceNumber"),
    ), _text_of(row, "streamName")


def _text_of(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise CaptureError(code="utf-8", field=name, requirement="CAP-4") from None
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return format(value, "f") if isinstance(value, Decimal) else str(value)
    return optional_text(row, name)
