"""Makes findings and a tally from batches of user records, in one pass. The columns of a batch become sums of
each Kinesis record by numpy; Python handles only the records that a finding is about.

    scan = Scan(shard_map, write)         # write: called with batches of FINDINGS_SCHEMA
    for batch in check(captured, shard_map, scan.report):
        scan.process(batch)
    scan.finish()
    scan.tally                            # see findings/counters.py

A row with a defect is a finding, and so is an aggregate with user records outside its shard's range. Findings
about whole shards are made in `report_facts`. The rows of one Kinesis record must be neighbours.
Memory: `AT_ONCE` rows without their data, and one Kinesis record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrow.layout import values_of
from ..findings import Finding, camel
from ..findings.counters import FIRST_SECOND, LAST_SECOND, MAX_STREAMS, Tally
from ..format.hash_keys import hash_key_from_bytes
from ..rendering.labels import plural
from ..shards.placement import CAUSES, Cause, Causes, aggregate_kind, time_of_hint
from ..shards.shard_map import ShardMap

Array = np.ndarray[Any, Any]

_TYPES = {
    "str | None": pa.string(),
    "str": pa.string(),
    "int | None": pa.int64(),
    "datetime | None": pa.timestamp("us", "UTC"),
}
#: The fewest rows that are counted together: with fewer, most of the time goes into the fixed cost of numpy's
#: calls.
AT_ONCE = 200_000
#: How many findings are written together: a batch of few takes as long as one of many.
_WRITTEN_AT_ONCE = 1000
_NAMES = tuple(field.name for field in fields(Finding))
#: The columns of a batch of findings: the severity, and every field of `Finding`.
FINDINGS_SCHEMA = pa.schema(
    [("severity", pa.string())] + [(camel(field.name), _TYPES[str(field.type)]) for field in fields(Finding)]
)

#: Columns in which few different texts repeat.
_TEXTS = ("streamName", "shardId", "expectedShardId", "placement", "kcl", "error")
_TIME = "approximateArrivalTimestamp"
#: Fields of `Finding` that say where it is; all fields that are filled from columns.
_WHERE = ("shard_id", "sequence_number", "file", "line", "position", "item")
_PLACE = (*_WHERE, "approximate_arrival_timestamp")
_EVIDENCE = (*_PLACE, "expected_shard_id", "kcl", "offset", "record_index", "requirement", "detail")
#: The columns whose names are not the field's.
_COLUMNS = {
    "offset": "errorOffset", "record_index": "errorRecordIndex", "requirement": "errorRequirement",
    "detail": "errorText", "item": "recordIndex",
}  # fmt: skip
#: The columns that a scan reads.
COLUMNS_READ = {
    *("subSequenceNumber", "aggregated", "data", "hashKey", "firstOfRecord", "inRange", *_TEXTS),
    *(_COLUMNS.get(field, camel(field)) for field in _EVIDENCE),
}


def findings_batch(findings: list[Finding]) -> pa.RecordBatch:
    columns = [[getattr(finding, name) for finding in findings] for name in ("severity", *_NAMES)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, FINDINGS_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=FINDINGS_SCHEMA)


def findings_of(batch: pa.RecordBatch) -> Iterator[Finding]:
    """The findings in a batch of FINDINGS_SCHEMA; the inverse of `findings_batch`."""
    columns = [batch[camel(name)].to_pylist() for name in _NAMES]
    return (Finding(*row) for row in zip(*columns, strict=True))


#: A row's number in a batch, and the kind and detail of the finding about it.
AboutRow = tuple[int, str, str]


def findings_about(batch: pa.RecordBatch, about: Iterable[AboutRow]) -> Iterator[Finding]:
    """The findings ``about`` rows of a batch of Kinesis records or of user records."""
    items = list(about)
    if items:
        at = pa.array([row for row, _, _ in items])
        for (_, kind, detail), place in zip(items, _evidence(batch, at, _WHERE), strict=True):
            yield Finding(kind, user_records=0, detail=detail, **place)


class Scan:
    """``shard_map``: the one whose verdicts the batches have. ``write`` is called with batches of
    FINDINGS_SCHEMA."""

    def __init__(
        self, shard_map: ShardMap, write: Callable[[pa.RecordBatch], None] = lambda findings: None
    ) -> None:
        self.tally = Tally()
        self._write = write
        self._found: list[Finding] = []
        # Where distribution is AUTO, the service chose the shard.
        self._causes = None if shard_map.distribution == "AUTO" else Causes(shard_map)
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0

    def report(self, findings: Iterable[Finding]) -> None:
        """Count findings, and write them when there are enough."""
        for finding in findings:
            self.tally.add_finding(finding)
            self._found.append(finding)
        if len(self._found) >= _WRITTEN_AT_ONCE:
            self._write(findings_batch(self._found))
            self._found = []

    def process(self, batch: pa.RecordBatch) -> None:
        """Count a batch, and report its findings. Rows of the last Kinesis record are kept until the record
        ends, and small batches until they have enough rows together."""
        if not batch.num_rows:
            return
        self._rows += batch.num_rows
        self._batches.append(_merge_equal_rows(batch))
        if self._rows >= AT_ONCE:
            rows = _join(self._batches)
            last = _first_rows(rows)[-1]
            self._batches, self._rows = [rows.slice(last)], 0
            self._scan(rows.slice(0, last))

    def finish(self) -> None:
        """Report the findings of what was kept, and write all that are not yet written."""
        batches, self._batches = self._batches, []
        if batches:
            self._scan(_join(batches))
        self._write(findings_batch(self._found))
        self._found = []

    def _scan(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            rows = _Rows(batch)
            self._count(rows)
            for findings in (self._defects(rows), self._strays(rows), self._records(rows)):
                self.report(findings)

    def _count(self, rows: _Rows) -> None:
        columns: dict[str, Any] = {
            **rows.codes,
            "rows": rows.rows,
            "size": rows.size,
            "number": rows.sequence_numbers.cast(pa.string()),
            "start": rows.seconds - rows.seconds % self.tally.bucket_seconds,
            "second": rows.seconds,
            "dropped": rows.rows * rows.dropped,
            "timed": rows.timed,
        }
        table = pa.table(columns).filter(pa.array(rows.sub >= 0))
        keys = ["shardId", "expectedShardId", "placement", "kcl"]
        for row in _group_sums(table, keys, [("rows", "sum"), ("size", "sum"), ("number", "min")]):
            key = tuple(rows.texts[name][row[name]] for name in keys)
            self.tally.add("groups", key, row["rows_sum"], row["size_sum"], row["number_min"])
        streams = {rows.texts["streamName"][code] for code in np.unique(columns["streamName"])}
        self.tally.streams = set(sorted(self.tally.streams | (streams - {None}))[:MAX_STREAMS])
        sums = [("rows", "sum"), ("size", "sum"), ("dropped", "sum"), ("second", "min"), ("second", "max")]
        for row in _group_sums(table.filter(table["timed"]), ["start", "shardId"], sums):
            shard_id = rows.texts["shardId"][row["shardId"]]
            cell = row["rows_sum"], row["size_sum"], row["dropped_sum"]
            self.tally.add("cells", (row["start"], shard_id), *cell)
            self.tally.add("shards", shard_id, 0, 0, row["second_min"], row["second_max"])

    def _defects(self, rows: _Rows) -> Iterator[Finding]:
        at = np.flatnonzero(rows.defective)
        for row, evidence in zip(at.tolist(), rows.evidence(at, _EVIDENCE), strict=True):
            sub = int(rows.sub[row])
            code = rows.texts["error"][rows.codes["error"][row]] or ""
            yield Finding(code, sub_sequence_number=sub, user_records=1 if sub >= 0 else 0, **evidence)

    def _strays(self, rows: _Rows) -> Iterator[Finding]:
        """Findings about plain records that are strays by an explicit hash key in the capture, and about user
        records that the KCL has delivered. (An aggregate with strays is one finding.)"""
        alone = ~rows.aggregated | rows.where("kcl", "delivered")
        at = np.flatnonzero(rows.where("placement", "stray") & alone)
        for row, evidence in zip(
            at.tolist(), rows.evidence(at, (*_PLACE, "expected_shard_id", "kcl")), strict=True
        ):
            yield Finding("stray", sub_sequence_number=int(rows.sub[row]), user_records=1, **evidence)

    def _records(self, rows: _Rows) -> Iterator[Finding]:
        sums = rows.sums()
        aggregated, broken = sums["aggregated"] > 0, sums["defective"] > 0
        table = pa.table({"shard": rows.codes["shardId"][rows.firsts], "opened": aggregated})
        for row in _group_sums(table, ["shard"], [("opened", "count"), ("opened", "sum")]):
            shard_id = rows.texts["shardId"][row["shard"]]
            self.tally.add("shards", shard_id, row["opened_count"], row["opened_sum"], None, None)
        self.tally.records.update(
            kinesis=len(rows.firsts),
            aggregated=int(aggregated.sum()),
            broken=int((~aggregated & broken).sum()),
            plain=int((~aggregated & ~broken).sum()),
        )
        # The KCL drops nothing of a frame that it does not open, and has delivered what it has opened.
        outside = (sums["outside"] > 0) & ((sums["kept"] == 0) | (sums["dropped"] > 0))
        at = np.flatnonzero(sums["unknown"])
        for record, place in zip(at.tolist(), rows.evidence(rows.firsts[at], _PLACE), strict=True):
            count = int(sums["unknown"][record])
            detail = f"{plural(count, 'user record')} of it in range, others missing"
            yield Finding("siblings-missing", user_records=count, **place, detail=detail)
        at = np.flatnonzero(aggregated & outside)
        ends = np.append(rows.firsts[1:], len(rows.sub))
        for record, place in zip(at.tolist(), rows.evidence(rows.firsts[at], _PLACE), strict=True):
            counts = {name: int(of_all[record]) for name, of_all in sums.items()}
            keys = rows.hash_keys[rows.firsts[record] : ends[record]]
            yield from self._of_aggregate(counts, keys, place)

    def _of_aggregate(
        self, counts: dict[str, int], keys: pa.Array, place: dict[str, Any]
    ) -> Iterator[Finding]:
        """The finding about one aggregated record with these hash keys."""
        dropped, outside, user_records = counts["dropped"], counts["outside"], counts["user_records"]
        inside = counts["known"] - outside
        kind = aggregate_kind(inside, outside)
        if kind not in ("mixed", "foreign"):
            return
        self.tally.records[kind] += 1
        cause = self._cause(keys, place)
        if cause is not None:
            self.tally.add("causes", cause.name, 1, user_records, dropped)
        shard_note = f" ({cause.shard_id})" if cause is not None and cause.shard_id else ""
        are = "is" if outside == 1 else "are"
        yield Finding(
            f"{kind}-aggregate",
            **place,
            user_records=user_records,
            inside=inside,
            outside=outside,
            dropped=dropped,
            cause=cause.name if cause else None,
            detail=f"{outside:,} of {plural(user_records, 'user record')} {are} outside the shard's range"
            + (f"; {CAUSES[cause.name]}{shard_note}" if cause else ""),
        )

    def _cause(self, keys: pa.Array, place: dict[str, Any]) -> Cause | None:
        if self._causes is None or place["shard_id"] is None:
            return None
        hash_keys = [hash_key_from_bytes(key) for key in keys.drop_null().to_pylist()]
        at = place["approximate_arrival_timestamp"] or time_of_hint(place["sequence_number"])
        return self._causes.of(place["shard_id"], min(hash_keys), max(hash_keys), at)


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _group_sums(table: pa.Table, keys: list[str], sums: list[tuple[str, str]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.group_by(keys, use_threads=False).aggregate(sums).to_pylist()
    return rows


# -- rows of whole Kinesis records ----------------------------------------------------------------


def _evidence(batch: pa.RecordBatch, at: pa.Array, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The values of the rows ``at`` as fields of `Finding`."""
    columns = (batch[_COLUMNS.get(item, camel(item))].take(at) for item in fields)
    return (dict(zip(fields, row, strict=True)) for row in zip(*map(values_of, columns), strict=True))


def _first_rows(batch: pa.RecordBatch) -> Array:
    """Where Kinesis records begin in ``batch``. A task's first row begins one."""
    return np.flatnonzero(_flags(batch, "firstOfRecord", default=True))


def _merge_equal_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` with one row, the first, for all neighbours that are of one Kinesis record and count alike,
    without data and key: ``rows`` says how many they are, ``size`` the bytes of their data.

    Rows with an error stay, and those of a Kinesis record with a hash key outside its shard's range, whose
    keys count. The rows of the last Kinesis record stay: the next batch may have more of it.
    """
    firsts = _first_rows(batch)
    begins = np.zeros(batch.num_rows, bool)
    begins[firsts] = True
    record = np.cumsum(begins)
    whole = np.ones(len(firsts) + 1, bool)
    whole[[0, -1]] = False
    whole[record[~_flags(batch, "inRange", default=True)]] = False
    defective = _numpy(pc.is_valid(batch["error"]))
    begins |= ~whole[record] | defective
    begins[1:] |= defective[:-1]
    has_key = _numpy(pc.is_valid(batch["hashKey"]))
    codes = [_text_codes(batch, name)[1] for name in ("expectedShardId", "placement", "kcl")]
    for values in (*codes, has_key):
        begins[1:] |= values[1:] != values[:-1]
    size = _numpy(pc.fill_null(pc.binary_length(batch["data"]), 0))
    at = np.flatnonzero(begins)
    rest = batch.select([name for name in batch.schema.names if name not in ("data", "partitionKey")])
    rest = rest if len(at) == len(rest) else rest.take(pa.array(at))
    rest = rest.append_column("size", pa.array(np.add.reduceat(size, at, dtype=np.int64)))
    return rest.append_column("rows", pa.array(np.diff(at, append=batch.num_rows)))


class _Rows:
    """The rows of whole Kinesis records, as `_merge_equal_rows` gives them. Arrays have an item for each row,
    ``firsts`` and ``sums`` one for each Kinesis record. ``texts``: the different texts of a column, and None;
    ``codes``: for each row the number of its text."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.firsts = _first_rows(batch)
        self.sub: Array = _numpy(batch["subSequenceNumber"])
        self.aggregated = _flags(batch, "aggregated", default=False)
        self.texts: dict[str, list[str | None]] = {}
        self.codes: dict[str, Array] = {}
        for name in _TEXTS:
            self.texts[name], self.codes[name] = _text_codes(batch, name)
        self.defective = ~self.where("error", None)
        self.dropped = self.where("kcl", "dropped")
        self.sequence_numbers = batch["sequenceNumber"]
        self.hash_keys: pa.Array = batch["hashKey"]
        self.rows, self.size = _numpy(batch["rows"]), _numpy(batch["size"])
        times = batch[_TIME]
        seconds = times.cast(pa.timestamp("s", "UTC"), safe=False).cast(pa.int64())
        self.seconds: Array = _numpy(pc.fill_null(seconds, LAST_SECOND + 1))
        # Times outside the calendar, which a capture in Parquet may have, count as missing.
        self.timed: Array = (self.seconds >= FIRST_SECOND) & (self.seconds <= LAST_SECOND)
        known_times = pc.if_else(pa.array(self.timed), times, None)
        self._batch = batch.set_column(batch.schema.get_field_index(_TIME), _TIME, known_times)

    def sums(self) -> dict[str, Array]:
        """Sums by Kinesis record: how many of its rows are user records, and so on. ``known``: user records
        whose hash key is known; ``outside``: outside the shard's range."""
        counted = {
            "user_records": self.sub >= 0,
            "known": _numpy(pc.is_valid(self.hash_keys)),
            "outside": ~_flags(self._batch, "inRange", default=True),
            "dropped": self.dropped,
            "unknown": self.where("kcl", "unknown"),
            "kept": self.where("kcl", "raw") | self.where("kcl", "delivered"),
            "aggregated": self.aggregated | (self.sub == -1),
            "defective": self.defective,
        }
        return {name: np.add.reduceat(where * self.rows, self.firsts) for name, where in counted.items()}

    def evidence(self, at: Array, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The values of the rows ``at`` as fields of `Finding`."""
        return _evidence(self._batch, pa.array(at), fields)

    def where(self, name: str, text: str | None) -> Array:
        """Which rows have ``text`` in the column ``name``."""
        return np.array([one == text for one in self.texts[name]]).take(self.codes[name])


def _text_codes(batch: pa.RecordBatch, name: str) -> tuple[list[str | None], Array]:
    """The different texts of a column, and None; for each row the number of its text."""
    column = batch[name].dictionary_encode()
    texts = [*column.dictionary.to_pylist(), None]
    return texts, _numpy(pc.fill_null(column.indices, len(texts) - 1))


def _flags(batch: pa.RecordBatch, name: str, *, default: bool) -> Array:
    return _numpy(pc.fill_null(batch[name], default))


def _numpy(array: pa.Array) -> Array:
    values: Array = array.to_numpy(zero_copy_only=False)
    return values
