"""Sound Kinesis records of one batch as columns, straight from their bytes: the compiled road.

`kpl_codec._speedups.Frames` reads all records of the batch, their digests side by side, and writes every
column of their user records in one go. What it is not certain of it leaves to the road of group.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ..compiled import speedups
from ..deaggregation.policies import Counts, Policy
from ..format.hash_keys import hash_key_from_bytes
from .layout import Layout, Source
from .placer import Placer


def _column(array: pa.Array) -> Any:
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    return speedups.Column(*array.buffers(), array.offset, len(array), wide)


def _flat(array: pa.Array) -> bool:
    """Whether rows can be written out by `Frames.spread`: text or bytes, and no nulls."""
    return array.null_count == 0 and array.type in (pa.string(), pa.binary())


class SideBySide:
    """The rows of ``source`` that the compiled parser is certain of (``certain``: a bool per row)."""

    def __init__(self, source: Source, layout: Layout, placer: Placer | None, policy: Policy) -> None:
        self._source, self._layout, self._policy = source, layout, policy
        self._frames = speedups.Frames(
            _column(source.data),
            _column(source.columns["partitionKey"]),
            _column(source.columns["explicitHashKey"]),
            pa.allocate_buffer,
            tags=layout.tags,
            hash_keys=placer is not None,
        )
        status = np.frombuffer(self._frames.status, np.uint8)
        self.certain = status != 0
        self._opened = status == 2
        self._kinds: np.ndarray[Any, Any] | None = None
        self._lost = np.zeros(source.rows, np.int64)
        if placer is not None:
            self._judge(placer)

    def _judge(self, placer: Placer) -> None:
        shard_ids, codes = self._source.shards()
        judged = self._frames.judge(codes, *placer.ranges(shard_ids), placer.endings)
        placements = [
            placer.judge(hash_key_from_bytes(key), shard_ids[shard], certain=certain)
            for key, shard, certain in judged
        ]
        self._expected = pa.array([placement.expected_shard_id for placement in placements], pa.string())
        self._verdicts = pa.array([placement.verdict.value for placement in placements], pa.string())
        self._kinds = np.frombuffer(self._frames.kinds(), np.uint8)
        foreign = self._kinds >= 2
        if self._policy == "kcl" and foreign.any():
            # KCL-4, as kcl.py: one user record outside the range takes the whole aggregate with it.
            starts = [self._frames.start(i) for i in range(self._source.rows + 1)]
            self._lost[foreign] = np.diff(starts)[foreign]
            self._frames.drop(foreign.astype(np.uint8))

    def batches(self, first: int, last: int, counts: Counts, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """The user records of certain rows ``first`` to before ``last``, in batches of at most
        ``max_bytes`` (or one user record)."""
        frames = self._frames
        start, stop = frames.start(first), frames.start(last)
        opens = bool(self._opened[first:last].any())
        counts.aggregated_records += int(self._opened[first:last].sum())
        counts.user_records += stop - start
        if lost := int(self._lost[first:last].sum()):
            counts.dropped["out-of-range"] += lost
        widths = self._source.width()
        while start < stop:
            end = frames.cut(start, stop, max_bytes, widths)
            yield self._write(start, end, opens)
            start = end

    def _write(self, start: int, stop: int, opens: bool) -> pa.RecordBatch:
        frames, source, layout, count = self._frames, self._source, self._layout, stop - start
        records = np.frombuffer(frames.record_numbers(start, stop), np.int32)
        where = pa.array(records)
        columns: dict[str, pa.Array] = {}

        def put(name: str, kind: pa.DataType, *buffers: Any) -> None:
            columns[name] = pa.Array.from_buffers(kind, count, [*buffers])

        if not opens:  # nothing but plain rows next to one another: no copy
            for name in (*layout.shared, "partitionKey", "explicitHashKey", "data"):
                columns[name] = source.columns[name].slice(int(records[0]), count)
        else:
            for name in layout.shared:
                own = source.columns[name]
                if own.null_count == len(own):
                    columns[name] = pa.nulls(count, own.type)
                elif _flat(own):
                    put(name, own.type, None, *frames.spread(_column(own), start, stop))
                else:
                    columns[name] = own.take(where)
            put("partitionKey", pa.string(), *frames.partition_keys(start, stop))
            hash_keys = frames.explicit_hash_keys(start, stop)
            if hash_keys is not None:
                put("explicitHashKey", pa.string(), *hash_keys)
            put("data", pa.binary(), None, *frames.user_data(start, stop))
        put("subSequenceNumber", pa.int64(), None, frames.sub_sequence_numbers(start, stop))
        put("aggregated", pa.bool_(), None, frames.aggregated(start, stop))
        dropped = np.zeros(1, bool)
        if self._kinds is not None:
            groups = frames.groups(start, stop)
            put("hashKey", pa.binary(), None, *frames.hash_keys(start, stop))
            columns["expectedShardId"] = _pick(self._expected, groups)
            columns["placement"] = _pick(self._verdicts, groups)
            kinds = self._kinds[records]
            columns["aggregatePlacement"] = _pick(_KINDS, kinds.astype(np.int32), empty=0)
            dropped = kinds >= 2
        if layout.report:
            if dropped.any():
                columns["kcl"] = _pick(_OUTCOMES, dropped.astype(np.int32))
            else:
                columns["kcl"] = _pick(_OUTCOMES, np.zeros(count, np.int32))
            columns["errorCount"] = pa.array(np.zeros(count, np.int64))
        return layout.batch(columns, count)


def _pick(table: pa.Array, numbers: Any, empty: int | None = None) -> pa.Array:
    """Items of a small table by int32 numbers; item ``empty`` stands for null."""
    numbers = np.frombuffer(numbers, np.int32)
    if table.null_count or (empty is not None and (numbers == empty).any()):
        return table.take(pa.array(numbers, mask=None if empty is None else numbers == empty))
    buffers = speedups.pick(_column(table), numbers, pa.allocate_buffer)
    return pa.Array.from_buffers(table.type, len(numbers), [None, *buffers])


_KINDS = pa.array(["", "whole", "mixed", "foreign"], pa.string())
_OUTCOMES = pa.array(["delivered", "dropped"], pa.string())
