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
from .repaired import Place

#: Deliveries between two writes of the log; equally many more may be under way.
LOG_EVERY = 250
IDENTITY: Final = ("shardId", "sequenceNumber", "subSequenceNumber")
#: Every aggregate has fewer user records.
_MOST_USER_RECORDS: Final = 1_000_000
_TEXT = pa.string()
#: What putting needs to know of a user record.
_PLAN: Final = {
    "shardId": _TEXT,
    "sequenceNumber": _TEXT,
    "subSequenceNumber": pa.int64(),
    "partitionKey": _TEXT,
    "explicitHashKey": _TEXT,
    "data": pa.binary(),
    "tags": pa.list_(pa.struct({"key": _TEXT, "value": _TEXT})),
    "decision": _TEXT,
}


def planned(plan: Location) -> Iterator[dict[str, Any]]:
    """The rows of a plan file: `_PLAN`. A row to put has a place, a key and data. Raises InputError."""
    system, inner = plan.opened()
    with readable(plan.path), pq.ParquetFile(inner, filesystem=system) as file:
        number = 0
        for batch in file.iter_batches(LOG_EVERY, columns=list(_PLAN)):
            columns = [batch[name].cast(kind).to_pylist() for name, kind in _PLAN.items()]
            for values in zip(*columns, strict=True):
                row = dict(zip(_PLAN, values, strict=True))
                if not _sound(row):
                    raise InputError(code="unreadable", path=plan.path, reason=f"row {number} is of no plan")
                yield row
                number += 1


def _sound(row: dict[str, Any]) -> bool:
    if row["decision"] != "put":
        return row["decision"] in ("already-delivered", "cannot")
    tags = row["tags"] or ()
    complete = all(row[name] is not None for name in ("partitionKey", "data", *IDENTITY))
    return (
        complete
        and _may_be_sub_sequence_number(row["subSequenceNumber"])
        and all(tag is not None and tag["key"] is not None for tag in tags)
    )


def _may_be_sub_sequence_number(value: object) -> bool:
    return type(value) is int and -1 <= value < _MOST_USER_RECORDS


class Log:
    """The log of one plan file's user records, in segments that become visible when complete."""

    def __init__(self, folder: Location, number: int) -> None:
        self._folder, self._prefix = folder, f"{number:05d}."
        self._attempt, self._segment = uuid4().hex, 0
        self._lines: list[str] = []

    def done(self) -> set[tuple[Any, ...]]:
        """Identities that earlier attempts have put. Raises InputError."""
        files = [file for file in self._folder.files() if file.name.startswith(self._prefix)]
        return {old for file in files if file.name.endswith(".jsonl") for old, _ in read_copies(file)}

    def add(self, entry: dict[str, Any]) -> None:
        self._lines.append(json.dumps(entry) + "\n")

    def write(self) -> None:
        if self._lines:
            segment = self._folder / f"{self._prefix}{self._attempt}.{self._segment:06d}.jsonl"
            segment.write("".join(self._lines).encode())
            self._segment, self._lines = self._segment + 1, []


def read_copies(file: Location) -> Iterator[tuple[tuple[str | None, str | None, int], Place]]:
    """The name of each user record that was put, as a log says, and that of its copy. Raises InputError for a
    line that cannot be read: what it says could be put twice."""
    for number, line in enumerate(file.read().splitlines(), 1):
        try:
            entry = json.loads(line)
            if entry["outcome"] != "put":
                continue
            (shard_id, sequence_number, index), new = entry["old"], entry["new"]
            if not all(isinstance(text, str | None) for text in (shard_id, sequence_number)):
                raise TypeError("a name is no text")
            if not _may_be_sub_sequence_number(index):
                raise ValueError(f"sub-sequence number {index}")
            copy = str(new[0]), str(new[1]), int(new[2])
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            reason = f"line {number}: {type(error).__name__}: {error}"
            raise InputError(code="unreadable", path=file.path, reason=reason) from None
        yield (shard_id, sequence_number, index), copy
