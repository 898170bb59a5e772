"""Captured records in Parquet, named as the Kinesis connectors name columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..adapters.shapes import standard_name
from ..errors import CaptureError
from .files import Piece
from .rows import CAPTURE_SCHEMA, Rows, capture_batch, first_line

#: Bytes of a batch, about.
_BATCH_BYTES = 4 * 1024 * 1024


def read_parquet(piece: Piece, source: Any, rows: Rows) -> Iterator[pa.RecordBatch]:
    """The row groups whose middle is in the piece."""
    try:
        # Pages are read when needed: a row group may be larger than the memory.
        file = pq.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False)
        columns = _columns(file.schema_arrow)
    except (pa.ArrowException, OSError, CaptureError) as error:
        if piece.start == 0 and isinstance(error, CaptureError):
            rows.unreadable(error.code, str(error), 0)
        elif piece.start == 0:
            rows.unreadable("file", first_line(error), 0)
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
        read, wanted = 0, list(columns.values())
        try:
            for batch in file.iter_batches(_batch_rows(group), row_groups=[number], columns=wanted):
                yield _captured(batch, columns, piece.path, first + read)
                read += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            text = f"{count - read} rows of row group {number}: {first_line(error)}"
            rows.unreadable("file", text, first + read)
            yield from rows.take()
    if row == 0 and piece.start == 0:
        rows.unreadable("empty", "no rows", 0)


def _batch_rows(group: pq.RowGroupMetaData) -> int:
    """Rows of a batch of about 4 MiB; a multiple of 32 if they are more, because 32 frames are hashed at a
    time."""
    rows = max(1, min(512, int(group.num_rows) * _BATCH_BYTES // max(1, int(group.total_byte_size))))
    return rows - rows % 32 or rows


def _columns(schema: pa.Schema) -> dict[str, str]:
    """Our name -> the file's. Raises CaptureError without a column ``data``."""
    found: dict[str, str] = {}
    for name in schema.names:
        ours = standard_name(name)
        if ours is not None:
            found.setdefault(ours, name)
    # SPK-15: "A Parquet file without a column data, or with one that is not binary, MUST be reported: text
    # may be base64 or not."
    if "data" not in found:
        hint = f"there are {', '.join(schema.names)[:200]}"
        raise CaptureError(code="no-data-column", field="the column data", hint=hint)
    kind = schema.field(found["data"]).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if "binary" not in str(kind):  # binary, large_binary, binary_view, fixed_size_binary
        raise CaptureError(code="wrong-type", field=f"the column {found['data']} ({kind}, not binary)")
    return found


def _captured(batch: pa.RecordBatch, columns: dict[str, str], path: str, row: int) -> pa.RecordBatch:
    count = batch.num_rows
    made = {
        "file": pa.repeat(path, count),
        "position": pa.array(range(row, row + count), pa.int64()),
        "recordIndex": pa.repeat(pa.scalar(0, pa.int64()), count),
    }
    for field in CAPTURE_SCHEMA:
        if field.name in columns:
            column, is_time = batch.column(columns[field.name]), pa.types.is_timestamp(field.type)
            if is_time and pa.types.is_timestamp(column.type) and not column.type.tz:
                column = column.cast(pa.timestamp("us"))
            made[field.name] = column.cast(field.type, safe=not is_time)
    return capture_batch(made, count)
