"""Makes columns of Kinesis records that the compiled parser cannot decide, and of all aggregates without the
compiled extension: of sound aggregates by their parts, of defective ones by an object per user record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ..deaggregation.counts import Counts
from ..deaggregation.policies import Opener
from ..deaggregation.records import DeaggregatedRecord
from ..errors import DecodeError
from ..format.message import AggregatedRecord
from .aggregates import SoundAggregate, aggregate_batches
from .layout import KEYS_AND_DATA, TAGS_FIELD, Layout, Source, cuts, lengths, placement_columns, tag_values

#: About so many bytes a defect adds to a row.
_DEFECT_BYTES = 128


def object_batches(
    source: Source,
    start: int,
    end: int,
    layout: Layout,
    opener: Opener,
    known: dict[int, AggregatedRecord],
    max_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """The user records of the rows ``start`` to before ``end``, opened by ``opener``. ``known``: the sound
    aggregates that are parsed, by row. The user records opened before an error come before the error."""
    width = source.width()[start:end].tolist()
    data_sizes = lengths(source.data.slice(start, end - start)).tolist()
    # Either aggregates or single user records.
    aggregates: list[SoundAggregate] = []
    held: list[DeaggregatedRecord] = []
    rows: list[int] = []
    firsts: list[bool] = []
    size = 0

    def flush() -> Iterator[pa.RecordBatch]:
        nonlocal aggregates, held, rows, firsts, size
        if aggregates:
            yield from aggregate_batches(source, layout, rows, aggregates, max_bytes)
        elif held:
            yield _batch(source, rows, firsts, layout, held)
        aggregates, held, rows, firsts, size = [], [], [], [], 0

    try:
        for row, record in enumerate(source.kinesis_records(start, end, known), start):
            user_records = opener.open_one(record, known.get(row))
            if isinstance(user_records, SoundAggregate):
                if held or size >= max_bytes:
                    yield from flush()
                aggregates.append(user_records)
                rows.append(row)
                size += data_sizes[row - start] + len(user_records.parsed) * width[row - start]
                continue
            if aggregates:
                yield from flush()
            for number, user_record in enumerate(user_records):
                weight = width[row - start] + 4 * len(user_record.partition_key or "") + len(user_record.data)
                weight += _DEFECT_BYTES * bool(user_record.defects)
                if held and size + weight > max_bytes:
                    yield from flush()
                held.append(user_record)
                rows.append(row)
                firsts.append(number == 0)
                size += weight
    except DecodeError:
        yield from flush()
        raise
    yield from flush()


def _batch(
    source: Source, rows: list[int], firsts: list[bool], layout: Layout, records: list[DeaggregatedRecord]
) -> pa.RecordBatch:
    where = pa.array(rows, pa.int64())
    columns = {name: source.columns[name].take(where) for name in layout.shared}

    def put(name: str, kind: pa.DataType, value: Callable[[DeaggregatedRecord], Any]) -> None:
        if layout.wants(name):
            columns[name] = pa.array(map(value, records), kind, size=len(records))

    def put_first(name: str, kind: pa.DataType, value: Callable[[DecodeError], Any]) -> None:
        """About the first defect of each row."""
        put(name, kind, lambda r: value(r.defects[0]) if r.defects else None)

    put("subSequenceNumber", pa.int64(), lambda r: r.sub_sequence_number)
    put("aggregated", pa.bool_(), lambda r: r.aggregated)
    put("partitionKey", pa.string(), lambda r: r.partition_key)
    put("explicitHashKey", pa.string(), lambda r: r.explicit_hash_key)
    put("data", pa.binary(), lambda r: r.data)
    put("tags", TAGS_FIELD.type, lambda r: tag_values(r.tags))
    if layout.placement:
        columns |= placement_columns([r.placement for r in records], layout)
    put("kcl", pa.string(), lambda r: r.kcl)
    put_first("error", pa.string(), lambda d: d.code)
    put_first("errorOffset", pa.int64(), lambda d: d.offset)
    put_first("errorRecordIndex", pa.int64(), lambda d: d.record_index)
    put_first("errorRequirement", pa.string(), lambda d: d.requirement)
    put_first("errorText", pa.string(), lambda d: d.describe())
    put("errorCount", pa.int64(), lambda r: len(r.defects))
    if layout.wants("firstOfRecord"):
        columns["firstOfRecord"] = pa.array(firsts, pa.bool_())
    return layout.batch(columns, len(records))


def no_data_batches(
    source: Source, start: int, end: int, layout: Layout, counts: Counts, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Rows whose data is null."""
    counts.kinesis_records += end - start
    counts.user_records += end - start
    counts.defects["no-data"] += end - start
    for first, last in cuts(source.width()[start:end], max_bytes):
        count = last - first
        names = (*layout.shared, *filter(layout.wants, KEYS_AND_DATA[:2]))
        columns = {name: source.columns[name].slice(start + first, count) for name in names}
        columns["subSequenceNumber"] = pa.array(np.zeros(count, np.int64))
        columns["aggregated"] = pa.array(np.zeros(count, bool))
        if layout.report:
            columns["error"] = pa.repeat("no-data", count)
            columns["errorRequirement"] = pa.repeat("SPK-1", count)
            columns["errorText"] = pa.repeat("the row has no data", count)
            columns["errorCount"] = pa.array(np.ones(count, np.int64))
            columns["firstOfRecord"] = pa.array(np.ones(count, bool))
        yield layout.batch(columns, count)
