"""Objects of other libraries as pyarrow's, by Arrow's PyCapsule interface: polars, DuckDB, pandas, nanoarrow;
and small batches joined.

https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import KplError

T = TypeVar("T")


#: What the functions of `kpl_codec.arrow` read: an object with Arrow's PyCapsule interface, or an iterable of
#: such. (pyarrow has no types that a checker could compare.)
ArrowData: TypeAlias = Any


def batches_of(data: ArrowData) -> Iterator[pa.RecordBatch]:
    """The record batches of ``data``, without a copy where its library needs none. Raises TypeError."""
    found = _own(data)
    if found is not None:
        yield from found
    elif isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict)):
        for one in data:
            inner = _own(one)
            if inner is None:
                raise _no_arrow_data(one)
            yield from inner
    else:
        raise _no_arrow_data(data)


def _own(data: object) -> Iterable[pa.RecordBatch] | None:
    """Batches of one object, at least one; None if it does not speak Arrow."""
    if isinstance(data, pa.RecordBatch):
        return [data]
    if hasattr(data, "__arrow_c_stream__"):
        own = isinstance(data, pa.RecordBatchReader)  # else its errors would lose their types
        return _of_stream(data if own else pa.RecordBatchReader.from_stream(data))
    if hasattr(data, "__arrow_c_array__"):
        return [pa.record_batch(data)]
    return None


def _of_stream(stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    empty = True
    for batch in stream:
        empty = False
        yield batch
    if empty:
        yield pa.RecordBatch.from_pylist([], stream.schema)


def _no_arrow_data(data: object) -> TypeError:
    return TypeError(
        f"{type(data).__name__} where Arrow data belongs (record batches, a table, a data frame): "
        "kpl_codec.deaggregate takes KinesisRecords, kpl_codec.adapters.kinesis_records makes them"
    )


def plain_schema(schema: ArrowData) -> pa.Schema:
    """``schema`` with text and bytes that are views (polars has such) as large text and bytes: pyarrow
    computes little with views."""
    schema = schema if isinstance(schema, pa.Schema) else pa.schema(schema)
    fields = [field.with_type(_plain(field.type)) for field in schema]
    return pa.schema(fields, schema.metadata)


def plain(batch: ArrowData) -> pa.RecordBatch:
    """``batch`` with the types of `plain_schema`; as it is if it has them."""
    batch = batch if isinstance(batch, pa.RecordBatch) else pa.record_batch(batch)
    schema = plain_schema(batch.schema)
    return batch if schema.equals(batch.schema) else batch.cast(schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    if kind == pa.string_view():
        return pa.large_string()
    if kind == pa.binary_view():
        return pa.large_binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain(kind.value_type), kind.ordered)
    return kind


def filled(items: Iterable[tuple[T, int]], max_bytes: int) -> Iterator[list[T]]:
    """The items, each given with its size, in lists of at most ``max_bytes``, or of one item. What is held
    comes before an error of ``items``."""
    held: list[T] = []
    size = 0
    try:
        for item, more in items:
            # SPK-4: "An output batch MUST stay within its limit of bytes unless it holds one user record
            # only, whatever the input holds."
            if held and size + more > max_bytes:
                yield held
                held, size = [], 0
            held.append(item)
            size += more
            if size >= max_bytes:
                yield held
                held, size = [], 0
    except KplError:
        if held:
            yield held
        raise
    if held:
        yield held


def coalesce(batches: Iterable[pa.RecordBatch], max_batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches of at most ``max_batch_bytes``, dictionaries counted as written out; one
    of a quarter of that stays."""

    def sized(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        quarter = max_batch_bytes // 4
        size = batch.nbytes if batch.nbytes >= quarter else _size(batch)
        return batch, size if size < quarter else max_batch_bytes

    return map(_join, filled(map(sized, batches), max_batch_bytes))


def _size(batch: pa.RecordBatch) -> int:
    """Bytes of a batch whose dictionary arrays are written out, at most."""
    coded = (column.dictionary for column in batch.columns if pa.types.is_dictionary(column.type))
    longest = (pc.max(pc.binary_length(words)).as_py() or 0 for words in coded)
    return int(batch.nbytes + batch.num_rows * sum(longest))


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0]
