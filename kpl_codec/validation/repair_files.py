"""The plan and the log of a repair. They may have been changed, cut off or copied since they were written:
readers raise InputError (unreadable) for what no repair wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from ..captures import InputError, Location, readable
from .repaired import Place, Repaired

#: Deliveries between two writes of the log; equally many more may be under way.
LOG_EVERY = 1000
#: Rows of a plan that are read at a time.
_AT_ONCE: Final = 250
#: Every aggregate has fewer user records.
_MOST_USER_RECORDS: Final = 1_000_000
#: The columns of a plan, in order.
PLAN: Final = pa.schema(
    [
        ("shardId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("subSequenceNumber", pa.int64()),
        ("expectedShardId", pa.string()),
        ("partitionKey", pa.string()),
        ("explicitHashKey", pa.string()),
        ("data", pa.large_binary()),
        ("tags", pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))),
        ("decision", pa.string()),
        ("cause", pa.string()),
    ]
)
#: Those that putting needs.
_READ: Final = [field for field in PLAN if field.name not in ("expectedShardId", "cause")]


def planned(plan: Location) -> Iterator[dict[str, Any]]:
    """The rows of a plan file. A row to put has a place, a key and data. Raises InputError."""
    system, inner = plan.opened()
    with readable(plan.path), pq.ParquetFile(inner, filesystem=system) as file:
        number = 0
        for batch in file.iter_batches(_AT_ONCE, columns=[field.name for field in _READ]):
            columns = [batch[field.name].cast(field.type) for field in _READ]
            for row in pa.RecordBatch.from_arrays(columns, schema=pa.schema(_READ)).to_pylist():
                if not _sound(row):
                    raise InputError(code="unreadable", path=plan.path, reason=f"row {number} is of no plan")
                yield row
                number += 1


def _sound(row: dict[str, Any]) -> bool:
    if row["decision"] != "put":
        return row["decision"] in ("already-delivered", "cannot")
    tags = row["tags"] or ()
    complete = all(row[name] is not None for name in ("shardId", "sequenceNumber", "partitionKey", "data"))
    return (
        complete
        and _may_be_sub_sequence_number(row["subSequenceNumber"])
        and all(tag is not None and tag["key"] is not None for tag in tags)
    )


def _may_be_sub_sequence_number(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST_USER_RECORDS


class Log:
    """The log of what was put, in segments that become visible when complete."""

    def __init__(self, folder: Location) -> None:
        self._folder, self._attempt, self._segment = folder, uuid4().hex, 0
        self._lines: list[str] = []

    def done(self) -> Repaired:
        """What earlier attempts have put. Raises InputError."""
        return Repaired(old for old, _ in read_copies(self._folder))

    def add(self, entry: dict[str, Any]) -> None:
        self._lines.append(json.dumps(entry) + "\n")

    def write(self) -> None:
        if self._lines:
            segment = self._folder / f"{self._attempt}.{self._segment:06d}.jsonl"
            segment.write("".join(self._lines).encode())
            self._segment, self._lines = self._segment + 1, []


def read_copies(folder: Location) -> Iterator[tuple[Place, Place]]:
    """The name of each user record that was put, as the logs in ``folder`` say, and that of its copy. Raises
    InputError for a line that cannot be read: what it says could be put twice."""
    logs = (file for file in folder.files() if file.name.endswith(".jsonl"))
    lines = ((file, *numbered) for file in logs for numbered in enumerate(file.read().splitlines(), 1))
    for file, number, line in lines:
        try:
            entry = json.loads(line)
            if entry["outcome"] != "put":
                continue
            (shard_id, sequence_number, index), new = entry["old"], entry["new"]
            if not (isinstance(shard_id, str) and isinstance(sequence_number, str)):
                raise TypeError("a name is no text")
            if not _may_be_sub_sequence_number(index):
                raise ValueError(f"sub-sequence number {index}")
            copy = str(new[0]), str(new[1]), int(new[2])
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            reason = f"line {number}: {type(error).__name__}: {error}"
            raise InputError(code="unreadable", path=file.path, reason=reason) from None
        yield (shard_id, sequence_number, index), copy
