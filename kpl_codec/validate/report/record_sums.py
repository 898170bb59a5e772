"""The rows of whole Kinesis records in the forms for counting: columns, and the sums of each record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...arrow.layout import values_of
from ...findings import camel
from ...findings.counters import FIRST_SECOND, LAST_SECOND, SLOTS

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
#: The columns that are read here.
COLUMNS_READ = {
    *("subSequenceNumber", "aggregated", "data", "hashKey", "firstOfRecord", "inRange", *_TEXTS),
    *(_COLUMNS.get(field, camel(field)) for field in EVIDENCE),
}


def first_rows(batch: pa.RecordBatch) -> Array:
    """Where Kinesis records begin in ``batch``. A row about the capture, a line that cannot be read for
    example, counts as one."""
    about_capture = _numpy(pc.is_null(_column(batch, "subSequenceNumber", pa.int64())))
    starts = _flags(batch, "firstOfRecord", default=True) | about_capture
    starts[1:] |= about_capture[:-1]
    return np.flatnonzero(starts)


def slots(batch: pa.RecordBatch) -> Array:
    """How many user records have each first byte of a hash key, and how many of them are astray."""
    user = _numpy(pc.greater_equal(pc.fill_null(_column(batch, "subSequenceNumber", pa.int64()), -2), 0))
    keys = _column(batch, "hashKey", pa.binary())
    has_key = user & _numpy(pc.is_valid(keys))
    keys = pc.fill_null(keys, bytes(16))
    _, offsets, values = keys.buffers()
    begin = np.frombuffer(offsets, np.int32)[keys.offset]
    first_bytes = np.frombuffer(values, np.uint8)[begin::16][: len(keys)]
    texts, codes = _text_codes(batch, "placement")
    astray = has_key & (codes == texts.index("stray") if "stray" in texts else False)
    return np.array([np.bincount(first_bytes[where], minlength=SLOTS) for where in (has_key, astray)])


def merge_equal_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` with one row, the first, for all neighbours that are of one Kinesis record and count alike,
    without data and key: ``rows`` says how many they are, ``size`` the bytes of their data.

    Rows with an error stay, and those of a Kinesis record with a hash key outside its shard's range: all of
    its keys count then. The rest of the last Kinesis record may come in the next batch, so its rows stay,
    too.
    """
    firsts = first_rows(batch)
    begins = np.zeros(batch.num_rows, bool)
    begins[firsts] = True
    record = np.cumsum(begins)
    whole = np.ones(len(firsts) + 1, bool)
    whole[[0, -1]] = False
    whole[record[~_flags(batch, "inRange", default=True)]] = False
    defective = _numpy(pc.is_valid(_column(batch, "error", None)))
    begins |= ~whole[record] | defective
    begins[1:] |= defective[:-1]
    for name in ("expectedShardId", "placement", "kcl"):
        _, codes = _text_codes(batch, name)
        begins[1:] |= codes[1:] != codes[:-1]
    has_key = _numpy(pc.is_valid(_column(batch, "hashKey", pa.binary())))
    begins[1:] |= has_key[1:] != has_key[:-1]
    size = _numpy(pc.fill_null(pc.binary_length(_column(batch, "data", pa.binary())), 0))
    at = np.flatnonzero(begins)
    rest = batch.select([name for name in batch.schema.names if name not in ("data", "partitionKey")])
    rest = rest if len(at) == len(rest) else rest.take(pa.array(at))
    rest = rest.append_column("size", pa.array(np.add.reduceat(size, at, dtype=np.int64)))
    return rest.append_column("rows", pa.array(np.diff(at, append=batch.num_rows)))


class RecordSums:
    """The rows of whole Kinesis records, as `merge_equal_rows` gives them. Arrays have an item for each row,
    ``firsts`` and ``sums`` one for each Kinesis record. ``sub``: -2 for a row about the capture."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.firsts = np.union1d([0], first_rows(batch))
        self.sub: Array = _numpy(pc.fill_null(_column(batch, "subSequenceNumber", pa.int64()), -2))
        self.aggregated = _flags(batch, "aggregated", default=False)
        #: The different texts of a column, and None; for each row the number of its text.
        self.texts: dict[str, list[str | None]] = {}
        self.codes: dict[str, Array] = {}
        for name in _TEXTS:
            self.texts[name], self.codes[name] = _text_codes(batch, name)
        self.defective = ~self.where("error", None)
        self.dropped = self.where("kcl", "dropped")
        self.sequence_numbers = _column(batch, "sequenceNumber", None)
        self.hash_keys: pa.Array = _column(batch, "hashKey", pa.binary())
        self.rows, self.size = _numpy(batch["rows"]), _numpy(batch["size"])
        self.has_key = _numpy(pc.is_valid(self.hash_keys))
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
            "known": self.has_key,
            "outside": ~_flags(self._batch, "inRange", default=True),
            "dropped": self.dropped,
            "repaired": self.where("kcl", "repaired"),
            "raw": self.where("kcl", "raw"),
            "aggregated": self.aggregated | (self.sub == -1),
            "defective": self.defective,
        }
        return {name: np.add.reduceat(where * self.rows, self.firsts) for name, where in counted.items()}

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


def _text_codes(batch: pa.RecordBatch, name: str) -> tuple[list[str | None], Array]:
    """The different texts of a column, and None; for each row the number of its text."""
    column = _column(batch, name, _CODED)
    texts = [*column.dictionary.to_pylist(), None]
    return texts, _numpy(pc.fill_null(column.indices, len(texts) - 1))


def _flags(batch: pa.RecordBatch, name: str, *, default: bool) -> Array:
    return _numpy(pc.fill_null(_column(batch, name, pa.bool_()), default))


def _numpy(array: pa.Array) -> Array:
    values: Array = array.to_numpy(zero_copy_only=False)
    return values
