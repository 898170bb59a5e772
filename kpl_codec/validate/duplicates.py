"""Kinesis records that were captured more than once: the rows that tasks leave of each are grouped, part by
part where there are many. Memory: the rows of one part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..captures import Location
from ..findings import Finding

_KEYS = ["streamName", "shardId", "sequenceNumber"]
RECORDS_SCHEMA = pa.schema([*((name, pa.string()) for name in (*_KEYS, "file")), ("line", pa.int64())])
#: Repeated Kinesis records that get a finding each.
MAX_LISTED = 1000
#: Rows that are grouped at a time: about 200 bytes each.
MAX_GROUPED = 1_000_000


def find_duplicates(work: Location) -> list[Finding]:
    """A finding for each of MAX_LISTED Kinesis records that tasks saw more than once, and one for all
    others."""
    system, inner = (work / "kinesis-records").filesystem()
    dataset = ds.dataset(inner, RECORDS_SCHEMA, "parquet", system)
    count = -(-dataset.count_rows() // MAX_GROUPED)
    listed: list[Finding] = []
    records = times = 0
    for part in range(count):
        rows = pa.Table.from_batches(_rows(dataset, part, count), RECORDS_SCHEMA)
        # The last place is reported, one with a line before one without: nulls come at the end.
        rows = rows.sort_by([("file", "descending"), ("line", "descending")])
        whole = pc.ScalarAggregateOptions(skip_nulls=False)  # file and line of the same row
        counted: list[Any] = [([], "count_all"), ("file", "first", whole), ("line", "first", whole)]
        groups = rows.group_by(_KEYS, use_threads=False).aggregate(counted)
        groups = groups.filter(pc.greater(groups["count_all"], 1))
        records += groups.num_rows
        times += pc.sum(groups["count_all"]).as_py() or 0
        first = groups.sort_by([(name, "ascending") for name in _KEYS]).slice(0, MAX_LISTED)
        # The parts differ by a hash of the key, so the first of all are among the first of each.
        listed = sorted([*listed, *map(_finding, first.to_pylist())], key=_order)[:MAX_LISTED]
    if records > len(listed):
        detail = f"{records - len(listed):,} more Kinesis records were captured more than once; "
        rest = times - sum(finding.user_records or 0 for finding in listed)
        listed.append(Finding(kind="duplicate", user_records=rest, detail=detail + "they are not listed"))
    return listed


def _order(finding: Finding) -> tuple[Any, ...]:
    return finding.shard_id or "", finding.sequence_number, finding.file or "", finding.line or 0


def _rows(dataset: ds.Dataset, part: int, parts: int) -> Iterator[pa.RecordBatch]:
    for batch in dataset.to_batches():
        if parts > 1:
            numbers = batch["sequenceNumber"].to_pylist()
            ours = [crc32(text.encode()) % parts == part for text in numbers]
            batch = batch.filter(pa.array(ours, pa.bool_()))
        yield batch


def _finding(group: dict[str, Any]) -> Finding:
    return Finding(
        kind="duplicate",
        shard_id=group["shardId"],
        sequence_number=group["sequenceNumber"],
        file=group["file_first"],
        line=group["line_first"],
        user_records=group["count_all"],
        detail=f"captured {group['count_all']} times",
    )
