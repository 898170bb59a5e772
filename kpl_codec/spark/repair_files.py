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
from pyarrow import fs

from ..captures import InputError, readable
from ..errors import KplError
from ..format.hash_keys import explicit_hash_key_value
from ..validation import repaired
from ..validation.storage import write_text

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


def planned(system: fs.FileSystem, path: str) -> Iterator[dict[str, Any]]:
    """The rows of a plan file: `_PLAN`. A row to put has a key, data and a place, and its explicit hash key
    as it may be written: "007" may be read, but is written as "7". Raises InputError."""
    with readable(path), pq.ParquetFile(path, filesystem=system) as file:
        number = 0
        for batch in file.iter_batches(LOG_EVERY, columns=list(_PLAN)):
            columns = [batch[name].cast(kind).to_pylist() for name, kind in _PLAN.items()]
            for values in zip(*columns, strict=True):
                row = dict(zip(_PLAN, values, strict=True))
                if (wrong := _wrong(row)) is not None:
                    raise InputError(code="unreadable", path=path, reason=f"row {number}: {wrong}")
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


def write_record(system: fs.FileSystem, path: str, stream: str, counts: Mapping[str, int]) -> None:
    """Write the stream that a plan was applied to, and the user records by outcome."""
    write_text(system, path, json.dumps({"stream": stream, "user_records": dict(sorted(counts.items()))}))


def recorded_stream(system: fs.FileSystem, path: str) -> str | None:
    """The stream that the plan was applied to before; None if it was not. Raises InputError."""
    if system.get_file_info(path).type == fs.FileType.NotFound:
        return None
    try:
        with system.open_input_stream(path) as source:
            stream = json.loads(source.read())["stream"]
        if not isinstance(stream, str):
            raise TypeError("the stream has no name")
    except (ValueError, TypeError, KeyError, RecursionError, OSError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(code="unreadable", path=path, reason=reason) from None
    return stream


class Log:
    """The log of one plan file's user records, in segments that become visible when complete."""

    def __init__(self, system: fs.FileSystem, folder: str, number: int) -> None:
        self._system, self._folder, self._prefix = system, folder, f"{number:05d}."
        self._attempt, self._segment = uuid4().hex, 0
        self._lines: list[str] = []

    def done(self) -> set[tuple[Any, ...]]:
        """Identities that earlier attempts have put. Raises InputError (unreadable)."""
        return {
            place
            for file in self._system.get_file_info(fs.FileSelector(self._folder))
            if file.base_name.startswith(self._prefix) and file.base_name.endswith(".jsonl")
            for place in repaired.read_log(self._system, file.path)
        }

    def add(self, entry: dict[str, Any]) -> None:
        """Another line, for the next `write`."""
        self._lines.append(json.dumps(entry))

    def write(self) -> None:
        """Write the lines added since the last time."""
        if self._lines:
            path = f"{self._folder}/{self._prefix}{self._attempt}.{self._segment:06d}.jsonl"
            with self._system.open_output_stream(path + ".new") as out:
                out.write("".join(line + "\n" for line in self._lines).encode())
            self._system.move(path + ".new", path)
            self._segment, self._lines = self._segment + 1, []
