"""Takes Arrow data of other libraries by the PyCapsule interface, and joins small batches.

https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

T = TypeVar("T")


#: An object with Arrow's PyCapsule interface, or an iterable of such. (pyarrow has no types for a type
#: checker.)
ArrowData: TypeAlias = Any


def batches_of(data: ArrowData) -> Iterator[pa.RecordBatch]:
    """The record batches of ``data``, without a copy where its library needs none. Raises TypeError."""
    if isinstance(data, pa.RecordBatch):
        yield data
    elif hasattr(data, "__arrow_c_stream__"):
        own = isinstance(data, pa.RecordBatchReader)  # (another reader would change its errors)
        reader = data if own else pa.RecordBatchReader.from_stream(data)
        batch = None
        for batch in reader:
            yield batch
        if batch is None:
            yield pa.RecordBatch.from_pylist([], reader.schema)
    elif hasattr(data, "__arrow_c_array__"):
        yield pa.record_batch(data)
    elif isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict)):
        for item in data:
            yield from batches_of(item)
    else:
        raise TypeError(
            f"{type(data).__name__} where Arrow data belongs (record batches, a table, a data frame): "
            "kpl_codec.deaggregate takes KinesisRecords, kpl_codec.adapters.kinesis_records makes them"
        )


def plain_schema(schema: ArrowData) -> pa.Schema:
    """``schema`` with large text and bytes instead of views of them, as polars has: pyarrow computes little
    with views."""
    schema = schema if isinstance(schema, pa.Schema) else pa.schema(schema)
    fields = [field.with_type(_plain(field.type)) for field in schema]
    return pa.schema(fields, schema.metadata)


def plain(batch: ArrowData) -> pa.RecordBatch:
    """``batch`` with the types of `plain_schema`."""
    batch = batch if isinstance(batch, pa.RecordBatch) else pa.record_batch(batch)
    schema = plain_schema(batch.schema)
    return batch if schema.equals(batch.schema) else batch.cast(schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    if kind == pa.string_view():
        return pa.large_string()
    if kind == pa.binary_view():
        return pa.large_binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain(kind.value_type), kind.ordered)
    return kind


def group_by_size(items: Iterable[tuple[T, int]], max_bytes: int) -> Iterator[list[T]]:
    """Lists of consecutive items of at most ``max_bytes`` together, or of one item. ``items``: with their
    sizes. The items before an error come before the error."""
    group: list[T] = []
    size = 0
    try:
        for item, item_size in items:
            # SPK-4: "An output batch MUST stay within its limit of bytes unless it holds one user record
            # only, whatever the input holds."
            if group and size + item_size > max_bytes:
                yield group
                group, size = [], 0
            group.append(item)
            size += item_size
            if size >= max_bytes:
                yield group
                group, size = [], 0
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group


#: The most bytes of rows of one Kinesis record that are held back: it has at most 10 MiB of data.
_MOST_HELD = 16 * 1024 * 1024


def with_siblings_together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, cut elsewhere: rows that were opened before, one behind the other and
    of one Kinesis record, are in one batch. The rows before an error come before the error."""
    held: list[pa.RecordBatch] = []  # the last rows so far, all of the Kinesis record `name`
    name: Any = None
    try:
        for batch in batches:
            first, last = 0, batch.num_rows
            if held:
                while first < last and _opened_record(batch, first) == name:
                    first += 1
                held.append(batch.slice(0, first))
                if first == last and sum(rows.nbytes for rows in held) < _MOST_HELD:
                    continue
                yield _joined(held)
                held = []
            name = _opened_record(batch, last - 1) if first < last else None
            keep = last
            while name is not None and first < keep and _opened_record(batch, keep - 1) == name:
                keep -= 1
            if keep < last:
                held = [batch.slice(keep)]
            if first < keep:
                yield batch.slice(first, keep - first)
    except Exception:
        if held:
            yield _joined(held)
        raise
    if held:
        yield _joined(held)


def _opened_record(batch: pa.RecordBatch, row: int) -> tuple[Any, Any, Any] | None:
    """What names the Kinesis record of a row that was opened before; None for another row."""

    def value(name: str) -> Any:
        at = batch.schema.get_field_index(name)
        column = None if at < 0 else batch.column(at)
        return None if column is None or column.null_count == len(column) else column[row].as_py()

    number = value("sequenceNumber")
    opened = value("subSequenceNumber") is not None or value("aggregated")
    return (value("streamName"), value("shardId"), number) if opened and number is not None else None


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0] if batches[1:] else batches[0]


def coalesce(batches: Iterable[pa.RecordBatch], max_batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches of at most ``max_batch_bytes``, where dictionary arrays count as written
    out. A batch of a quarter of that is not joined."""

    def with_size(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        quarter = max_batch_bytes // 4
        size = batch.nbytes
        if size < quarter:
            coded = (column.dictionary for column in batch.columns if pa.types.is_dictionary(column.type))
            size += batch.num_rows * sum(map(_longest, coded))
        return batch, size if size < quarter else max_batch_bytes

    for group in group_by_size(map(with_size, batches), max_batch_bytes):
        if len(group) > 1:
            with suppress(pa.ArrowInvalid):  # dictionaries with too many words together for their indices
                group = pa.Table.from_batches(group).combine_chunks().to_batches()
        yield from group


def _longest(words: pa.Array) -> int:
    """Bytes of the longest of ``words``."""
    if words.type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        return pc.max(pc.binary_length(words)).as_py() or 0
    if pa.types.is_nested(words.type):
        return max((words.slice(i, 1).nbytes for i in range(len(words))), default=0)
    size: int = words.nbytes // max(1, len(words))  # all have one size
    return size
