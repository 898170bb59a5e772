"""A batch of user-record rows in the forms for counting: stretches of rows that count alike, and the sums of
each Kinesis record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrow.layout import values_of
from ..pictures.labels import camel
from .counters import FIRST_SECOND, LAST_SECOND, SLOTS

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Run:
    """The rows of one Kinesis record, as far as seen. ``counts``: how many of them, by `COUNTS`."""

    place: dict[str, Any]  # fields of `Finding`
    started: bool  # its first row was seen
    counts: Counter[str] = field(default_factory=Counter)
    lowest: bytes | None = None
    highest: bytes | None = None
    drop_error: str | None = None
    empty: bool = False


#: What is counted of each Kinesis record. ``known``, ``outside``: user records whose hash key is known, and
#: is outside the shard's range. What the KCL does with them; ``repaired``: it drops them, and they were put
#: again.
COUNTS = (
    "user_records", "known", "outside", "dropped", "repaired", "delivered", "raw", "aggregated", "defective",
)  # fmt: skip
#: Columns of few different texts.
_TEXTS = ("streamName", "shardId", "expectedShardId", "placement", "kcl", "error")
_CODED = pa.dictionary(pa.int32(), pa.string())
#: Fields of `Finding` that say where it is; all that come from columns.
PLACE = ("shard_id", "sequence_number", "file", "line", "position", "approximate_arrival_timestamp")
EVIDENCE = (*PLACE, "expected_shard_id", "kcl", "offset", "record_index", "requirement", "detail")
#: Columns that are not named after the field.
_COLUMNS = {
    "offset": "errorOffset", "record_index": "errorRecordIndex", "requirement": "errorRequirement",
    "detail": "errorText",
}  # fmt: skip
#: In place of a time that is not known.
_NO_TIME = -(2**63)


class Sums:
    """`COUNTS` of each Kinesis record; ``firsts`` are their first stretches. ``usual``: sound ones."""

    def __init__(self, rows: Rows, firsts: Array) -> None:
        self.firsts = firsts
        counted = (
            *(rows.sub >= 0, rows.known, rows.outside, rows.dropped, rows.where("kcl", "repaired")),
            *(rows.where("kcl", "delivered") | rows.where("kcl", "altered"), rows.where("kcl", "raw")),
            *(rows.aggregated | (rows.sub == -1), rows.defective),
        )
        self.of: dict[str, Array] = {
            name: np.add.reduceat(rows.counts * where, firsts)
            for name, where in zip(COUNTS, counted, strict=True)
        }
        sound = (self.of["outside"] == 0) & (self.of["dropped"] == 0) & (self.of["user_records"] > 0)
        self.usual: Array = (self.of["defective"] == 0) & ((self.of["aggregated"] == 0) | sound)


class Rows:
    """One batch as stretches: neighbouring rows of a Kinesis record that are counted and judged alike. A row
    that is defective, about a Kinesis record as a whole, or not aggregated is one by itself.

    All arrays have an item for each stretch: ``at`` its first row, ``counts`` how many there are, ``sub`` the
    first sub-sequence number, -2 where the row is about the capture.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._names = set(batch.schema.names)
        sub = _numpy(pc.fill_null(self._column("subSequenceNumber", pa.int64()), -2))
        aggregated = self._flags("aggregated", default=False)
        first = self._flags("firstOfRecord", default=True)
        outside = ~self._flags("inRange", default=True)
        hash_keys = self._column("hashKey", pa.binary())
        known = _numpy(pc.is_valid(hash_keys))
        times = self._column("approximateArrivalTimestamp", None)
        if not pa.types.is_timestamp(times.type):
            times = pa.nulls(batch.num_rows, pa.timestamp("us", "UTC"))
        coded = {name: _coded(self._column(name, _CODED)) for name in _TEXTS}
        errors, codes_of_errors = coded["error"]
        defective = codes_of_errors < len(errors)

        alone = defective | (sub < 0) | ~aggregated
        starts = first | alone
        starts[1:] |= alone[:-1]
        starts[0] = True
        codes = (indices for _, indices in coded.values())
        for fact in (*codes, outside, known, _numpy(pc.fill_null(times.cast(pa.int64()), _NO_TIME))):
            starts[1:] |= fact[1:] != fact[:-1]
        self.at: Array = np.flatnonzero(starts)
        self.counts: Array = np.diff(self.at, append=batch.num_rows)

        self.sub: Array = sub[self.at]
        self.aggregated = aggregated[self.at]
        self.defective: Array = defective[self.at]
        #: Where the hash key is known, and where it is known to be outside its shard's range.
        self.known: Array = known[self.at]
        self.outside = outside[self.at]
        self._first = first[self.at]
        #: The different texts of a column, and None; for each stretch the number of its text.
        self.texts = {name: [*coded[name][0].to_pylist(), None] for name in _TEXTS}
        self.codes = {name: coded[name][1][self.at] for name in _TEXTS}
        self.dropped = self.where("kcl", "dropped")
        self.sequence_numbers = self._column("sequenceNumber", pa.string()).take(pa.array(self.at))
        sizes = pc.fill_null(pc.binary_length(self._column("data", pa.binary())), 0)
        self.size: Array = np.add.reduceat(_numpy(sizes).astype(np.int64), self.at)
        times = times.take(pa.array(self.at))
        seconds = pc.cast(times, pa.timestamp("s", times.type.tz), safe=False).cast(pa.int64())
        self.seconds: Array = _numpy(pc.fill_null(seconds, _NO_TIME))
        # Times outside the calendar, which Parquet allows, count as missing.
        self.timed: Array = (self.seconds >= FIRST_SECOND) & (self.seconds <= LAST_SECOND)
        known_times = pc.if_else(pa.array(self.timed), times, None)
        self._times = pc.cast(known_times, pa.timestamp("us", "UTC"), safe=False)
        if hash_keys.null_count:
            hash_keys = pc.fill_null(hash_keys, bytes(16))
        _, offsets, keys = hash_keys.buffers()
        keys = np.frombuffer(keys, np.uint8)[np.frombuffer(offsets, np.int32)[hash_keys.offset] :]
        self._keys: Array = keys[: 16 * batch.num_rows].reshape(-1, 16)

    def _column(self, name: str, kind: pa.DataType | None) -> pa.Array:
        if name not in self._names:
            return pa.nulls(self._batch.num_rows, kind)
        column = self._batch[name]
        if kind is None or column.type == kind:
            return column
        return column.cast(pa.string()).dictionary_encode() if kind == _CODED else column.cast(kind)

    def _flags(self, name: str, *, default: bool) -> Array:
        return _numpy(pc.fill_null(self._column(name, pa.bool_()), default))

    def evidence(self, stretches: Array, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
        """What is in the first row of each, as fields of `Finding`."""
        where = pa.array(self.at[stretches])
        columns = []
        for item in fields:
            if item == "approximate_arrival_timestamp":
                columns.append(self._times.take(pa.array(stretches)).to_pylist())
            else:
                column = self._column(_COLUMNS.get(item, camel(item)), None)
                columns.append(values_of(column.take(where)))
        return (dict(zip(fields, row, strict=True)) for row in zip(*columns, strict=True))

    def text(self, name: str, stretch: int) -> str | None:
        """What all rows of the stretch have in a column of few texts."""
        value: str | None = self.texts[name][self.codes[name][stretch]]
        return value

    def where(self, name: str, text: str) -> Array:
        """Where a column of few texts has that one."""
        return np.array([one == text for one in self.texts[name]])[self.codes[name]]

    def slots(self, where: Array) -> list[int]:
        """How many rows of some stretches there are for each first byte of the hash key."""
        if not where.any():
            return [0] * SLOTS
        first_bytes = self._keys[:, 0]
        if not where.all():
            first_bytes = first_bytes[np.repeat(where, self.counts)]
        counts: list[int] = np.bincount(first_bytes, minlength=SLOTS).tolist()
        return counts

    def keys(self, first: int, end: int) -> list[bytes]:
        """The hash keys that are known, of all rows."""
        known = np.repeat(self.known[first:end], self.counts[first:end])
        start = self.at[first]
        return [key.tobytes() for key in self._keys[start : start + len(known)][known]]

    def starts(self) -> Array:
        """Where the first row of a Kinesis record is. A row about the capture stands alone."""
        starts = self._first | (self.sub < -1)
        starts[1:] |= self.sub[:-1] < -1
        return starts


def _numpy(array: pa.Array) -> Array:
    values: Array = array.to_numpy(zero_copy_only=False)
    return values


def _coded(array: pa.Array) -> tuple[pa.Array, Array]:
    """The dictionary of an array, and the index of each value there; the one after the last for null."""
    return array.dictionary, _numpy(pc.fill_null(array.indices, len(array.dictionary)))
