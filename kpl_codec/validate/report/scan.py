"""Makes findings and a tally from batches of user records: one pass, in the worker.

    scan = Scan(shard_map)
    for batch in checked:                 # what `check` gives
        findings = scan.process(batch)    # a batch of FINDINGS_SCHEMA
    findings = scan.finish()
    scan.tally                            # see findings/counters.py

A row with a defect is a finding, and so is an aggregate with user records outside its shard's range. What is
about a whole shard becomes a finding in `build_report`.

The rows of one Kinesis record must be neighbours. One that is cut between two scans counts once, and its
finding has the counts of its first part. Memory: `AT_ONCE` rows without their data, and one Kinesis record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa

from ...findings import KINDS, Finding, camel
from ...findings.counters import MAX_STREAMS, SLOTS, Tally
from ...format.hash_keys import hash_key_from_bytes
from ...shards.placement import CAUSES, Cause, Causes, aggregate_kind, time_of_hint
from ...shards.shard_map import ShardMap
from .record_sums import EVIDENCE, PLACE, RecordSums, first_rows, merge_equal_rows, slots

_TYPES = {
    "str | None": pa.string(),
    "str": pa.string(),
    "int | None": pa.int64(),
    "datetime | None": pa.timestamp("us", "UTC"),
}

#: Rows that are counted together at least: less, and most of the time goes into the single steps.
AT_ONCE = 200_000

#: The columns of a batch of findings: the severity, and every field of `Finding`.
FINDINGS_SCHEMA = pa.schema(
    [("severity", pa.string())] + [(camel(field.name), _TYPES[str(field.type)]) for field in fields(Finding)]
)
_NAMES = tuple(field.name for field in fields(Finding))


def findings_batch(findings: list[Finding]) -> pa.RecordBatch:
    columns = [[getattr(finding, name) for finding in findings] for name in ("severity", *_NAMES)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, FINDINGS_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=FINDINGS_SCHEMA)


def findings_of(batch: pa.RecordBatch) -> Iterator[Finding]:
    """The findings in a batch of FINDINGS_SCHEMA; the inverse of `findings_batch`."""
    columns = [batch[camel(name)].to_pylist() for name in _NAMES]
    return (Finding(*row) for row in zip(*columns, strict=True))


class Scan:
    """See the module. ``shard_map`` is the one that the batches were judged with, None if they were not."""

    def __init__(self, shard_map: ShardMap | None = None) -> None:
        self.tally = Tally()
        # Where distribution is AUTO, the service chose the shard.
        self._causes = None if shard_map is None or shard_map.distribution == "AUTO" else Causes(shard_map)
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._slots = np.zeros((2, SLOTS), np.int64)

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Takes ``batch``; gives findings. The last Kinesis record is held until its end is seen, and small
        batches until there are enough of them."""
        if not batch.num_rows:
            return findings_batch([])
        self._slots += slots(batch)
        self._rows += batch.num_rows
        self._batches.append(merge_equal_rows(batch))
        if self._rows < AT_ONCE:
            return findings_batch([])
        rows = _join(self._batches)
        last = first_rows(rows)[-1:].sum()
        self._batches, self._rows = [rows.slice(last)], 0
        return self._scan(rows.slice(0, last))

    def finish(self) -> pa.RecordBatch:
        batches, self._batches = self._batches, []
        for slot, (count, astray) in enumerate(self._slots.T.tolist()):
            if count:
                self.tally.add("slots", slot, count, astray)
        return self._scan(_join(batches)) if batches else findings_batch([])

    def _scan(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        findings: list[Finding] = []
        if batch.num_rows:
            rows = RecordSums(batch)
            self._count(rows)
            findings = [*self._defects(rows), *self._strays(rows), *self._records(rows)]
        for finding in findings:
            self.tally.add_finding(finding)
        return findings_batch(findings)

    def _count(self, rows: RecordSums) -> None:
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

    def _defects(self, rows: RecordSums) -> Iterator[Finding]:
        at = np.flatnonzero(rows.defective)
        for row, evidence in zip(at.tolist(), rows.evidence(at, EVIDENCE), strict=True):
            captured = rows.sub[row] < -1
            code = rows.text("error", row) or ""
            # A code may be one of the capture and one of a frame's bytes: missing-field is both.
            of_capture = f"capture-{code}" in KINDS or not (code.startswith("capture") or code in KINDS)
            yield Finding(
                kind=f"capture-{code}" if captured and of_capture else code,
                sub_sequence_number=None if captured else int(rows.sub[row]),
                user_records=1 if rows.sub[row] >= 0 else 0,
                **evidence,
            )

    def _strays(self, rows: RecordSums) -> Iterator[Finding]:
        """Plain records whose explicit hash key is in the capture; those of aggregates count as a whole."""
        at = np.flatnonzero(rows.where("placement", "stray") & ~rows.aggregated)
        fields = (*PLACE, "expected_shard_id", "kcl")
        for row, evidence in zip(at.tolist(), rows.evidence(at, fields), strict=True):
            yield Finding("stray", sub_sequence_number=int(rows.sub[row]), user_records=1, **evidence)

    def _records(self, rows: RecordSums) -> Iterator[Finding]:
        sums = rows.sums()
        aggregated, broken = sums["aggregated"] > 0, sums["defective"] > 0
        # One that was cut between two scans counts where it began; what is about the capture is none.
        first_subs = rows.sub[rows.firsts]
        begun = (first_subs == 0) | (first_subs == -1)
        table = pa.table({"shard": rows.codes["shardId"][rows.firsts], "begun": begun, "opened": aggregated})
        for row in _group_sums(
            table.filter(table["begun"]), ["shard"], [("begun", "sum"), ("opened", "sum")]
        ):
            shard_id = rows.texts["shardId"][row["shard"]]
            self.tally.add("shards", shard_id, row["begun_sum"], row["opened_sum"], None, None)
        self.tally.records.update(
            kinesis=int(begun.sum()),
            aggregated=int((begun & aggregated).sum()),
            broken=int((begun & ~aggregated & broken).sum()),
            plain=int((begun & ~aggregated & ~broken).sum()),
        )
        # What the KCL does not open it cannot drop.
        astray = (sums["outside"] > 0) & ((sums["raw"] == 0) | (sums["dropped"] > 0))
        at = np.flatnonzero(aggregated & (astray | (sums["repaired"] > 0)))
        ends = np.append(rows.firsts[1:], len(rows.sub))
        for record, place in zip(at.tolist(), rows.evidence(rows.firsts[at], PLACE), strict=True):
            counts = {name: int(of_all[record]) for name, of_all in sums.items()}
            keys = rows.hash_keys[rows.firsts[record] : ends[record]]
            yield from self._judge(counts, keys, place, begun=bool(begun[record]))

    def _judge(
        self, counts: dict[str, int], keys: pa.Array, place: dict[str, Any], *, begun: bool
    ) -> Iterator[Finding]:
        """The finding about one aggregated record with these hash keys."""
        dropped, outside, user_records = counts["dropped"], counts["outside"], counts["user_records"]
        repaired = counts["repaired"]
        if repaired and not dropped:
            detail = f"copies of {repaired} user records that the KCL drops were put and are delivered"
            yield Finding("repaired", user_records=repaired, **place, detail=detail)
            return
        inside = counts["known"] - outside
        kind = aggregate_kind(inside, outside)
        if kind not in ("mixed", "foreign"):
            return
        self.tally.records[kind] += begun
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
            detail=f"{outside} of {user_records} user records {are} outside the shard's range"
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
