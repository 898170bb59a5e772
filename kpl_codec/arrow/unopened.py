"""Rows that stay unchanged: user records that were opened before, and plain records."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..deaggregation.counts import Counts
from ..deaggregation.kcl import fate_of_sound
from ..deaggregation.rows import hash_key_or_none
from ..format.hash_keys import partition_key_hashes
from ..shards.placement import Judge, Judged, Placement
from .layout import (
    KEPT,
    KEYS_AND_DATA,
    Layout,
    Numbers,
    Source,
    cuts,
    judged_columns,
    lengths,
    placement_columns,
    values_of,
)


class LastRow(NamedTuple):
    """The values of an opened row that show whether the next row is from the same Kinesis record."""

    shard_id: str | None
    sequence_number: str | None
    sub_sequence_number: int


class UnopenedRows:
    """Copies rows to the output. State: the last row, if it was opened before."""

    def __init__(self, layout: Layout, judge: Judge | None, counts: Counts) -> None:
        self._layout, self._judge, self._counts = layout, judge, counts
        self._last: LastRow | None = None

    def forget(self) -> None:
        """The next rows are of another kind."""
        self._last = None

    def batches(self, source: Source, start: int, end: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows ``start`` to before ``end``, without a copy of their data."""
        self._counts.kinesis_records += end - start
        self._counts.user_records += end - start
        names = ("partitionKey", "explicitHashKey", "data")
        weights = source.width()[start:end] + sum(
            lengths(source.columns[name].slice(start, end - start)) for name in names
        )
        for first, last in cuts(weights, max_bytes):
            yield self._batch(source, start + first, last - first)

    def _batch(self, source: Source, start: int, count: int) -> pa.RecordBatch:
        layout = self._layout
        names = (*layout.shared, *filter(layout.wants, KEYS_AND_DATA))
        columns = {name: source.columns[name].slice(start, count) for name in names}
        columns["subSequenceNumber"] = pa.array(np.zeros(count, np.int64))
        columns["aggregated"] = pa.array(np.zeros(count, bool))
        if layout.placement:
            columns |= self._place(source, start, count)
        if layout.report:
            columns["kcl"] = pa.repeat(fate_of_sound(None), count)
            columns["errorCount"] = pa.array(np.zeros(count, np.int64))
            columns["firstOfRecord"] = pa.array(np.ones(count, bool))
        if source.opened is not None and source.opened[start : start + count].any():
            self._keep(source, start, count, columns)
        else:
            self._last = None
        return layout.batch(columns, count)

    def _place(self, source: Source, start: int, count: int) -> dict[str, pa.Array]:
        judge = self._judge
        assert judge is not None

        def values(name: str) -> list[Any]:
            column = source.columns.get(name)
            return [None] * count if column is None else values_of(column.slice(start, count))

        places: list[Placement | None] = []
        keys = zip(*map(values, ("partitionKey", "explicitHashKey", "shardId")), strict=True)
        if source.opened is None:
            partition_keys, ehks, shard_ids = zip(*keys, strict=True)
            if None not in partition_keys and ehks.count(None) == count:
                hash_keys = partition_key_hashes(partition_keys)
                judged: list[Judged] = []
                for shard_id, run in groupby(shard_ids):
                    of = slice(len(judged), len(judged) + sum(1 for _ in run))
                    judged += judge.on(shard_id).judge(hash_keys[of])[1]
                return judged_columns(hash_keys, zip(*judged, strict=True), self._layout)
            for pk, ehk, shard_id in zip(partition_keys, ehks, shard_ids, strict=True):
                hash_key = hash_key_or_none(pk, ehk)
                places.append(judge.on(shard_id).place(hash_key, certain=ehk is not None))
            return placement_columns(places, self._layout)
        known = zip(*map(values, ("aggregated", "subSequenceNumber", "error", "hashKey")), strict=True)
        for (pk, ehk, shard_id), (aggregated, sub, error, own) in zip(keys, known, strict=True):
            if error is not None and (aggregated or sub):
                # The keys of a defective row may be others than those it was hashed by, or not its own.
                hash_key = None if own is None else int.from_bytes(own, "big")
                if own is None and not aggregated:
                    places.append(None)  # a frame that could not be opened
                    continue
            else:
                hash_key = hash_key_or_none(pk, ehk)
            # A user record from an aggregate has no other hash key.
            certain = ehk is not None or bool(aggregated)
            places.append(judge.on(shard_id).place(hash_key, certain=certain))
        return placement_columns(places, self._layout)

    def _keep(self, source: Source, start: int, count: int, columns: dict[str, Any]) -> None:
        """User records that were opened before keep their own values."""
        opened = source.opened[start : start + count]  # type: ignore[index]
        for name in KEPT:
            own = source.columns.get(name)
            at = self._layout.schema.get_field_index(name)
            if own is None or at < 0 or (own.null_count == len(own) and name in _STAND_INS):
                continue
            now = columns.get(name, pa.nulls(count, self._layout.schema.field(at).type))
            columns[name] = pc.if_else(pa.array(opened), own.slice(start, count), now)
        if self._layout.wants("firstOfRecord") and "firstOfRecord" not in source.columns:
            columns["firstOfRecord"] = pa.array(self._first_of_record(source, start, opened))

    def _first_of_record(self, source: Source, start: int, opened: Numbers) -> list[bool]:
        """For each row, whether it is from another Kinesis record than the row before."""
        first = []
        names = ("shardId", "sequenceNumber", "subSequenceNumber")
        known = (values_of(source.columns[name].slice(start, len(opened))) for name in names)
        for shard, number, sub, was_opened in zip(*known, opened.tolist(), strict=True):
            row = LastRow(shard, number, sub or 0) if was_opened else None
            first.append(not _same_record(self._last, row))
            self._last = row
        return first


def _same_record(last: LastRow | None, row: LastRow | None) -> bool:
    """Whether two adjacent rows are from the same Kinesis record."""
    if last is None or row is None or last[:2] != row[:2]:
        return False
    return row.sub_sequence_number > 0 or last.sub_sequence_number == -1


#: Columns that `Source` fills with null where a batch lacks them; null says nothing there.
_STAND_INS = ("subSequenceNumber", "aggregated")
