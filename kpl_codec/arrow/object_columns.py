"""Makes columns from Python objects, for rows that compiled code does not process: Kinesis records that the
compiled parser cannot decide (without the extension: all), rows without data, rows that were opened before,
and user records whose data is compressed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..deaggregation.deaggregated_record import Counts, DeaggregatedRecord
from ..deaggregation.kcl import result_of_sound
from ..deaggregation.payload import DATA_DEFECTS, PayloadDecoder
from ..deaggregation.policies import RecordDeaggregator
from ..deaggregation.policy_rules import PolicyRules
from ..errors import CaptureError, DecodeError
from ..format.frame import looks_aggregated
from ..format.hash_keys import hash_key_from_bytes, hash_key_to_bytes
from ..format.records import KinesisRecord, opened_before, with_siblings
from ..shards.placement import PlacementChecker, hash_key_or_none
from .exchange import group_by_size
from .layout import ERROR_FIELDS, TYPES, VERDICT_VALUES, InputBatch, Layout

#: About how many bytes a defect adds to a row.
DEFECT_BYTES = 128
#: A row that was opened before keeps its values in these columns where the input has them.
_COPIED = ("tags", "firstOfRecord", *(field.name for field in ERROR_FIELDS if field.name != "kcl"))
#: It keeps those that are not null in these.
_KEPT = ("aggregatePlacement", "kcl")
#: The values of the columns that describe the first defect of a row.
DEFECT_VALUES: dict[str, Callable[[DecodeError], Any]] = {
    "error": lambda defect: defect.code,
    "errorOffset": lambda defect: defect.offset,
    "errorRecordIndex": lambda defect: defect.record_index,
    "errorRequirement": lambda defect: defect.requirement,
    "errorText": lambda defect: defect.describe(),
}
_VALUES: dict[str, Callable[[DeaggregatedRecord], Any]] = {
    "subSequenceNumber": lambda record: record.sub_sequence_number,
    "aggregated": lambda record: record.aggregated,
    "partitionKey": lambda record: record.partition_key,
    "explicitHashKey": lambda record: record.explicit_hash_key,
    "data": lambda record: record.data,
    "tags": lambda record: [{"key": tag.key, "value": tag.value} for tag in record.tags] or None,
    "kcl": lambda record: record.kcl,
    "errorCount": lambda record: len(record.defects),
}


class NoData(DecodeError):
    code: str = "no-data"
    requirement = "SPK-1"
    text = "the row has no data"


class _InputRow(NamedTuple):
    """A user record, its row's number in the input, and whether it is the first of its Kinesis record."""

    number: int
    first: bool
    record: DeaggregatedRecord


class ObjectColumns:
    """Makes batches of rows of an `InputBatch`. It remembers the last row, if that was opened before."""

    def __init__(
        self,
        layout: Layout,
        rules: PolicyRules,
        opener: RecordDeaggregator,
        decoder: PayloadDecoder,
        judge: PlacementChecker | None,
        counts: Counts,
    ) -> None:
        #: Rows of the input before those of the `InputBatch`: errors say which row of the input they mean.
        self.rows_before = 0
        self._layout, self._rules, self._opener, self._counts = layout, rules, opener, counts
        self._decoder = decoder
        self._judge = judge if layout.placement else None
        #: Shard id, sequence number and sub-sequence number of the last row.
        self._last: tuple[str | None, str | None, int] | None = None

    def forget_last_row(self) -> None:
        self._last = None

    def open_rows(self, source: InputBatch, start: int, end: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """The user records of the rows ``start`` to before ``end``, in batches of at most ``max_bytes`` (or
        one user record). Those before an error come before it."""
        self.forget_last_row()
        return self._batches(source, self._open(source, start, end), max_bytes, ())

    def copy_rows(self, source: InputBatch, start: int, end: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """As `open_rows`, for rows that were opened before: they keep their values."""
        columns = source.columns
        numbered = columns["subSequenceNumber"].null_count < source.rows
        names = ["subSequenceNumber"] * numbered + [name for name in (*_COPIED, *_KEPT) if name in columns]
        return self._batches(source, self._copy(source, start, end), max_bytes, names)

    def _open(self, source: InputBatch, start: int, end: int) -> Iterator[_InputRow]:
        names = ("partitionKey", "data", "sequenceNumber", "shardId", "explicitHashKey")
        values = zip(*(source.values(name, start, end) for name in names), strict=True)
        # The objects have no arrival time: its column is copied.
        for row, (pk, data, number, shard_id, ehk) in enumerate(values, start):
            user_records: Iterable[DeaggregatedRecord]
            if data is None:
                user_records = self._without_data(row, pk, number, shard_id, ehk)
            else:
                opened = self._opener.open_one(KinesisRecord(pk, data, number, shard_id, None, ehk))
                user_records = map(self._decoder, opened)
            for sub, record in enumerate(user_records):
                yield _InputRow(row, sub == 0, record)

    def _without_data(
        self, row: int, pk: str | None, number: str | None, shard_id: str | None, ehk: str | None
    ) -> Iterable[DeaggregatedRecord]:
        # SPK-1: "A row whose data is null MUST be reported as no-data; a policy that raises defects raises
        # it."
        if self._rules.raises:
            row += self.rows_before
            raise CaptureError(
                code="no-data",
                field=f"data of row {row} (from 0)",
                position=row,
                sequence_number=number,
                hint='leave such rows out, or give policy="report", which keeps each with the error no-data',
            )
        self._counts.kinesis_records += 1
        self._counts.user_records += 1
        self._counts.defects["no-data"] += 1
        data: Any = None
        return (DeaggregatedRecord(pk, data, ehk, (), number, 0, False, shard_id, None, defects=(NoData(),)),)

    def _copy(self, source: InputBatch, start: int, end: int) -> Iterator[_InputRow]:
        names = ("streamName", "shardId", "sequenceNumber", "partitionKey", "explicitHashKey", "data")
        more = ("subSequenceNumber", "aggregated", "openedBy", "error", "hashKey")
        rows = list(zip(*(source.values(name, start, end) for name in (*names, *more)), strict=True))

        def kinesis_records() -> Iterator[KinesisRecord | None]:
            for stream, shard_id, number, pk, ehk, data, sub, aggregated, by, error, _ in rows:
                if error is not None and error not in DATA_DEFECTS:
                    yield None
                    continue
                sub = sub if sub is None else max(sub, 0)
                opening = opened_before("kcl" if by == "kcl" else "other", bool(aggregated), sub, pk, ehk)
                yield KinesisRecord(pk, data, number, shard_id, None, ehk, sub, None, stream, opening)

        for at, (record, row) in enumerate(zip(with_siblings(kinesis_records()), rows, strict=True)):
            _, shard_id, number, _, _, data, sub, _, _, error, _ = row
            if record is None:
                found: Iterable[DeaggregatedRecord] = (self._defective(*row),)
            else:  # its stream was compared with that of the shard map before
                found = self._opener.open_one(record.replace(stream=None))
            sub = 0 if sub is None else sub
            last, self._last = self._last, (shard_id, number, sub)
            same = last is not None and last[:2] == self._last[:2] and (sub > 0 or last[2] == -1)
            for user_record in found:
                decoded = user_record if data is None else self._decoder(user_record)
                if error is not None:
                    decoded = decoded.replace(defects=())
                yield _InputRow(start + at, not same, decoded)

    def _defective(
        self, _stream: Any, shard_id: Any, number: Any, pk: Any, ehk: Any, data: Any, sub: Any,
        aggregated: Any, _by: Any, _error: Any, own: Any,
    ) -> DeaggregatedRecord:  # fmt: skip
        """A row with a defect, as an earlier run gave it."""
        self._counts.kinesis_records += 1
        self._counts.user_records += 1
        place = None
        if self._judge is not None:
            judge = self._judge.on(shard_id)
            # A user record from an aggregate has no other hash key.
            certain = ehk is not None or bool(aggregated)
            if not (aggregated or sub or looks_aggregated(data or b"")):
                place = judge.check(hash_key_or_none(pk, ehk), certain=certain)
            # It may show other keys than those that decide its shard. A frame that could not be opened has no
            # placement.
            elif own is not None or aggregated:
                place = judge.check(None if own is None else hash_key_from_bytes(own), certain=certain)
        outcome = None if sub == -1 else result_of_sound(None)
        return DeaggregatedRecord(
            pk, data, ehk, (), number, sub or 0, bool(aggregated), shard_id, None, place, (), outcome
        )

    def _batches(
        self, source: InputBatch, rows: Iterator[_InputRow], max_bytes: int, copied: Iterable[str]
    ) -> Iterator[pa.RecordBatch]:
        width = source.width

        def with_size() -> Iterator[tuple[_InputRow, int]]:
            for row in rows:
                record = row.record
                keys = len(record.partition_key or "") + len(record.explicit_hash_key or "")
                size = int(width[row.number]) + 4 * keys + len(record.data or b"")
                yield row, size + DEFECT_BYTES * bool(record.defects)

        return (self._batch(source, group, copied) for group in group_by_size(with_size(), max_bytes))

    def _batch(self, source: InputBatch, rows: list[_InputRow], copied: Iterable[str]) -> pa.RecordBatch:
        layout = self._layout
        records = [row.record for row in rows]
        columns: dict[str, pa.Array] = {}

        def put(name: str, values: Iterable[Any]) -> None:
            if layout.wants(name):
                columns[name] = pa.array(values, TYPES[name], size=len(rows))

        for name, value in _VALUES.items():
            put(name, map(value, records))
        put("aggregatePlacement", (None if r.placement is None else r.placement.aggregate for r in records))
        for name, of_place in VERDICT_VALUES.items():
            put(name, (None if r.placement is None else of_place(r.placement) for r in records))
        if self._judge is not None:
            columns |= layout.row_values(
                self._judge,
                lambda: _hash_keys(records),
                lambda: pa.array([record.shard_id for record in records], pa.string()),
            )
        for name, of_defect in DEFECT_VALUES.items():
            put(name, (of_defect(r.defects[0]) if r.defects else None for r in records))
        put("firstOfRecord", (row.first for row in rows))
        numbers = pa.array([row.number for row in rows], pa.int64())
        has_defect = pa.array([bool(record.defects) for record in records])
        for name in (*layout.shared, *filter(layout.wants, copied)):
            own = source.columns[name].take(numbers)
            if name in _KEPT and name in columns:
                own = pc.coalesce(own.cast(TYPES[name]), columns[name])
            if name in columns and name in (*DEFECT_VALUES, "errorCount"):  # its data could not be decoded
                own = pc.if_else(has_defect, columns[name], own)
            columns[name] = own
        return layout.batch(columns, len(rows))


def _hash_keys(records: list[DeaggregatedRecord]) -> pa.Array:
    keys = (None if record.placement is None else record.placement.hash_key for record in records)
    values = (None if key is None else hash_key_to_bytes(key) for key in keys)
    return pa.array(values, TYPES["hashKey"], size=len(records))
