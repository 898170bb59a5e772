"""Batches of captured Kinesis records, and of data that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ..format.records import KinesisRecord

_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_ROWS = 2000

CAPTURE_SCHEMA = pa.schema(
    [
        ("streamName", pa.string()),
        ("shardId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("partitionKey", pa.string()),
        ("explicitHashKey", pa.string()),
        ("subSequenceNumber", pa.int64()),
        ("data", pa.binary()),
        ("approximateArrivalTimestamp", pa.timestamp("us", "UTC")),
        ("file", pa.string()),
        ("position", pa.int64()),  # byte offset of the JSON value, or row of the Parquet file
        ("line", pa.int64()),  # from 1; null where only the byte offset is known
        ("recordIndex", pa.int64()),  # which record of the JSON value, from 0
        ("captureError", pa.string()),
        ("captureText", pa.string()),
    ]
)


def capture_batch(columns: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in CAPTURE_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=CAPTURE_SCHEMA)


class Rows:
    """Collects rows of one file, or of a shard, into batches."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0
        #: Whether there was a record, a value without records, or something unreadable.
        self.seen = False

    def record(
        self,
        record: KinesisRecord,
        stream: str | None,
        position: int | None = None,
        line: int | None = None,
        index: int | None = None,
    ) -> None:
        """Adds a Kinesis record; ``index``: which of the value at ``position`` of a file."""
        self._add(
            stream,
            record.shard_id,
            record.sequence_number,
            record.partition_key,
            record.explicit_hash_key,
            record.sub_sequence_number,
            record.data,
            record.approximate_arrival_timestamp,
            *(self._path, position, line, index),
            *(None, None),
        )
        self._bytes += len(record.data)

    def unreadable(
        self, code: str, text: str, position: int, line: int | None = None, index: int | None = None
    ) -> None:
        self._add(*(None,) * 8, self._path, position, line, index, code, text[:500])

    def _add(self, *row: Any) -> None:
        self._rows.append(row)
        self._bytes += 100
        self.seen = True

    def full(self) -> bool:
        return self._bytes >= _BATCH_BYTES or len(self._rows) >= _BATCH_ROWS

    def take(self) -> Iterator[pa.RecordBatch]:
        if self._rows:
            columns = list(zip(*self._rows, strict=True))
            self._rows, self._bytes = [], 0
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, CAPTURE_SCHEMA, strict=True)],
                schema=CAPTURE_SCHEMA,
            )


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
