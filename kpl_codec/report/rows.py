"""A batch of user-record rows, in the forms that counting needs: whole columns, and runs of rows that came
out of one Kinesis record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..format.hash_keys import hash_key_to_bytes
from ..shards.shard_map import ShardMap

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
    inside: int = 0
    dropped: int = 0
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
    """Per Kinesis record, whose first rows are ``firsts``: how many of its rows are what."""

    def __init__(self, rows: Rows, firsts: Array, shard_map: ShardMap | None) -> None:
        self.firsts = firsts

        def summed(where: Array) -> Array:
            return np.add.reduceat(where.astype(np.int64), firsts)

        self.user_records = summed(rows.sub >= 0)
        self.known = summed(rows.known)
        self.inside = summed(rows.inside(shard_map))
        self.dropped = summed(rows.dropped)
        self.delivered = summed(rows.fate("delivered") | rows.fate("altered"))
        self.raw = summed(rows.fate("raw"))
        self.aggregated = summed(rows.aggregated | (rows.sub == -1))
        self.defective = summed(rows.defective)
        sound = (self.inside == self.known) & (self.dropped == 0) & (self.user_records > 0)
        self.usual: Array = (self.defective == 0) & ((self.aggregated == 0) | sound)


class Rows:
    """One batch, in the forms that counting needs. ``sub`` is -2 where the row is about the capture."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._names = set(batch.schema.names)
        sub = self._column("subSequenceNumber", pa.int64())
        self.sub: Array = pc.fill_null(sub, -2).to_numpy(zero_copy_only=False)
        self.aggregated: Array = pc.fill_null(self._column("aggregated", pa.bool_()), False).to_numpy(
            zero_copy_only=False
        )
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
            # Times outside the calendar (a Parquet file can hold them) are no times.
            self.timed &= (self.seconds >= _FIRST_SECOND) & (self.seconds <= _LAST_SECOND)
            known = pc.if_else(pa.array(self.timed), batch[name], None)
            self._times = pc.cast(known, pa.timestamp("us", "UTC"), safe=False)
        self._loaded: dict[int, int] = {}
        self._lists: dict[str, list[Any]] = {}
        self.dropped = self.fate("dropped")
        self.known: Array = np.zeros(len(self.sub), bool)
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

    def texts(self, name: str) -> pa.Array:
        """A column of text, all null where the batch has none."""
        return self._column(name, pa.string())

    def load(self, rows: Array) -> None:
        """Make the values of many rows at once; `value` is slow for others."""
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
        """Where that is what the KCL does with the row."""
        return self._equal("kcl", kcl)

    def is_placed(self, verdict: str) -> Array:
        """Where that is the verdict on the row."""
        return self._equal("placement", verdict)

    def first_bytes(self) -> Array:
        return np.frombuffer(self._keys, np.uint8)[::16]

    def keys(self, first: int, end: int) -> list[bytes]:
        return [self._keys[16 * row : 16 * row + 16] for row in range(first, end) if self.known[row]]

    def inside(self, shard_map: ShardMap | None) -> Array:
        """Where the hash key is known, and in the range of the shard the row lies on (or nobody knows)."""
        if shard_map is None or not self._keys:
            return self.known
        ranges = [
            shard_map[s].hash_key_range if s is not None and s in shard_map else None for s in self.shards
        ]
        starts = np.array([hash_key_to_bytes(r.starting_hash_key) if r else bytes(16) for r in ranges], "S16")
        ends = np.array([hash_key_to_bytes(r.ending_hash_key) if r else b"\xff" * 16 for r in ranges], "S16")
        keys = np.frombuffer(self._keys, "S16")
        # Fixed-width bytes compare as unsigned numbers of the same width do.
        held = (keys >= starts[self.shard_codes]) & (keys <= ends[self.shard_codes])
        return self.known & held

    def starts(self) -> Array:
        """Where the first row of a Kinesis record is."""
        other = np.zeros(len(self.sub), bool)
        other[0] = self.sub[0] <= 0
        for name in ("shardId", "sequenceNumber", "file", "position", "recordIndex"):
            if name in self._names:
                column = self._batch[name]
                same = pc.or_kleene(
                    pc.equal(column[1:], column[:-1]),
                    pc.and_(pc.is_null(column[1:]), pc.is_null(column[:-1])),
                )
                other[1:] |= ~pc.fill_null(same, False).to_numpy(zero_copy_only=False)
        first = self.sub <= 0
        first[1:] &= self.sub[:-1] != -1  # a row of -1 speaks for the record that follows
        return other | first | (self.sub < -1)

    def continues(self, run: Run) -> bool:
        """Whether the first row is one more of ``run``: not its first user record, unless only a row about
        the frame as a whole was seen so far."""
        if self.sub[0] < 0 or (self.sub[0] == 0 and (run.user_records or not run.whole_seen)):
            return False
        place = self.place(0)
        return (place["shard_id"], place["sequence_number"], place["file"], place["position"]) == (
            run.shard_id,
            run.sequence_number,
            run.file,
            run.position,
        )

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
