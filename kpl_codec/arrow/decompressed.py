"""Undoes what was done to the data of user records: compression, and the Schema Registry's frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..deaggregation.records import DeaggregatedRecord
from ..errors import DecodeError
from ..format.compression import STARTS
from ..schema_registry import HEADER_SIZE, PLAIN, ZLIB, version_id_text
from .object_columns import DEFECT_VALUES

#: The columns that are read or changed, where there are such.
NEEDED = (
    *("data", "shardId", "sequenceNumber", "subSequenceNumber", "schemaVersionId"),
    *("error", "errorRecordIndex", "errorRequirement", "errorText", "errorCount"),
)
#: No data of an Arrow column of binary is larger.
_LARGEST = 2**31 - 1
#: Data, schema version id (None: as before), defect.
_Undone = tuple[Any, str | None, DecodeError | None]
_Undo = Callable[[DeaggregatedRecord], DeaggregatedRecord]


def unframed(rows: pa.RecordBatch, undo: _Undo, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """``rows`` whose data is without frames, and whose ``schemaVersionId`` names their schema. ``undo``: an
    `Unframer`; only user records with a frame in zlib become Python objects for it."""
    data, versions = rows.column("data"), rows.column("schemaVersionId")
    framed = pc.and_(pc.greater_equal(pc.binary_length(data), HEADER_SIZE), pc.is_null(versions))
    starts = pc.binary_slice(data, 0, len(ZLIB))
    found = pc.fill_null(pc.and_(framed, pc.equal(starts, PLAIN)), False)
    packed = pc.any(pc.equal(starts, ZLIB)).as_py()
    if found.true_count:
        every = found.true_count == len(found)  # then nothing is copied that need not be
        frames = data if every else data.filter(found)
        ids = pc.binary_slice(frames, 2, HEADER_SIZE).dictionary_encode()
        texts = pa.array(map(version_id_text, ids.dictionary.to_pylist()), pa.string())
        made = pa.DictionaryArray.from_arrays(ids.indices, texts)
        # (Without a stop, binary_slice of pyarrow 26 fails where nothing is left.)
        bare = pc.binary_slice(frames, HEADER_SIZE, _LARGEST)
        if not every:
            bare = pc.replace_with_mask(data, found, bare)
            made = pc.replace_with_mask(versions.cast(pa.string()), found, made.cast(pa.string()))
        columns = rows.columns
        for name, values in (("data", bare), ("schemaVersionId", made)):
            kind = rows.schema.field(name).type
            if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(values.type):
                values = values.dictionary_encode()
            columns[rows.schema.get_field_index(name)] = values.cast(kind)
        rows = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
    yield from _changed(rows, (ZLIB,), undo, max_bytes) if packed else (rows,)


def decompressed(rows: pa.RecordBatch, undo: _Undo, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """``rows`` with decompressed data, in batches of at most ``max_bytes`` of it (one row always fits)."""
    return _changed(rows, STARTS, undo, max_bytes)


def _changed(
    rows: pa.RecordBatch, beginnings: tuple[bytes, ...], undo: _Undo, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    # Only user records that begin like this become Python objects.
    column = rows.column("data").cast(pa.large_binary())
    heads = pa.array({beginning[:2] for beginning in beginnings}, pa.large_binary())
    likely = np.flatnonzero(pc.is_in(pc.binary_slice(column, 0, 2), heads))
    found = {row for row in likely.tolist() if column[row].as_py().startswith(beginnings)}
    if not found:
        yield rows
        return
    held: list[_Undone] = []
    size = 0
    for row in range(rows.num_rows):
        value, version, defect = column[row].as_py(), None, None
        if row in found:
            record = undo(_record(rows, row, value))
            value, version = record.data, record.schema_version_id
            defect = record.defects[0] if record.defects else None
        size += len(value or b"")
        if held and size > max_bytes:
            yield _batch(rows.slice(row - len(held), len(held)), held)
            held, size = [], len(value or b"")
        held.append((value, version, defect))
    yield _batch(rows.slice(rows.num_rows - len(held)), held)


def _record(rows: pa.RecordBatch, row: int, data: bytes) -> DeaggregatedRecord:
    """What ``undo`` needs of a row."""

    def of(name: str) -> Any:
        return rows.column(name)[row].as_py()

    version = of("schemaVersionId") if "schemaVersionId" in rows.schema.names else None
    return DeaggregatedRecord(
        *(None, data, None, (), of("sequenceNumber"), of("subSequenceNumber"), True, of("shardId"), None),
        schema_version_id=version,
    )


def _batch(part: pa.RecordBatch, held: list[_Undone]) -> pa.RecordBatch:
    columns = part.columns
    data, versions, defects = zip(*held, strict=True)

    def put(name: str, values: Iterable[Any]) -> None:
        field = part.schema.field(name)
        columns[part.schema.get_field_index(name)] = pa.array(values, field.type, size=len(held))

    put("data", data)
    if any(versions):
        old = part["schemaVersionId"].to_pylist()
        put("schemaVersionId", (new or before for new, before in zip(versions, old, strict=True)))
    if any(defects):
        counts = part["errorCount"].to_pylist()
        for name in filter(NEEDED.__contains__, DEFECT_VALUES):
            told, rows = DEFECT_VALUES[name], zip(defects, counts, part[name].to_pylist(), strict=True)
            put(name, (told(new) if new and not count else before for new, count, before in rows))
        put("errorCount", ((n or 0) + 1 if new else n for new, n in zip(defects, counts, strict=True)))
    return pa.RecordBatch.from_arrays(columns, schema=part.schema)
