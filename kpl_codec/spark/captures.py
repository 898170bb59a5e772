"""Captured Kinesis records in files -> Arrow batches, and every unreadable bit as a row of its own.

    pieces = plan(["captures/"])                 # on the driver: lists files, opens none
    for batch in read_piece(pieces[0]): ...      # anywhere: batches of CAPTURE_SCHEMA

Reads JSON (one value a line, many values a line, one value over many lines; GetRecords answers, Lambda
events, Firehose transformation events: whatever `kpl_codec.adapters` knows), also compressed, and
Parquet with the column names of the Kinesis connectors. Bytes are read as bytes: a file that is not
UTF-8, ends early, or holds 10 MiB of nothing makes a row with its place, and the reading goes on.
Places are exact: the byte offset of the JSON value, or the row in the Parquet file.

Memory: one line or one Parquet row group. A line over MAX_LINE bytes is passed over and reported.
Specification: spec/07-spark.md, SPK-10 to SPK-16.
"""

from __future__ import annotations

import bz2
import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from .. import adapters
from ..errors import CaptureError
from ..records import KinesisRecord

#: Text files above this size are read in pieces of it; pieces below are put together to tasks.
PIECE_BYTES = 64 * 1024 * 1024
#: GetRecords answers have at most 10 MiB of data, so less than 16 MiB in base64 and JSON.
MAX_LINE = 64 * 1024 * 1024
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_ROWS = 2000

CAPTURE_SCHEMA = pa.schema(
    [
        ("streamName", pa.string()),
        ("shardId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("partitionKey", pa.string()),
        ("explicitHashKey", pa.string()),
        ("subSequenceNumber", pa.int64()),
        ("data", pa.binary()),
        ("approximateArrivalTimestamp", pa.timestamp("us", "UTC")),
        ("file", pa.string()),
        ("position", pa.int64()),  # byte offset of the JSON value, or row of the Parquet file
        ("line", pa.int64()),  # from 1; null where only the byte offset is known
        ("recordIndex", pa.int64()),  # which record of the JSON value, from 0
        ("captureError", pa.string()),
        ("captureText", pa.string()),
    ]
)


class InputError(CaptureError):
    """There is nothing to read at ``path``. ``code``: no-such-path, no-files, bad-path, unreadable."""

    code = "no-such-path"
    requirement = "SPK-10"
    text = "cannot read {path}: {code}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a file: the values (or row groups) that start at byte ``start`` or later, before ``stop``."""

    path: str
    start: int
    stop: int
    size: int

    @property
    def whole(self) -> bool:
        return self.start == 0 and self.stop == self.size


def is_local(path: str) -> bool:
    """Whether ``path`` is a plain path of this machine, not a URI."""
    return "://" not in path and not path.startswith("file:")


def open_path(path: str) -> tuple[fs.FileSystem, str]:
    if is_local(path):
        return fs.LocalFileSystem(), os.path.abspath(path)
    try:
        return fs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1).replace("s3n://", "s3://", 1))  # type: ignore[no-any-return]
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(code="bad-path", path=path, reason=str(error)) from None


def plan(paths: Iterable[str], piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """The pieces of all files at or under ``paths``, by name. Hidden ones (``.x``, ``_x``) are left out.

    A path is local or a URI that `pyarrow.fs` knows (s3, gs, abfs, hdfs). Raises InputError.
    """
    # SPK-10: "Every value in every file at or under a path MUST be read exactly once, however files are cut
    # into pieces; a path that is not there, or holds no file, is refused at once."
    pieces = []
    for path in paths:
        system, inner = open_path(path)
        prefix = path[: len(path) - len(inner)] if path.endswith(inner) and "://" in path else ""
        info = system.get_file_info(inner)
        if info.type == fs.FileType.NotFound:
            raise InputError(code="no-such-path", path=path)
        if info.type == fs.FileType.Directory:
            try:
                found = system.get_file_info(fs.FileSelector(inner, recursive=True))
            except OSError as error:
                raise InputError(code="unreadable", path=path, reason=str(error)) from None
            depth = len(PurePosixPath(inner).parts)
            if is_local(path):
                found += system.get_file_info(_dangling(inner))
            found = [
                file
                for file in found
                if file.type != fs.FileType.Directory
                and not any(part[0] in "._" for part in PurePosixPath(file.path).parts[depth:])
            ]
            if not found:
                raise InputError(code="no-files", path=path)
        else:
            found = [info]
        for file in sorted(found, key=lambda file: str(file.path)):
            if file.type != fs.FileType.File:
                pieces.append(Piece(prefix + file.path, 0, 0, -1))
                continue
            size = file.size or 0
            cuts = [0]
            if _compression(file.path) is None:
                cuts = list(range(0, max(size, 1), piece_bytes))
            pieces += [
                Piece(prefix + file.path, start, stop, size)
                for start, stop in zip(cuts, [*cuts[1:], size], strict=True)
            ]
    return pieces


def _dangling(folder: str) -> list[str]:
    """Links under ``folder`` to files that are not there: a listing leaves them out."""
    files = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    return [path for path in files if not os.path.exists(path)]


def _compression(path: str) -> str | None:
    suffix = PurePosixPath(path).suffix.lower()
    return {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}.get(suffix)


class _Rows:
    """Collects rows of one piece into batches."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0
        #: Whether there was anything at all: a record, a value without records, something unreadable.
        self.seen = False

    def record(
        self, record: KinesisRecord, stream: str | None, position: int, line: int | None, index: int
    ) -> None:
        arrival = record.approximate_arrival_timestamp
        self._add(
            stream,
            record.shard_id,
            record.sequence_number,
            record.partition_key,
            record.explicit_hash_key,
            record.sub_sequence_number,
            record.data,
            arrival,
            self._path,
            position,
            line,
            index,
            None,
            None,
        )
        self._bytes += len(record.data)

    def unreadable(
        self, code: str, text: str, position: int, line: int | None = None, index: int | None = None
    ) -> None:
        self._add(*(None,) * 8, self._path, position, line, index, code, text[:500])

    def _add(self, *row: Any) -> None:
        self._rows.append(row)
        self._bytes += 100
        self.seen = True

    def full(self) -> bool:
        return self._bytes >= _BATCH_BYTES or len(self._rows) >= _BATCH_ROWS

    def take(self) -> Iterator[pa.RecordBatch]:
        """What was collected, as one batch or none."""
        if self._rows:
            columns = list(zip(*self._rows, strict=True))
            self._rows, self._bytes = [], 0
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, CAPTURE_SCHEMA, strict=True)],
                schema=CAPTURE_SCHEMA,
            )


def read_piece(piece: Piece) -> Iterator[pa.RecordBatch]:
    """Batches of CAPTURE_SCHEMA. Raises nothing for what is in the file; `kpl_codec.errors` has no say
    over a machine that runs out of memory."""
    rows = _Rows(piece.path)
    if piece.size == 0:
        rows.unreadable("empty", "the file is empty", 0)
        yield from rows.take()
        return
    if piece.size < 0:
        rows.unreadable("file", "not a file: a pipe, or a link to nothing", 0)
        yield from rows.take()
        return
    position = piece.start
    try:
        system, inner = open_path(piece.path)
        with system.open_input_file(inner) as source:
            magic = source.read(4)
            source.seek(0)
            if magic == b"PAR1":
                yield from _parquet(piece, source, rows)
                return
            kind = _compression(piece.path)
            stream = source if kind is None else _Unpacked(source, kind)
            for position in _text(stream, piece, rows):  # noqa: B007  where a failure would be
                yield from rows.take()
    except (OSError, pa.ArrowException) as error:
        # SPK-12: "A file that cannot be read, or not to its end, MUST be reported as file with
        # the place; what was read before it counts, and so do the other files."
        rows.unreadable("file", _first_line(error), position)
    # SPK-11: "A file without a byte in it, or of white space alone, also unpacked, MUST be reported as
    # empty."
    if piece.whole and not rows.seen:
        rows.unreadable("empty", "nothing but white space in it", 0)
    yield from rows.take()


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


# -- text ------------------------------------------------------------------------------------------


class _Unpacked:
    """The bytes of a compressed file: all that can be had before it breaks, then OSError."""

    def __init__(self, source: Any, kind: str) -> None:
        self._block = 1 << 20
        if kind == "gzip":
            self._read: Any = gzip.GzipFile(fileobj=source).read1
        elif kind == "bz2":
            self._read = bz2.BZ2File(source).read1
        else:
            # Bytes before a break are lost up to a block of these.
            self._block = 1 << 12
            self._read = pa.CompressedInputStream(source, kind).read

    def read(self, size: int) -> bytes:
        try:
            return bytes(self._read(min(size, self._block)))
        except (EOFError, zlib.error, pa.ArrowException) as error:
            raise OSError(str(error)) from None


class _Chain:
    """Bytes read already, then the rest of a stream."""

    def __init__(self, head: bytes, stream: BinaryIO | None, error: OSError | None) -> None:
        self._head, self._stream, self._error = head, stream, error

    def read(self, size: int) -> bytes:
        if self._head:
            block, self._head = self._head[:size], self._head[size:]
            return block
        if self._error is not None:
            raise self._error
        return self._stream.read(size) if self._stream is not None else b""


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


def _text(stream: Any, piece: Piece, rows: _Rows) -> Iterator[int]:
    """Adds the records of the values in the piece to ``rows``; gives the offset whenever it is full."""
    plain = _compression(piece.path) is None
    offset, number, source = piece.start, 1 if piece.start == 0 else None, stream
    if piece.start:
        stream.seek(piece.start - 1)  # a line that starts exactly here is ours
        skipped = next(_lines(stream, piece.start - 1, None, None), None)
        if skipped is None:
            return
        offset = piece.start - 1 + (skipped[1] if isinstance(skipped[1], int) else len(skipped[1]))
        stream.seek(offset)
    elif piece.stop == piece.size:
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
                rows.unreadable("file", _first_line(error), len(head))
            return
        source = _Chain(head, stream, error)
    for at, line, count in _lines(source, offset, piece.stop if plain else None, number):
        if isinstance(line, int):
            # SPK-13: "A line of more than 64 MiB MUST be reported as line-too-long and passed over."
            rows.unreadable("line-too-long", f"{line} bytes without a line end", at, count)
        else:
            _add_values(line, at, count, rows)
        if rows.full():
            yield at


_DECODER = json.JSONDecoder()


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


def _add_values(data: bytes, offset: int, line: int | None, rows: _Rows) -> None:
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
            value, end = _DECODER.raw_decode(text, pos)
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
            _add_records(value, offset, line, rows)
        pos = end


def _size(text: str) -> int:
    """How many bytes of the file ``text`` was."""
    return len(text.encode("utf-8", "surrogateescape"))


def _add_records(value: Any, position: int, line: int | None, rows: _Rows) -> None:
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


# -- Parquet ---------------------------------------------------------------------------------------

_ALIASES = {"stream": "streamname", "arrivaltimestamp": "approximatearrivaltimestamp", "shard": "shardid"}


def _parquet(piece: Piece, source: Any, rows: _Rows) -> Iterator[pa.RecordBatch]:
    """The row groups whose middle is in the piece."""
    try:
        file = pq.ParquetFile(source)
        columns = _columns(file.schema_arrow)
    except (pa.ArrowException, OSError, CaptureError) as error:
        if piece.start == 0:
            code = error.code if isinstance(error, CaptureError) else "file"
            rows.unreadable(code, _first_line(error), 0)
            yield from rows.take()
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
        read = 0
        try:
            for batch in file.iter_batches(500, row_groups=[number], columns=list(columns.values())):
                yield _captured(batch, columns, piece.path, first + read)
                read += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            text = f"{count - read} rows of row group {number}: {_first_line(error)}"
            rows.unreadable("file", text, first + read)
            yield from rows.take()
    if row == 0 and piece.start == 0:
        rows.unreadable("empty", "no rows", 0)
        yield from rows.take()


def _columns(schema: pa.Schema) -> dict[str, str]:
    """Our name -> the file's. Raises CaptureError without a column ``data``."""
    wanted = {field.name.lower(): field.name for field in list(CAPTURE_SCHEMA)[:8]}
    found: dict[str, str] = {}
    for name in schema.names:
        low = name.lower().replace("_", "")
        ours = wanted.get(_ALIASES.get(low, low))
        if ours is not None:
            found.setdefault(ours, name)
    # SPK-15: "A Parquet file without a column data, or with one that is not binary, MUST be reported: text
    # may be base64 or not."
    if "data" not in found:
        raise CaptureError(code="no-data-column", field=", ".join(schema.names)[:200])
    kind = schema.field(found["data"]).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if "binary" not in str(kind):  # binary, large_binary, binary_view, fixed_size_binary
        raise CaptureError(code="wrong-type", field=f"{found['data']} is {kind}")
    return found


def _captured(batch: pa.RecordBatch, columns: dict[str, str], path: str, row: int) -> pa.RecordBatch:
    count = batch.num_rows
    arrays = []
    for field in CAPTURE_SCHEMA:
        if field.name in columns:
            column = batch.column(columns[field.name])
            if (
                pa.types.is_timestamp(field.type)
                and pa.types.is_timestamp(column.type)
                and not column.type.tz
            ):
                column = column.cast(pa.timestamp("us")).cast(field.type)
            arrays.append(column.cast(field.type, safe=not pa.types.is_timestamp(field.type)))
        elif field.name == "file":
            arrays.append(pa.repeat(path, count))
        elif field.name == "position":
            arrays.append(pa.array(range(row, row + count), pa.int64()))
        elif field.name == "recordIndex":
            arrays.append(pa.repeat(pa.scalar(0, pa.int64()), count))
        else:
            arrays.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=CAPTURE_SCHEMA)
