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

    def put(name: str, values: list[Any]) -> None:
        columns[index(name)] = pa.array(values, part.schema.field(name).type)

    put("data", data)
    here = {row - first: defect for row, defect in defects.items() if first <= row < first + len(data)}
    if here:
        counts = [count or 0 for count in part["errorCount"].to_pylist()]
        fresh = [row for row in here if not counts[row]]
        for name in filter(NEEDED.__contains__, DEFECT_VALUES):
            values = part[name].to_pylist()
            for row in fresh:
                values[row] = DEFECT_VALUES[name](here[row])
            put(name, values)
        for row in here:
            counts[row] += 1
        put("errorCount", counts)
    return pa.RecordBatch.from_arrays(columns, schema=part.schema)
