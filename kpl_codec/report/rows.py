"""The rows of whole Kinesis records in the forms for counting: columns, and the sums of each record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrow.layout import values_of
from ..findings import camel
from ..findings.counters import FIRST_SECOND, LAST_SECOND, SLOTS

Array = np.ndarray[Any, Any]

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


def first_rows(batch: pa.RecordBatch) -> Array:
    """Where Kinesis records begin in ``batch``. A row about the capture stands for one."""
    about_capture = _numpy(pc.is_null(_column(batch, "subSequenceNumber", pa.int64())))
    starts = _flags(batch, "firstOfRecord", default=True) | about_capture
    starts[1:] |= about_capture[:-1]
    return np.flatnonzero(starts)


def slim(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` with the size of data in place of data."""
    size = pc.fill_null(pc.binary_length(_column(batch, "data", pa.binary())), 0).cast(pa.int64())
    names = [name for name in batch.schema.names if name not in ("data", "partitionKey")]
    return batch.select(names).append_column("size", size)


class Rows:
    """The rows of whole Kinesis records, `slim`. All arrays have an item for each row; ``firsts`` and
    ``sums`` one for each Kinesis record. ``sub``: -2 for a row about the capture."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.firsts = np.union1d([0], first_rows(batch))
        self.sub: Array = _numpy(pc.fill_null(_column(batch, "subSequenceNumber", pa.int64()), -2))
        self.aggregated = _flags(batch, "aggregated", default=False)
        #: The different texts of a column, and None; for each row the number of its text.
        self.texts: dict[str, list[str | None]] = {}
        self.codes: dict[str, Array] = {}
        for name in _TEXTS:
            column = _column(batch, name, _CODED)
            self.texts[name] = [*column.dictionary.to_pylist(), None]
            self.codes[name] = _numpy(pc.fill_null(column.indices, len(column.dictionary)))
        self.defective = ~self.where("error", None)
        self.dropped = self.where("kcl", "dropped")
        self.sequence_numbers = _column(batch, "sequenceNumber", pa.string())
        self.hash_keys: pa.Array = _column(batch, "hashKey", pa.binary())
        self.size = _numpy(batch["size"])
        self.known = _numpy(pc.is_valid(self.hash_keys))
        times = _column(batch, "approximateArrivalTimestamp", None)
        if not pa.types.is_timestamp(times.type):
            times = pa.nulls(batch.num_rows, pa.timestamp("us", "UTC"))
        seconds = pc.cast(times, pa.timestamp("s", times.type.tz), safe=False).cast(pa.int64())
        self.seconds: Array = _numpy(pc.fill_null(seconds, LAST_SECOND + 1))
        # Times outside the calendar, which Parquet allows, count as missing.
        self.timed: Array = (self.seconds >= FIRST_SECOND) & (self.seconds <= LAST_SECOND)
        known_times = pc.if_else(pa.array(self.timed), times, None)
        self._times = pc.cast(known_times, pa.timestamp("us", "UTC"), safe=False)

    def sums(self) -> dict[str, Array]:
        """Of each Kinesis record: how many of its rows are user records, and so on. ``known``, ``outside``:
        their hash key is known, and outside the shard's range; ``repaired``: dropped, and put again."""
        counted = {
            "user_records": self.sub >= 0,
            "known": self.known,
            "outside": ~_flags(self._batch, "inRange", default=True),
            "dropped": self.dropped,
            "repaired": self.where("kcl", "repaired"),
            "raw": self.where("kcl", "raw"),
            "aggregated": self.aggregated | (self.sub == -1),
            "defective": self.defective,
        }
        return {name: np.add.reduceat(where, self.firsts, dtype=np.int64) for name, where in counted.items()}

    def stretches(self) -> Array:
        """Where rows begin that are of one Kinesis record and count alike."""
        begins = np.zeros(len(self.sub), bool)
        begins[self.firsts] = True
        for column in (*self.codes.values(), self.sub >= 0, self.seconds):
            begins[1:] |= column[1:] != column[:-1]
        return np.flatnonzero(begins)

    def slots(self, where: Array) -> Array:
        """How many of some rows there are for each first byte of the hash key, which they have."""
        keys = pc.fill_null(self.hash_keys, bytes(16))
        _, offsets, values = keys.buffers()
        begin = np.frombuffer(offsets, np.int32)[keys.offset]
        first_bytes = np.frombuffer(values, np.uint8)[begin::16][: len(keys)]
        return np.bincount(first_bytes[where], minlength=SLOTS)

    def evidence(self, at: Array, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
        """What is in some rows, as fields of `Finding`."""
        where = pa.array(at)
        columns = []
        for item in fields:
            if item == "approximate_arrival_timestamp":
                columns.append(self._times.take(where).to_pylist())
            else:
                column = _column(self._batch, _COLUMNS.get(item, camel(item)), None)
                columns.append(values_of(column.take(where)))
        return (dict(zip(fields, row, strict=True)) for row in zip(*columns, strict=True))

    def text(self, name: str, row: int) -> str | None:
        text: str | None = self.texts[name][self.codes[name][row]]
        return text

    def where(self, name: str, text: str | None) -> Array:
        """Where a column of few texts has that one."""
        return np.array([one == text for one in self.texts[name]]).take(self.codes[name])


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType | None) -> pa.Array:
    """A column, in any type where ``kind`` is None; nulls where there is none."""
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, kind)
    column = batch[name]
    if kind is None or column.type == kind:
        return column
    return column.cast(pa.string()).dictionary_encode() if kind == _CODED else column.cast(kind)


def _flags(batch: pa.RecordBatch, name: str, *, default: bool) -> Array:
    return _numpy(pc.fill_null(_column(batch, name, pa.bool_()), default))


def _numpy(array: pa.Array) -> Array:
    values: Array = array.to_numpy(zero_copy_only=False)
    return values
