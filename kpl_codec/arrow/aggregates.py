"""Columns of sound aggregates, made of their parts without an object per user record.

A column of keys or verdicts is one small table, and for each user record the index of its value there. Text
and bytes are written out batch by batch: a small frame may hold one long key for many short user records.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..deaggregation.kcl import Fate
from ..format.message import AggregatedRecord
from ..format.records import KinesisRecord
from ..shards.placement import PlacedAggregate
from .layout import TAGS_FIELD, Layout, Numbers, Source, cuts, judged_columns, lengths, tag_values
from .outlines import DataInBatch


class SoundAggregate(NamedTuple):
    """A sound aggregate: the arguments of `rows.sound_rows`."""

    record: KinesisRecord
    parsed: AggregatedRecord
    placed: PlacedAggregate | None
    fate: Fate | None
    tags: bool


def aggregate_batches(
    source: Source, layout: Layout, rows: list[int], aggregates: list[SoundAggregate], max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The user records of ``aggregates``, which are in these rows of the input, in batches of at most
    ``max_bytes`` (or one user record)."""
    if not rows:
        return
    parts = [aggregate.parsed.columns() for aggregate in aggregates]
    pk_tables, ehk_tables, pks, ehks, data, tags = zip(*parts, strict=True)
    counts = np.array(list(map(len, data)))
    numbers = np.repeat(np.arange(len(rows)), counts)
    subs = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    records = np.repeat(np.array(rows), counts)
    # Small columns by name, and for each user record the index of its values in them.
    tables: list[tuple[dict[str, pa.Array], Numbers]] = []
    if all(isinstance(of, DataInBatch) for of in data):
        firsts = np.array([of.first for of in data])
        tables.append(({"data": data[0].values}, np.repeat(firsts, counts) + 2 * subs))
    else:
        values = pa.array(list(chain.from_iterable(data)), pa.binary())
        tables.append(({"data": values}, np.arange(len(numbers))))
    values = pa.array(list(chain.from_iterable(pk_tables)), pa.string())
    tables.append(({"partitionKey": values}, _indices(pk_tables, pks, counts)))
    if any(of is not None for of in ehks):
        values = pa.array([*chain.from_iterable(ehk_tables), None], pa.string())
        tables.append(({"explicitHashKey": values}, _indices(ehk_tables, ehks, counts)))
    weights = source.width()[records]
    for table, found in tables:
        weights += sum(lengths(values)[found] for values in table.values())
    if layout.placement:
        placed = [aggregate.placed for aggregate in aggregates if aggregate.placed is not None]
        _, _, hash_keys, judged, used = zip(*placed, strict=True)
        words = zip(*chain.from_iterable(judged), strict=True)
        places = judged_columns(list(chain.from_iterable(hash_keys)), words, layout)
        tables.append((places, _indices(hash_keys, used, counts)))
    if layout.wants("kcl"):
        tables.append(({"kcl": pa.array([aggregate.fate for aggregate in aggregates], pa.string())}, numbers))
    tables = [(layout.tables(table), found) for table, found in tables]
    for first, last in cuts(weights, max_bytes):
        of, count = slice(first, last), last - first
        where = pa.array(records[of])
        columns = {name: source.columns[name].take(where) for name in layout.shared}
        for table, found in tables:
            at = pa.array(found[of])
            columns |= {name: values.take(at) for name, values in table.items()}
        columns["subSequenceNumber"] = pa.array(subs[of])
        columns["aggregated"] = pa.repeat(True, count)
        if layout.wants("tags"):
            there = zip(numbers[of].tolist(), subs[of].tolist(), strict=True)
            made = [tag_values(tags[n][sub]) if tags[n] and aggregates[n].tags else None for n, sub in there]
            columns["tags"] = pa.array(made, TAGS_FIELD.type)
        if layout.report:
            columns["errorCount"] = pa.array(np.zeros(count, np.int64))
            columns["firstOfRecord"] = pa.array(subs[of] == 0)
        yield layout.batch(columns, count)


def _indices(tables: Sequence[Any], indices: Sequence[Any], counts: Numbers) -> Numbers:
    """For each user record the index of its entry among those of all ``tables``; that after them for none.

    ``indices``: for each aggregate those in its own table, -1 for none; None: it has none.
    """
    sizes = np.array(list(map(len, tables)))
    each = (
        of if isinstance(of, memoryview) else array("q", [-1] * n if of is None else of)
        for of, n in zip(indices, counts.tolist(), strict=True)
    )
    found = np.frombuffer(b"".join(each), np.int64)
    shifted: Numbers = found + np.repeat(np.cumsum(sizes) - sizes, counts)
    shifted[found < 0] = sizes.sum()
    return shifted
