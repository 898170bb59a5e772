"""Makes columns from objects, for Kinesis records that the compiled parser cannot decide, and for all
aggregates without the compiled extension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ..deaggregation.policies import Counts, Opener
from ..deaggregation.records import DeaggregatedRecord
from ..errors import DecodeError
from ..shards.placement import Placement
from .layout import TAGS_FIELD, Layout, Source, cuts, hash_key_bytes, tag_values

#: About so many bytes a defect adds to a row.
_DEFECT_BYTES = 128


def object_batches(
    source: Source, start: int, end: int, layout: Layout, opener: Opener, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The user records of the rows ``start`` to before ``end``, by one run of ``opener``. The user records
    opened before an error come before the error."""
    width = source.width()
    held: list[DeaggregatedRecord] = []
    rows: list[int] = []
    firsts: list[bool] = []
    size = 0
    try:
        opened = opener.open(iter(source.kinesis_records(start, end)))  # one by one
        for row, user_records in zip(range(start, end), opened, strict=True):
            for number, user_record in enumerate(user_records):
                weight = int(width[row]) + 4 * len(user_record.partition_key or "") + len(user_record.data)
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

    def put(name: str, kind: pa.DataType, values: list[Any]) -> None:
        columns[name] = pa.array(values, kind)

    put("subSequenceNumber", pa.int64(), [r.sub_sequence_number for r in records])
    put("aggregated", pa.bool_(), [r.aggregated for r in records])
    put("partitionKey", pa.string(), [r.partition_key for r in records])
    put("explicitHashKey", pa.string(), [r.explicit_hash_key for r in records])
    put("data", pa.binary(), [r.data for r in records])
    if layout.tags:
        put("tags", TAGS_FIELD.type, [tag_values(r.tags) for r in records])
    if layout.placement:
        columns |= placement_columns([r.placement for r in records])
    if layout.report:
        first = [r.defects[0] if r.defects else None for r in records]
        put("kcl", pa.string(), [r.kcl for r in records])
        put("error", pa.string(), [d.code if d is not None else None for d in first])
        put("errorOffset", pa.int64(), [d.offset if d is not None else None for d in first])
        put("errorRecordIndex", pa.int64(), [d.record_index if d is not None else None for d in first])
        put("errorRequirement", pa.string(), [d.requirement if d is not None else None for d in first])
        put("errorText", pa.string(), [d.describe() if d is not None else None for d in first])
        put("errorCount", pa.int64(), [len(r.defects) for r in records])
        put("firstOfRecord", pa.bool_(), firsts)
    return layout.batch(columns, len(records))


def placement_columns(places: list[Placement | None]) -> dict[str, pa.Array]:
    """The placement columns, one row for each Placement; None where nothing is known."""
    known = [(None, None, None, None, None, None) if place is None else place for place in places]
    return {
        "hashKey": pa.array([hash_key_bytes(place[1]) for place in known], pa.binary()),
        "expectedShardId": pa.array([place[3] for place in known], pa.string()),
        "placement": pa.array([place[0] and place[0].value for place in known], pa.string()),
        "aggregatePlacement": pa.array([place[5] for place in known], pa.string()),
        "inRange": pa.array([place[4] for place in known], pa.bool_()),
    }


def no_data_batches(
    source: Source, start: int, end: int, layout: Layout, counts: Counts, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Rows whose data is null."""
    counts.kinesis_records += end - start
    counts.user_records += end - start
    counts.defects["no-data"] += end - start
    for first, last in cuts(source.width()[start:end], max_bytes):
        count = last - first
        names = (*layout.shared, "partitionKey", "explicitHashKey")
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
