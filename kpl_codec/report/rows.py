"""A batch of user-record rows in the forms for counting: whole columns, and the rows of each Kinesis
record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Run:
    """The rows of one Kinesis record, as far as seen."""

    shard_id: str | None
    sequence_number: str | None
    started: bool  # its first row was seen
    aggregated: bool = False
    broken: bool = False
    user_records: int = 0
    known: int = 0  # hash keys known
    outside: int = 0
    dropped: int = 0
    repaired: int = 0  # dropped, and put again
    delivered: int = 0
    raw: int = 0
    whole_seen: bool = False  # a row of sub-sequence number -1
    lowest: bytes | None = None
    highest: bytes | None = None
    drop_error: str | None = None
    empty: bool = False
    arrival: datetime | None = None
    file: str | None = None
    line: int | None = None
    position: int | None = None


#: What `Rows.load` makes values of.
_EVIDENCE = (
    "shardId",
    "expectedShardId",
    "sequenceNumber",
    "file",
    "line",
    "position",
    "kcl",
    "error",
    "errorOffset",
    "errorRecordIndex",
    "errorRequirement",
    "errorText",
)
#: The years 1 to 9999.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799


class Sums:
    """Counts the rows of each Kinesis record; ``firsts`` are their first rows."""

    def __init__(self, rows: Rows, firsts: Array) -> None:
        self.firsts = firsts

        def summed(where: Array) -> Array:
            return np.add.reduceat(where.astype(np.int64), firsts)

        self.user_records = summed(rows.sub >= 0)
        self.known = summed(rows.known)
        self.outside = summed(rows.outside)
        self.dropped = summed(rows.dropped)
        self.repaired = summed(rows.fate("repaired"))
        self.delivered = summed(rows.fate("delivered") | rows.fate("altered"))
        self.raw = summed(rows.fate("raw"))
        self.aggregated = summed(rows.aggregated | (rows.sub == -1))
        self.defective = summed(rows.defective)
        sound = (self.outside == 0) & (self.dropped == 0) & (self.user_records > 0)
        self.usual: Array = (self.defective == 0) & ((self.aggregated == 0) | sound)


class Rows:
    """One batch, in the forms that counting needs. ``sub`` is -2 where the row is about the capture."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._names = set(batch.schema.names)
        sub = self._column("subSequenceNumber", pa.int64())
        self.sub: Array = pc.fill_null(sub, -2).to_numpy(zero_copy_only=False)
        self.aggregated = self._flags("aggregated", default=False)
        self.size = pc.fill_null(pc.binary_length(self._column("data", pa.binary())).cast(pa.int64()), 0)
        self.stream = self._column("streamName", pa.string()) if "streamName" in self._names else None
        coded = self.texts("shardId").dictionary_encode()
        self.shards: list[str | None] = [*coded.dictionary.to_pylist(), None]
        self.shard_codes: Array = pc.fill_null(coded.indices.cast(pa.int64()), len(self.shards) - 1).to_numpy(
            zero_copy_only=False
        )
        self.defective: Array = pc.is_valid(self.texts("error")).to_numpy(zero_copy_only=False)
        self.seconds: Array | None = None
        name = "approximateArrivalTimestamp"
        if name in self._names and pa.types.is_timestamp(batch[name].type):
            times = pc.cast(batch[name], pa.timestamp("s", batch[name].type.tz), safe=False)
            self.seconds = pc.fill_null(times.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
            self.timed: Array = pc.is_valid(times).to_numpy(zero_copy_only=False)
            # Times outside the calendar, which Parquet allows, count as missing.
            self.timed &= (self.seconds >= _FIRST_SECOND) & (self.seconds <= _LAST_SECOND)
            known = pc.if_else(pa.array(self.timed), batch[name], None)
            self._times = pc.cast(known, pa.timestamp("us", "UTC"), safe=False)
        self._loaded: dict[int, int] = {}
        self._lists: dict[str, list[Any]] = {}
        self.dropped = self.fate("dropped")
        #: Where the hash key is known, and where it is known to be outside its shard's range.
        self.known: Array = np.zeros(len(self.sub), bool)
        self.outside = ~self._flags("inRange", default=True)
        self._first = self._flags("firstOfRecord", default=True)
        self._keys = b""
        if "hashKey" in self._names:
            keys = batch["hashKey"]
            self.known = pc.is_valid(keys).to_numpy(zero_copy_only=False)
            whole = pc.fill_null(keys.cast(pa.binary()), bytes(16)).cast(pa.binary(16))
            start = whole.offset * 16
            self._keys = whole.buffers()[1].to_pybytes()[start : start + 16 * len(whole)]

    def _column(self, name: str, kind: pa.DataType) -> pa.Array:
        if name in self._names:
            return self._batch[name].cast(kind)
        return pa.nulls(self._batch.num_rows, kind)

    def _flags(self, name: str, *, default: bool) -> Array:
        """A column of truth values; ``default`` where it has none."""
        flags: Array = pc.fill_null(self._column(name, pa.bool_()), default).to_numpy(zero_copy_only=False)
        return flags

    def texts(self, name: str) -> pa.Array:
        """A column of text, all null where the batch has none."""
        return self._column(name, pa.string())

    def load(self, rows: Array) -> None:
        """Make the values of these rows at once; `value` is slow for others."""
        where = pa.array(rows)
        taken = self._batch.select([name for name in _EVIDENCE if name in self._names]).take(where)
        self._loaded = {int(row): at for at, row in enumerate(rows)}
        self._lists = {name: taken[name].to_pylist() for name in taken.schema.names}
        if self.seconds is not None:
            self._lists["time"] = self._times.take(where).to_pylist()

    def value(self, name: str, row: int) -> Any:
        at = self._loaded.get(row)
        if at is not None:
            values = self._lists.get(name)
            return values[at] if values is not None else None
        if name == "time":
            return self._times[row].as_py() if self.seconds is not None else None
        return self._batch[name][row].as_py() if name in self._names else None

    def _equal(self, name: str, value: str) -> Array:
        equal: Array = pc.fill_null(pc.equal(self.texts(name), value), False).to_numpy(zero_copy_only=False)
        return equal

    def fate(self, kcl: str) -> Array:
        """Where the KCL does that with the row."""
        return self._equal("kcl", kcl)

    def is_placed(self, verdict: str) -> Array:
        """Where that is the verdict on the row."""
        return self._equal("placement", verdict)

    def first_bytes(self) -> Array:
        return np.frombuffer(self._keys, np.uint8)[::16]

    def keys(self, first: int, end: int) -> list[bytes]:
        return [self._keys[16 * row : 16 * row + 16] for row in range(first, end) if self.known[row]]

    def starts(self) -> Array:
        """Where the first row of a Kinesis record is. A row about the capture stands alone."""
        starts = self._first | (self.sub < -1)
        starts[1:] |= self.sub[:-1] < -1
        return starts

    def place(self, row: int) -> dict[str, Any]:
        return {
            "shard_id": self.value("shardId", row),
            "sequence_number": self.value("sequenceNumber", row),
            "file": self.value("file", row),
            "line": self.value("line", row),
            "position": self.value("position", row),
            "approximate_arrival_timestamp": self.value("time", row),
        }

    def run(self, first: int) -> Run:
        place = self.place(first)
        return Run(
            place["shard_id"],
            place["sequence_number"],
            started=bool(self.sub[first] <= 0),
            arrival=place["approximate_arrival_timestamp"],
            file=place["file"],
            line=place["line"],
            position=place["position"],
        )
