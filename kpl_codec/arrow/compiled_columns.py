"""Columns of user records that compiled code (`kpl_codec._speedups.FrameColumns`) writes, each in one call.
object_columns.py opens the Kinesis records that the compiled parser cannot decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..base.compiled import prefer_compiled, speedups
from ..deaggregation.deaggregated_record import Counts, Drop
from ..deaggregation.kcl import result_of_sound
from ..deaggregation.policy_rules import PolicyRules
from ..shards.placement import AGGREGATE_KINDS, CodedShards, Placement, PlacementChecker
from .layout import (
    KEYS_AND_DATA,
    TAGS_FIELD,
    TYPES,
    VERDICT_VALUES,
    InputBatch,
    Layout,
    Numbers,
)

#: Bytes of data that are searched at a time.
_SEARCHED_BYTES = 1 << 20
#: Entries of the largest table by placement code; for more codes a sorted list is searched.
_TABLE_SIZE = 1 << 20

_Column, _FrameColumns = prefer_compiled("Column", None), prefer_compiled("FrameColumns", None)


def _column(array: pa.Array) -> Any:
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    return _Column(*array.buffers(), array.offset, len(array), wide)


def has_compiled_code() -> bool:
    return _FrameColumns is not None


class CompiledColumns:
    """The rows of ``source`` that the compiled parser can decide (``certain``: a bool for each row)."""

    def __init__(
        self,
        source: InputBatch,
        layout: Layout,
        judge: PlacementChecker | None,
        rules: PolicyRules,
    ) -> None:
        self._source, self._layout, self._judge, self._rules = source, layout, judge, rules
        opened = source.opened
        self._frames = _FrameColumns(
            _column(source.data),
            _column(source.columns["partitionKey"]),
            _column(source.columns["explicitHashKey"]),
            pa.allocate_buffer,
            hash_keys=judge is not None,
            closed=None if opened is None else opened.astype(np.uint8),
        )
        frames = self._frames
        makers = (partial(frames.values, what) for what in range(len(KEYS_AND_DATA)))
        self._makers: dict[str, Callable[[int, int], Any]] = dict(zip(KEYS_AND_DATA, makers, strict=True))
        status = np.frombuffer(frames.status, np.uint8)
        aggregated = status == np.uint8(speedups.State.AGGREGATED)
        self.certain: Numbers = aggregated | (status == np.uint8(speedups.State.PLAIN))
        self._opened = aggregated.astype(np.int32)
        self._width = source.width
        self._kinds: Numbers = np.zeros(source.rows, np.int32)
        #: The first output row of each Kinesis record.
        self._starts = np.frombuffer(frames.first_rows, np.uintp).astype(np.int64)
        self._drops: dict[int, Drop] = {}  # by Kinesis record
        if judge is not None:
            self._verdicts = _verdicts(frames, source, judge, layout)
            self._kinds = np.frombuffer(frames.kinds(), np.uint8).astype(np.int32)
            dropped = _DROPPED[self._kinds]
            if rules.as_kcl and dropped.any():
                places = source.columns["sequenceNumber"], source.columns["shardId"]
                user_records = np.diff(self._starts).tolist()
                for row in np.flatnonzero(dropped).tolist():
                    number, shard_id = (column[row].as_py() for column in places)
                    outside = frames.first_outside(row)
                    self._drops[row] = Drop(number, shard_id, user_records[row], "out-of-range", outside)
                frames.drop(dropped.astype(np.uint8))
                self._starts = np.frombuffer(frames.first_rows, np.uintp).astype(np.int64)
        #: The Kinesis record of each row.
        self._records = np.arange(source.rows, dtype=np.int32)
        if aggregated.any() or not self.certain.all():
            self._records = np.repeat(self._records, np.diff(self._starts))

    def beginning_with(self, beginnings: tuple[bytes, ...]) -> Numbers:
        """The numbers of the Kinesis records that have user records whose data begins so."""
        found = [np.zeros(0, np.int32)]
        start, stop = 0, len(self._records)
        while start < stop:
            end = self._frames.cut(start, stop, _SEARCHED_BYTES, self._width)
            data = pa.Array.from_buffers(pa.binary(), end - start, [*self._makers["data"](start, end)])
            begins = reduce(pc.or_, (pc.starts_with(data, beginning) for beginning in beginnings))
            found.append(self._records[start:end][begins.to_numpy(zero_copy_only=False)])
            start = end
        return np.concatenate(found)

    def drops(self, first: int, last: int) -> Iterable[Drop]:
        return filter(None, map(self._drops.get, range(first, last))) if self._drops else ()

    def batches(self, first: int, last: int, counts: Counts, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """The user records of the Kinesis records ``first`` to before ``last``, all of them certain, in
        batches of at most ``max_bytes`` (or one user record)."""
        frames = self._frames
        start, stop = int(self._starts[first]), int(self._starts[last])
        opened = int(np.count_nonzero(self._opened[first:last]))
        counts.kinesis_records += last - first
        counts.aggregated_records += opened
        counts.user_records += stop - start
        while start < stop:
            end = frames.cut(start, stop, max_bytes, self._width)
            yield self._write(start, end, opened > 0)
            start = end

    def _write(self, start: int, stop: int, opens: bool) -> pa.RecordBatch:
        frames, source, layout, count = self._frames, self._source, self._layout, stop - start
        wants = layout.wants
        records = self._records[start:stop]
        columns: dict[str, pa.Array] = {}

        def pick(name: str, table: pa.Array, numbers: Numbers) -> None:
            """A column of items of ``table`` by int32 indices, one for each row or one for all rows."""
            if len(table) == 1 or table.null_count == len(table):
                numbers = np.zeros(1, np.int32)
            if len(numbers) == 1 and not pa.types.is_dictionary(table.type):
                columns[name] = layout.repeat(name, table[int(numbers[0])], count)
            else:
                columns[name] = table.take(pa.array(np.broadcast_to(numbers, count)))

        def put(name: str, kind: pa.DataType, make: Callable[[int, int], Any]) -> None:
            """A column from the buffers that ``make`` gives; all null if it gives None."""
            buffers = make(start, stop)
            if buffers is not None:
                columns[name] = pa.Array.from_buffers(kind, count, [*buffers])

        if not opens:  # only plain rows, one after the other: no copy
            for name in (*layout.shared, *filter(wants, KEYS_AND_DATA)):
                columns[name] = source.columns[name].slice(int(records[0]), count)
        else:
            for name in layout.shared:
                own = source.columns[name]
                if own.null_count == len(own):
                    columns[name] = layout.repeat(name, pa.scalar(None, own.type), count)
                elif own.null_count == 0 and own.type in (pa.string(), pa.binary()):
                    put(name, own.type, partial(frames.spread, _column(own)))
                else:
                    columns[name] = pc.take(own, pa.array(records), boundscheck=False)
            for name in filter(wants, KEYS_AND_DATA):
                put(name, TYPES[name], self._makers[name])
        # The KCL discards tags (KCL-7).
        if wants("tags") and not self._rules.as_kcl:
            buffers = frames.tags(start, stop)
            if buffers is not None:
                columns["tags"] = _tags(count, *buffers)
        if wants("subSequenceNumber"):
            if opens:
                put("subSequenceNumber", pa.int64(), frames.sub_sequence_numbers)
            else:
                columns["subSequenceNumber"] = layout.repeat("subSequenceNumber", _zero(), count)
        if wants("firstOfRecord"):
            first = self._starts[records[0] : records[-1] + 1] - start
            columns["firstOfRecord"] = _marks(first[first >= 0], count)
        if wants("aggregated"):
            pick("aggregated", _no_yes(), _of_rows(self._opened, records))
        if self._judge is not None:
            numbers, tables = self._verdicts
            if tables:
                if len(numbers) > 1:
                    numbers = _one_if_equal(np.frombuffer(frames.of_keys(numbers, start, stop), np.int32))
                for name, table in tables.items():
                    pick(name, table, numbers)
            columns |= layout.row_values(
                self._judge,
                lambda: pa.Array.from_buffers(pa.binary(), count, [*frames.hash_keys(start, stop)]),
                lambda: source.columns["shardId"].take(pa.array(records)),
            )
        if wants("aggregatePlacement", "kcl"):
            kinds = _of_rows(self._kinds, records)
            tables = layout.value_tables(_kind_tables())
            for name, table in tables.items():
                pick(name, table, kinds)
        if wants("errorCount"):
            columns["errorCount"] = layout.repeat("errorCount", _zero(), count)
        return layout.batch(columns, count)


def _tags(rows: int, valid: Any, lists: Any, *texts: Any) -> pa.Array:
    kind = TAGS_FIELD.type.value_type
    count = int(np.frombuffer(lists, np.int32, rows + 1)[-1])
    keys = pa.Array.from_buffers(pa.string(), count, [None, *texts[:2]])
    values = pa.Array.from_buffers(pa.string(), count, [*texts[2:]])
    tags = pa.StructArray.from_arrays([keys, values], fields=list(kind))
    return pa.Array.from_buffers(TAGS_FIELD.type, rows, [valid, lists], children=[tags])


def _verdicts(
    frames: Any, source: InputBatch, judge: PlacementChecker, layout: Layout
) -> tuple[Numbers, dict[str, pa.Array]]:
    """For the columns that depend on the verdict: for each key the index of its verdict, or one for all,
    and by column the values of the distinct verdicts, which are made once."""
    shard_ids, shards = source.shards()
    coded = CodedShards(judge, shard_ids)
    frames.check_placement(shards, *coded.tables)
    distinct = np.array(frames.distinct_codes, np.int64)
    codes = np.frombuffer(frames.placement_codes, np.int64)
    if len(distinct) == 1:
        numbers = np.zeros(1, np.int32)
    elif coded.bound <= _TABLE_SIZE:
        table = np.zeros(coded.bound, np.int32)
        table[distinct] = np.arange(len(distinct))
        numbers = table[codes]
    else:
        numbers = np.searchsorted(distinct, codes).astype(np.int32)
    facts = map(coded.facts_of, distinct.tolist())
    placements = [Placement(verdict, None, None, expected, inside) for verdict, expected, inside in facts]
    tables = {
        name: pa.array(map(value, placements), TYPES[name], size=len(placements))
        for name, value in VERDICT_VALUES.items()
        if layout.wants(name)
    }
    # Mostly all user records have one verdict, even if their expected shards differ.
    same = {name: table[:1] for name, table in tables.items() if len(table.unique()) == 1}
    return numbers, layout.value_tables(tables | same)


def _one_if_equal(numbers: Numbers) -> Numbers:
    """The first number alone if all are equal, as they mostly are."""
    return numbers[:1] if (numbers == numbers[0]).all() else numbers


def _of_rows(numbers: Numbers, records: Numbers) -> Numbers:
    """Of ``numbers`` (one for each Kinesis record) that of each row; only one if all are equal."""
    distinct = _one_if_equal(numbers[records[0] : records[-1] + 1])
    return distinct if len(distinct) == 1 else numbers.take(records)


def _marks(places: Numbers, rows: int) -> pa.Array:
    """True at these rows, else false."""
    marks = np.zeros(rows, np.uint8)
    marks[places] = 1
    return pa.Array.from_buffers(
        pa.bool_(), rows, [None, pa.py_buffer(np.packbits(marks, bitorder="little"))]
    )


# Made at their first use: pyarrow then imports pandas where it is installed, which takes half a second.
@cache
def _zero() -> pa.Scalar:
    return pa.scalar(0, pa.int64())


@cache
def _no_yes() -> pa.Array:
    return pa.array([False, True])


@cache
def _kind_tables() -> dict[str, pa.Array]:
    """Kind and KCL result by the index of the kind in AGGREGATE_KINDS."""
    outcomes = [result_of_sound(kind) for kind in AGGREGATE_KINDS]
    return {
        "aggregatePlacement": pa.array(AGGREGATE_KINDS, pa.string()),
        "kcl": pa.array(outcomes, pa.string()),
    }


#: Whether the KCL drops it, by the index of the kind in AGGREGATE_KINDS.
_DROPPED = np.array([result_of_sound(kind) == "dropped" for kind in AGGREGATE_KINDS])
