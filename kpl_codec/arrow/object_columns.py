"""Makes columns of the objects of Kinesis records that the compiled parser cannot decide, and of all
aggregates without the compiled extension."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ..deaggregation.counts import Counts
from ..deaggregation.policies import Opener
from ..deaggregation.records import DeaggregatedRecord
from ..errors import DecodeError
from .layout import KEYS_AND_DATA, TAGS_FIELD, Layout, Source, cuts, placement_columns, tag_values

#: About so many bytes a defect adds to a row.
_DEFECT_BYTES = 128


def object_batches(
    source: Source, start: int, end: int, layout: Layout, opener: Opener, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The user records of the rows ``start`` to before ``end``, opened by ``opener``. Those opened before an
    error come before the error."""
    width = source.width()[start:end].tolist()
    held: list[DeaggregatedRecord] = []
    rows: list[int] = []
    firsts: list[bool] = []
    size = 0
    try:
        for row, record in enumerate(source.kinesis_records(start, end), start):
            for number, user_record in enumerate(opener.open_one(record)):
                keys = len(user_record.partition_key or "") + len(user_record.explicit_hash_key or "")
                weight = width[row - start] + 4 * keys + len(user_record.data)
                weight += _DEFECT_BYTES * bool(user_record.defects)
                if held and size + weight > max_bytes:
                    yield _batch(source, rows, firsts, layout, held)
                    held, rows, firsts, size = [], [], [], 0
                held.append(user_record)
                rows.append(row)
                firsts.append(number == 0)
                size += weight
    except DecodeError:
        if held:
            yield _batch(source, rows, firsts, layout, held)
        raise
    if held:
        yield _batch(source, rows, firsts, layout, held)


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
