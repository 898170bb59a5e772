"""Makes batches of captured Kinesis records and of data that cannot be read, and finds the shard of each
record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ..format.records import KinesisRecord, opening_of
from ..shards.sequence_numbers import sequence_hint
from ..shards.shard_map import ShardMap

_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_ROWS = 2000
#: The source of a record's shard where the path and the sequence number name different ones: it has none.
CONTRADICTORY = "contradictory"
_SHARD_IN_PATH = re.compile(r"shardId-[0-9]{12}")

CAPTURE_SCHEMA = pa.schema(
    [
        ("streamName", pa.string()),
        ("shardId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("partitionKey", pa.string()),
        ("explicitHashKey", pa.string()),
        ("subSequenceNumber", pa.int64()),
        ("aggregated", pa.bool_()),  # true where it was in an aggregated record that was opened before
        ("openedBy", pa.string()),  # of what was opened before: kcl or other
        ("data", pa.binary()),
        ("approximateArrivalTimestamp", pa.timestamp("us", "UTC")),
        ("file", pa.string()),
        ("position", pa.int64()),  # byte offset of the JSON value, or row of the Parquet file
        ("line", pa.int64()),  # from 1; null if only the byte offset is known
        ("recordIndex", pa.int64()),  # which record of a JSON value of several, from 0
        ("captureError", pa.string()),
        ("captureText", pa.string()),
    ]
)


def capture_batch(columns: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in CAPTURE_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=CAPTURE_SCHEMA)


class CaptureRows:
    """Collects rows of one file, or of a shard, into batches. ``has_rows``: whether there was a record, a
    value without records, or something unreadable."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0
        self.has_rows = False

    def record(
        self,
        record: KinesisRecord,
        stream: str | None,
        position: int | None = None,
        line: int | None = None,
        index: int | None = None,
    ) -> None:
        """Adds a Kinesis record. ``position``: of the JSON value (byte offset) or row in the file; ``index``:
        of the record in that value, from 0; None if it is one record."""
        opening = opening_of(record)
        self._add(
            stream,
            record.shard_id,
            record.sequence_number,
            record.partition_key,
            record.explicit_hash_key,
            record.sub_sequence_number,
            None if opening is None else opening.aggregated or None,
            None if opening is None else opening.by,
            record.data,
            record.approximate_arrival_timestamp,
            *(self._path, position, line, index),
            *(None, None),
        )
        self._bytes += len(record.data or b"")  # a row of a Parquet file may have null as data

    def unreadable(
        self, code: str, text: str, position: int, line: int | None = None, index: int | None = None
    ) -> None:
        self._add(*(None,) * 10, self._path, position, line, index, code, text[:500])

    def _add(self, *row: Any) -> None:
        self._rows.append(row)
        self._bytes += 100
        self.has_rows = True

    def full(self) -> bool:
        return self._bytes >= _BATCH_BYTES or len(self._rows) >= _BATCH_ROWS

    def take(self) -> Iterator[pa.RecordBatch]:
        if self._rows:
            columns = dict(zip(CAPTURE_SCHEMA.names, zip(*self._rows, strict=True), strict=True))
            self._rows, self._bytes = [], 0
            yield pa.RecordBatch.from_pydict(columns, CAPTURE_SCHEMA)


def error_text(error: Exception) -> str:
    """The first line of an error's text; the name of its class if it has no text."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def add_shards(batch: pa.RecordBatch, shard_map: ShardMap | None, schema: pa.Schema) -> pa.RecordBatch:
    """The columns ``schema`` of the batch, with ``shardId`` where `shard_of` knows it, and ``shardIdFrom``:
    given, path, sequence-number, map, null, or `CONTRADICTORY`."""
    shard_ids = batch["shardId"].cast(pa.string())
    origins: pa.Array = pa.repeat("given", batch.num_rows)
    if shard_ids.null_count:
        only = next(iter(shard_map)) if shard_map is not None and len(shard_map) == 1 else None
        files = batch["file"].to_pylist() if "file" in batch.schema.names else [""] * batch.num_rows
        rows = zip(shard_ids.to_pylist(), files, batch["sequenceNumber"].to_pylist(), strict=True)
        pairs = [
            (shard_id, "given") if shard_id is not None else shard_of(file or "", number, only)
            for shard_id, file, number in rows
        ]
        shard_ids, origins = (pa.array(column, pa.string()) for column in zip(*pairs, strict=True))
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns |= {"shardId": shard_ids, "shardIdFrom": origins}
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def shard_of(
    file: str, sequence_number: str | None, only: str | None = None
) -> tuple[str | None, str | None]:
    """The shard of a record without a shard id, and the source of that: path, sequence-number, map,
    `CONTRADICTORY`; else None. ``only``: the only shard of the map."""
    # SPK-16: "Where a captured record names no shard, the one in the file's path is taken, else the one
    # that the sequence number hints at, else the only one of the map; the row MUST say so."
    names, hint = _SHARD_IN_PATH.findall(file), sequence_hint(sequence_number)
    if names:
        # SPK-122: "Where a file's path names another shard than the sequence number of a record hints at,
        # the record MUST come without a shard, and a finding MUST name the file and both shards."
        contradicted = hint is not None and hint.shard_id != names[-1]
        return (None, CONTRADICTORY) if contradicted else (names[-1], "path")
    if hint is not None:
        return hint.shard_id, "sequence-number"
    return (only, "map") if only is not None else (None, None)
