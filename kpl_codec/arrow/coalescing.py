"""Joins small batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import KplError


def coalesce(batches: Iterable[pa.RecordBatch], max_batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches of at most ``max_batch_bytes``, dictionaries counted as written out; one
    of a quarter of that stays. What is held comes before an error of ``batches``."""
    held: list[pa.RecordBatch] = []
    size = 0
    try:
        for batch in batches:
            more = _size(batch)
            large = more >= max_batch_bytes // 4
            if held and (large or size + more > max_batch_bytes):
                yield _join(held)
                held, size = [], 0
            if large:
                yield batch
                continue
            held.append(batch)
            size += more
    except KplError:
        if held:
            yield _join(held)
        raise
    if held:
        yield _join(held)


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
