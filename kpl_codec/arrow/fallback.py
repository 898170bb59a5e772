"""Columns out of objects, for the few frames that are not certainly sound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ..deaggregation.policies import Counts, Policy, deaggregate
from ..deaggregation.records import DeaggregatedRecord
from ..errors import DecodeError
from ..format.hash_keys import hash_key_to_bytes
from ..shards.shard_map import ShardMap
from .layout import TAGS_FIELD, Layout, Source, tag_values


def defective_rows(
    source: Source,
    row: int,
    layout: Layout,
    policy: Policy,
    shard_map: ShardMap | None,
    counts: Counts,
    max_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """The user records of one row that is not certainly sound, through `deaggregate`, batch by batch."""
    if source.data_at(row) is None:
        yield _no_data(source, row, layout)
        counts.user_records += 1
        counts.defects["no-data"] += 1
        return
    result = deaggregate([source.kinesis_record(row)], policy, shard_map=shard_map)
    width = int(source.width()[row])
    held: list[DeaggregatedRecord] = []
    size = 0
    for user_record in result:
        held.append(user_record)
        size += (
            width
            + 4 * len(user_record.partition_key or "")
            + len(user_record.data)
            + 128 * bool(user_record.defects)
        )
        if size >= max_bytes:
            yield _objects(source, row, layout, held)
            held, size = [], 0
    if held:
        yield _objects(source, row, layout, held)
    counts.aggregated_records += result.counts.aggregated_records
    counts.user_records += result.counts.user_records
    counts.dropped.update(result.counts.dropped)
    counts.defects.update(result.counts.defects)


def _shared(source: Source, row: int, layout: Layout, count: int) -> dict[str, pa.Array]:
    where = pa.array(np.full(count, row))
    return {name: source.columns[name].take(where) for name in layout.shared}


def _no_data(source: Source, row: int, layout: Layout) -> pa.RecordBatch:
    columns = _shared(source, row, layout, 1)
    columns["partitionKey"] = source.columns["partitionKey"].slice(row, 1)
    columns["explicitHashKey"] = source.columns["explicitHashKey"].slice(row, 1)
    columns["subSequenceNumber"] = pa.array([0], pa.int64())
    columns["aggregated"] = pa.array([False])
    if layout.report:
        columns["error"] = pa.array(["no-data"])
        columns["errorRequirement"] = pa.array(["SPK-1"])
        columns["errorText"] = pa.array(["the row has no data"])
        columns["errorCount"] = pa.array([1], pa.int64())
    return layout.batch(columns, 1)


def _objects(source: Source, row: int, layout: Layout, records: list[DeaggregatedRecord]) -> pa.RecordBatch:
    """Columns out of objects, for the few that are made at all."""
    columns = _shared(source, row, layout, len(records))

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
        places = [r.placement for r in records]
        keys = [p.hash_key if p is not None else None for p in places]
        put("hashKey", pa.binary(), [hash_key_to_bytes(key) if key is not None else None for key in keys])
        put("expectedShardId", pa.string(), [p.expected_shard_id if p is not None else None for p in places])
        put("placement", pa.string(), [p.verdict.value if p is not None else None for p in places])
        put("aggregatePlacement", pa.string(), [p.aggregate if p is not None else None for p in places])
    if layout.report:
        first: list[DecodeError | None] = [r.defects[0] if r.defects else None for r in records]
        put("kcl", pa.string(), [r.kcl for r in records])
        put("error", pa.string(), [d.code if d is not None else None for d in first])
        put("errorOffset", pa.int64(), [d.offset if d is not None else None for d in first])
        put("errorRecordIndex", pa.int64(), [d.record_index if d is not None else None for d in first])
        put("errorRequirement", pa.string(), [d.requirement if d is not None else None for d in first])
        put("errorText", pa.string(), [d.describe() if d is not None else None for d in first])
        put("errorCount", pa.int64(), [len(r.defects) for r in records])
    return layout.batch(columns, len(records))
