"""The files of a repair: the plan, the log, and the record of which stream it was applied to.

They may have been changed, cut off or copied since they were written: every reader here raises InputError
(unreadable) for a file that no repair wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from ..captures import InputError, Location, readable
from ..errors import KplError
from ..format.hash_keys import explicit_hash_key_value
from . import repaired

#: Deliveries between two writes of the log; equally many more may be under way.
LOG_EVERY = 250
IDENTITY: Final = ("shardId", "sequenceNumber", "subSequenceNumber")
DECISIONS: Final = ("put", "already-delivered", "cannot")
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
    """The rows of a plan file: `_PLAN`. A row to put has a key, data and a place, and its explicit hash key
    as it may be written: "007" may be read, but is written as "7". Raises InputError."""
    system, inner = plan.opened()
    with readable(plan.path), pq.ParquetFile(inner, filesystem=system) as file:
        number = 0
        for batch in file.iter_batches(LOG_EVERY, columns=list(_PLAN)):
            columns = [batch[name].cast(kind).to_pylist() for name, kind in _PLAN.items()]
            for values in zip(*columns, strict=True):
                row = dict(zip(_PLAN, values, strict=True))
                if (wrong := _wrong(row)) is not None:
                    raise InputError(code="unreadable", path=plan.path, reason=f"row {number}: {wrong}")
                yield row
                number += 1


def _wrong(row: dict[str, Any]) -> str | None:
    """What is wrong with a row; None if nothing is. Writes its explicit hash key as `planned` says."""
    if row["decision"] not in DECISIONS:
        return f"no decision: {row['decision']!r}"
    if row["decision"] != "put":
        return None
    for name in ("partitionKey", "data", *IDENTITY):
        if row[name] is None:
            return f"no {name}"
    if not repaired.may_be_sub_sequence_number(row["subSequenceNumber"]):
        return f"sub-sequence number {row['subSequenceNumber']}"
    if any(tag is None or tag["key"] is None for tag in row["tags"] or ()):
        return "a tag without a key"
    if row["explicitHashKey"] is not None:
        try:
            row["explicitHashKey"] = str(explicit_hash_key_value(row["explicitHashKey"]))
        except KplError as error:
            return str(error)
    return None


def write_record(record: Location, stream: str, counts: Mapping[str, int]) -> None:
    """Write the stream that a plan was applied to, and the user records by outcome."""
    told = {"stream": stream, "user_records": dict(sorted(counts.items()))}
    record.write(json.dumps(told).encode())


def recorded_stream(record: Location) -> str | None:
    """The stream that the plan was applied to before; None if it was not. Raises InputError."""
    if record.kind() is None:
        return None
    try:
        stream = json.loads(record.read())["stream"]
        if not isinstance(stream, str):
            raise TypeError("the stream has no name")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(code="unreadable", path=record.path, reason=reason) from None
    return stream


class Log:
    """The log of one plan file's user records, in segments that become visible when complete."""

    def __init__(self, folder: Location, number: int) -> None:
        self._folder, self._prefix = folder, f"{number:05d}."
        self._attempt, self._segment = uuid4().hex, 0
        self._lines: list[str] = []

    def done(self) -> set[tuple[Any, ...]]:
        """Identities that earlier attempts have put. Raises InputError (unreadable)."""
        return {
            place
            for file in self._folder.files()
            if file.name.startswith(self._prefix) and file.name.endswith(".jsonl")
            for place in repaired.read_log(file)
        }

    def add(self, entry: dict[str, Any]) -> None:
        """Another line, for the next `write`."""
        self._lines.append(json.dumps(entry))

    def write(self) -> None:
        """Write the lines added since the last time."""
        if self._lines:
            segment = self._folder / f"{self._prefix}{self._attempt}.{self._segment:06d}.jsonl"
            segment.write("".join(line + "\n" for line in self._lines).encode())
            self._segment, self._lines = self._segment + 1, []
