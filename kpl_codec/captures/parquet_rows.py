"""Reads Parquet files with the column names of the Kinesis connectors, row group by row group."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import chain
from math import isnan
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..adapters.shapes import (
    MILLISECONDS,
    OF_REPORTS,
    arrival,
    opened_fields,
    optional_text,
    standard_name,
    time_error,
)
from ..errors import CaptureError
from ..format.records import KinesisRecord
from ..rendering.labels import plural
from .account import SourceAccount
from .capture_rows import CAPTURE_SCHEMA, CaptureRows, capture_batch, error_text
from .files import RESULTS, UNREADABLE, FileRange

#: Microseconds since 1970.
_YEAR_1, _YEAR_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000
_BINARY = (
    *(pa.types.is_binary, pa.types.is_large_binary),
    *(pa.types.is_binary_view, pa.types.is_fixed_size_binary),
)
#: A column that says more than ``streamName``.
_STREAM_ARN = pa.field("streamArn", pa.string())
#: About how many bytes a batch of rows from Parquet has.
_BATCH_BYTES = 4 * 1024 * 1024


def read_parquet(
    piece: FileRange, file: Any, rows: CaptureRows, source: SourceAccount
) -> Iterator[pa.RecordBatch]:
    """The row groups of the piece. Which piece reads a group depends on its number alone: sizes of groups are
    of another unit than places in the file, and the metadata of an encrypted column aborts the process."""
    if file.size() != piece.size:
        # ACC-2: which piece reads a group was decided by the size that was listed.
        source.stopped = True
        listed = f"{plural(piece.size, 'byte')} when it was listed, {file.size():,} when it was read"
        rows.unreadable("file", f"it was replaced or is written now: {listed}", 0)
        return
    try:
        # Pages are read when needed: a row group may be larger than the memory. A page that has a checksum
        # is compared with it.
        parquet = pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True)
        # ACC-3: "Results of this library MUST NOT be read as input, whole or half-written, in their folder or
        # moved out of it, and neither MUST rows that were saved under the report policy: they hold what was
        # read before."
        is_result = RESULTS in (parquet.metadata.metadata or {})
        reported = [name for name in parquet.schema_arrow.names if name in OF_REPORTS]
        if is_result or reported:
            if piece.start == 0:
                source.left_out = True
                what = "a part of results of kpl-codec" if is_result else "rows of the report policy"
                about = f" (columns {', '.join(reported)})" if reported and not is_result else ""
                rows.unreadable("hidden", f"left out: it is {what}{about}; give what they were made of", 0)
            return
        columns = _columns(parquet.schema_arrow)
        opened = _only_group(parquet, [*columns.values()]) if piece.start == 0 else None
        joined = joined_at(file, parquet, columns["data"], is_readable=opened is not None)
        if joined is not None:
            if piece.start == 0:
                source.stopped = True
                rows.unreadable("file", joined, 0)
            return
    except (*UNREADABLE, CaptureError) as error:
        # Only the piece that names the file stops it: see piece_reading.py.
        if piece.start == 0:
            source.stopped = True
            code = error.code if isinstance(error, CaptureError) else "file"
            rows.unreadable(code, error_text(error), 0)
        return
    count = parquet.metadata.num_row_groups
    source.unit, source.whole = "row", parquet.metadata.num_rows
    first = 0
    for number in range(count):
        group = parquet.metadata.row_group(number)
        # ACC-2: "Each row group of a Parquet file MUST be read by exactly one piece; a group that gives
        # other rows than the footer says, or a page with a wrong checksum, MUST be named with its rows."
        if piece.start <= number * piece.size // count < piece.stop:
            batches = opened or _batches(parquet, number, [*columns.values()])
            yield from _read_group(batches, number, group.num_rows, first, columns, piece.path, rows)
            source.cover(first, first + group.num_rows)
        first += group.num_rows
    if source.whole < first and piece.start == 0:  # fewer of them: the account does not close
        text = f"its footer says {plural(source.whole, 'row')}, and its row groups have {first:,}"
        rows.unreadable("file", text, source.whole)
    elif source.whole == 0 and piece.start == 0:
        rows.unreadable("empty", "no rows", 0)


def _batches(parquet: pq.ParquetFile, number: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    rows = _batch_rows(parquet.metadata.row_group(number))
    return iter(parquet.iter_batches(rows, row_groups=[number], columns=names))


def _only_group(parquet: pq.ParquetFile, names: list[str]) -> Iterator[pa.RecordBatch] | None:
    """The batches of the only row group of a file, of which the first is read already: to open a group
    unpacks much of it. None: it cannot be read, or there are several groups, and another one would be held in
    memory."""
    if parquet.metadata.num_row_groups != 1:
        return None
    batches = _batches(parquet, 0, names)
    try:
        first = next(batches, None)
    except UNREADABLE:
        return None
    return chain(() if first is None else (first,), batches)


#: How a Parquet file begins: with the head of its first page, or with its footer if it has no rows.
_BEGIN: Final = re.compile(rb"PAR1(?=\x15[\x00\x02\x04\x06][\x15\x19])")
_PAGE: Final = re.compile(rb"\x15[\x00\x04\x06]\x15")


def joined_at(file: Any, parquet: pq.ParquetFile, column: str, *, is_readable: bool = False) -> str | None:
    """What is wrong if another Parquet file begins within a file. The footer at the end knows only the last
    of several, and its places count from where that one begins: what it says of ``column`` would be read from
    the first. Where it cannot be read there, reading fails by itself. ``is_readable``: it was read there."""
    # ACC-6: "A file in which several Parquet files stand, whatever is between them, MUST be refused, with the
    # place."
    first, end = _last_chunk(parquet, column, is_readable)
    footer = file.size() - 8 - parquet.metadata.serialized_size
    # Before the footer there is room for the column of the last file; a few bytes tell what begins.
    at, stop, before = max(end, len(b"PAR1")), footer - end + 7, b""
    while at < stop and (file.seek(at), block := file.read(min(_BATCH_BYTES, stop - at)))[1]:
        text = before + block
        for found in _BEGIN.finditer(text):
            begin = at - len(before) + found.start()
            file.seek(begin + first)
            # (A record may be a Parquet file, and stand in an index of pages.)
            if not first or _PAGE.match(file.read(3)):
                return f"several Parquet files in one: another begins at byte {begin}; split them there"
        before, at = text[-6:], at + len(block)
    return None


def _last_chunk(parquet: pq.ParquetFile, column: str, is_readable: bool) -> tuple[int, int]:
    """Where by the footer the last bytes of ``column`` begin and end; 0 where they cannot be read."""
    last = parquet.metadata.num_row_groups - 1
    if last < 0:
        return 0, 0
    try:
        # (Of an encrypted column the metadata aborts the process; reading it does not.)
        if not is_readable:
            next(parquet.iter_batches(1, row_groups=[last], columns=[column]), None)
    except UNREADABLE:
        return 0, 0
    columns = (at for at in range(len(parquet.schema)) if parquet.schema.column(at).path == column)
    if (at := next(columns, None)) is None:  # a nested one
        return 0, 0
    chunk = parquet.metadata.row_group(last).column(at)
    first = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    return first, first + int(chunk.total_compressed_size)


def _read_group(
    batches: Iterator[pa.RecordBatch],
    number: int,
    count: int,
    first: int,
    columns: dict[str, str],
    path: str,
    rows: CaptureRows,
) -> Iterator[pa.RecordBatch]:
    """The rows of group ``number``, which has ``count`` of them, from row ``first`` of the file on."""
    read, reason = 0, "the footer says that there are more"
    try:
        for batch in batches:
            try:
                yield _capture_columns(batch, columns, path, first + read)
            except pa.ArrowException:
                _one_by_one(batch, columns, rows, first + read)
                yield from rows.take()
            read += batch.num_rows
    except UNREADABLE as error:
        reason = error_text(error)
    if read < count:
        rows.unreadable(
            "file", f"{plural(count - read, 'row')} of row group {number}: {reason}", first + read
        )
    elif read > count:
        text = f"row group {number} has {plural(read - count, 'row')} more than the footer says"
        rows.unreadable("file", text, first + count)
    yield from rows.take()


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
        # Each row may have its value in another one of them.
        same = [each for each in schema.names if each == name or standard_name(each) == ours]
        if len(same) > 1:
            hint = f"there are several: {', '.join(same)}; write one, with coalesce"
            raise CaptureError(code="wrong-type", field=f"the column {name}", hint=hint)
    kind = schema.field(names_in_file["data"]).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not any(is_kind(kind) for is_kind in _BINARY):
        field, hint = f"the column {names_in_file['data']}", f"it is {kind}, and must be binary"
        raise CaptureError(code="wrong-type", field=field, hint=hint)
    return names_in_file


def _capture_columns(batch: pa.RecordBatch, columns: dict[str, str], path: str, row: int) -> pa.RecordBatch:
    count = batch.num_rows
    arrays = {
        "file": pa.repeat(path, count),
        "position": pa.array(range(row, row + count), pa.int64()),
    }
    for field in (*CAPTURE_SCHEMA, _STREAM_ARN):
        if field.name in columns:
            column, is_time = batch.column(columns[field.name]), pa.types.is_timestamp(field.type)
            kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            exact = not pa.types.is_floating(kind) or field.name == "subSequenceNumber"
            if not exact or (is_time and not pa.types.is_timestamp(kind)):
                raise pa.ArrowInvalid("not exact, or of an unknown unit")
            if is_time and not kind.tz:
                column = column.cast(pa.timestamp("us"), safe=False)
            arrays[field.name] = column.cast(field.type, safe=not is_time)
            if pa.types.is_string(field.type):
                arrays[field.name].validate(full=True)  # Parquet's text may be no UTF-8
            if is_time:
                bounds = pc.min_max(arrays[field.name].cast(pa.int64()))
                least, most = (bounds[name].as_py() or 0 for name in ("min", "max"))
                if least < _YEAR_1 or most >= _YEAR_10000:
                    raise pa.ArrowInvalid("not a time that Python's datetime holds")
    if "subSequenceNumber" in arrays:
        numbers = arrays["subSequenceNumber"]
        if (pc.min(numbers).as_py() or 0) < -1:
            raise pa.ArrowInvalid("not a sub-sequence number")
        from ..arrow.layout import without_marks  # with it comes pandas, which other files need not wait for

        arrays["subSequenceNumber"] = without_marks(numbers)
    if _STREAM_ARN.name in arrays:
        arrays["streamName"] = pc.coalesce(
            *(arrays[each] for each in ("streamArn", "streamName") if each in arrays)
        )
    return capture_batch(arrays, count)


def _one_by_one(batch: pa.RecordBatch, columns: dict[str, str], rows: CaptureRows, row: int) -> None:
    """As `_capture_columns`, row by row: for a batch with a value that CAPTURE_SCHEMA cannot hold."""
    # CAP-1: "A record that cannot be read MUST come out as an error with its position, its field and a code;
    # it MUST NOT hide the records before and after it."
    values = (_values_of(batch.column(name)) for name in columns.values())
    for at, fields in enumerate(zip(*values, strict=True), row):
        row_fields = dict(zip(columns, fields, strict=True))
        try:
            record, stream = _record_of(row_fields)
        except CaptureError as error:
            rows.unreadable(error.code, str(error), at)
            continue
        rows.record(record, stream, at)
        defect = time_error(row_fields) if record.approximate_arrival_timestamp is None else None
        if defect is not None:
            rows.unreadable(defect.code, str(defect), at)


def _values_of(column: pa.Array) -> list[Any]:
    """The cells of a column. Of text that is not UTF-8 they are bytes; of dates and the like that Python
    cannot hold, objects that no field takes."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values = []
    for cell in column:
        try:
            values.append(cell.as_py())
        except UnicodeDecodeError:
            values.append(cell.as_buffer().to_pybytes() if hasattr(cell, "as_buffer") else cell)
        except (ValueError, OverflowError):
            values.append(cell)
    return values


def _record_of(row: Mapping[str, Any]) -> tuple[KinesisRecord, str | None]:
    """A row by this library's names of columns, and its stream. Its data may be None."""
    sub = row.get("subSequenceNumber")
    if isinstance(sub, float):  # pandas makes floats of a column of integers with nulls
        row = {**row, "subSequenceNumber": None if isnan(sub) else int(sub) if sub.is_integer() else sub}
    key = _text_of(row, "partitionKey")
    return KinesisRecord(
        key,
        row["data"],
        _text_of(row, "sequenceNumber"),
        _text_of(row, "shardId"),
        arrival(row, "approximateArrivalTimestamp", MILLISECONDS),
        **opened_fields({**row, "partitionKey": key, "explicitHashKey": _text_of(row, "explicitHashKey")}),
    ), _text_of(row, "streamArn") or _text_of(row, "streamName")


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
