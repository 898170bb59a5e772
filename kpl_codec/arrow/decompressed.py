"""Undoes the compression of the column ``data`` of user records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..deaggregation.decompression import Decompressor
from ..deaggregation.records import DeaggregatedRecord
from ..errors import DecodeError
from ..format.compression import STARTS
from .object_columns import DEFECT_VALUES

#: The columns that it reads or changes, where there are such.
NEEDED = (
    *("data", "shardId", "sequenceNumber", "subSequenceNumber"),
    *("error", "errorRecordIndex", "errorRequirement", "errorText", "errorCount"),
)


def decompressed(rows: pa.RecordBatch, undo: Decompressor, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """``rows`` with decompressed data, in batches of at most ``max_bytes`` of it (one row always fits).

    Raises DecompressionError unless ``undo`` counts defects.
    """
    # Only user records that start like compressed data become Python objects.
    column = rows.column("data").cast(pa.large_binary())
    starts = pc.binary_slice(column, 0, max(map(len, STARTS)))
    found = {
        row for row, start in enumerate(starts.to_pylist()) if start is not None and start.startswith(STARTS)
    }
    if not found:
        yield rows
        return
    first = size = 0
    data: list[Any] = []
    defects: dict[int, DecodeError] = {}
    for row in range(rows.num_rows):
        value = column[row].as_py()
        if row in found:
            record = undo(_record(rows, row, value))
            value = record.data
            if record.defects:
                defects[row] = record.defects[0]
        if data and size + len(value or b"") > max_bytes:
            yield _batch(rows, first, data, defects)
            first, size, data = row, 0, []
        data.append(value)
        size += len(value or b"")
    yield _batch(rows, first, data, defects)


def _record(rows: pa.RecordBatch, row: int, data: bytes) -> DeaggregatedRecord:
    """What the decompressor needs of a row."""

    def of(name: str) -> Any:
        return rows.column(name)[row].as_py()

    return DeaggregatedRecord(
        None, data, None, (), of("sequenceNumber"), of("subSequenceNumber"), True, of("shardId"), None
    )


def _batch(
    rows: pa.RecordBatch, first: int, data: list[Any], defects: dict[int, DecodeError]
) -> pa.RecordBatch:
    part = rows.slice(first, len(data))
    columns, index = part.columns, part.schema.get_field_index
    columns[index("data")] = pa.array(data, part.schema.field("data").type)
    here = {row - first: defect for row, defect in defects.items() if first <= row < first + len(data)}
    if here:
        counts = columns[index("errorCount")].to_pylist()
        fresh = {row: defect for row, defect in here.items() if not counts[row]}
        for name, values in _defect_values(fresh).items():
            old = columns[index(name)]
            new = {**dict(enumerate(old.to_pylist())), **values}
            columns[index(name)] = pa.array(new.values(), old.type)
        more = [(count or 0) + (row in here) for row, count in enumerate(counts)]
        columns[index("errorCount")] = pa.array(more, columns[index("errorCount")].type)
    return pa.RecordBatch.from_arrays(columns, schema=part.schema)


def _defect_values(defects: dict[int, DecodeError]) -> dict[str, dict[int, Any]]:
    """The values of the error columns, by row."""
    return {
        name: {row: value(defect) for row, defect in defects.items()}
        for name, value in DEFECT_VALUES.items()
        if name in NEEDED
    }
