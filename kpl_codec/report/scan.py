"""Makes findings and a tally from batches of user records: one pass, in the worker.

    scan = Scan(shard_map)
    for batch in checked:              # what `kpl_codec.arrow` gives under the report policy
        found = scan.process(batch)    # a batch of FINDINGS_SCHEMA
    found = scan.finish()
    scan.tally                         # see counters.py

There is one finding for every row with a defect, and one for every aggregate with user records outside its
shard's range. Facts about a whole shard are counted here and become findings in `build_report`.

The rows of one Kinesis record must be neighbours; where one is cut between two scans it still counts once,
but its finding has the counts of its first part (a row about a frame as a whole, sub-sequence number -1, must
be in one scan with what follows it). Memory: one batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pyarrow as pa

from ..findings import KINDS, Finding
from ..format.hash_keys import hash_key_from_bytes
from ..pictures.labels import camel
from ..shards.placement import CAUSES, Cause, Causes, aggregate_kind, hinted_time
from ..shards.shard_map import ShardMap
from .counters import MAX_STREAMS, Tally
from .rows import EVIDENCE, PLACE, Array, Rows, Run, Sums

_TYPES = {
    "str | None": pa.string(),
    "str": pa.string(),
    "int | None": pa.int64(),
    "datetime | None": pa.timestamp("us", "UTC"),
}


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
        self._map = shard_map
        self._causes = Causes(shard_map) if shard_map is not None else None
        self._open: Run | None = None

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The findings in ``batch``. The last Kinesis record in it is held until its end is seen."""
        found: list[Finding] = []
        if batch.num_rows:
            rows = Rows(batch)
            self._count(rows)
            found += self._defects(rows)
            found += self._runs(rows)
        return self._told(found)

    def finish(self) -> pa.RecordBatch:
        last, self._open = self._open, None
        return self._told(list(self._judge(last)) if last is not None else [])

    def _told(self, found: list[Finding]) -> pa.RecordBatch:
        for finding in found:
            self.tally.add_finding(finding)
        return findings_batch(found)

    def _count(self, rows: Rows) -> None:
        counted = rows.sub >= 0
        keys = ["shardId", "expectedShardId", "placement", "kcl"]
        table = pa.table(
            {
                **{name: rows.codes[name] for name in keys},
                "rows": rows.counts,
                "size": rows.size,
                "number": rows.sequence_numbers,
            }
        )
        sums = (
            table.filter(pa.array(counted))
            .group_by(keys, use_threads=False)
            .aggregate([("rows", "sum"), ("size", "sum"), ("number", "min")])
        )
        for row in sums.to_pylist():
            key = tuple(rows.texts[name][row[name]] for name in keys)
            self.tally.add("groups", key, row["rows_sum"], row["size_sum"], row["number_min"])
        streams = {rows.texts["streamName"][code] for code in np.unique(rows.codes["streamName"])}
        self.tally.streams = set(sorted(self.tally.streams | (streams - {None}))[:MAX_STREAMS])
        self._count_times(rows, counted)
        valid = counted & rows.known
        if valid.any():
            astray = rows.slots(valid & rows.where("placement", "stray"))
            for slot, counts in enumerate(zip(rows.slots(valid), astray, strict=True)):
                if any(counts):
                    self.tally.add("slots", slot, *counts)

    def _count_times(self, rows: Rows, counted: Array) -> None:
        timed = np.flatnonzero(counted & rows.timed)
        seconds, counts = rows.seconds[timed], rows.counts[timed]
        table = pa.table(
            {
                "start": seconds - seconds % self.tally.bucket_seconds,
                "shard": rows.codes["shardId"][timed],
                "second": seconds,
                "rows": counts,
                "size": rows.size[timed],
                "dropped": counts * rows.dropped[timed],
            }
        )
        sums = [
            *((name, "sum") for name in ("rows", "size", "dropped")),
            ("second", "min"),
            ("second", "max"),
        ]
        for row in table.group_by(["start", "shard"], use_threads=False).aggregate(sums).to_pylist():
            shard_id = rows.texts["shardId"][row["shard"]]
            cell = row["rows_sum"], row["size_sum"], row["dropped_sum"]
            self.tally.add("cells", (row["start"], shard_id), *cell)
            self.tally.add("shards", shard_id, 0, 0, row["second_min"], row["second_max"])

    def _defects(self, rows: Rows) -> Iterator[Finding]:
        defective = np.flatnonzero(rows.defective)
        for row, evidence in zip(defective.tolist(), rows.evidence(defective, EVIDENCE), strict=True):
            captured = rows.sub[row] < -1
            code = rows.text("error", row) or ""
            of_capture = captured and not code.startswith("capture") and code not in KINDS
            yield Finding(
                kind=f"capture-{code}" if of_capture else code,
                sub_sequence_number=None if captured else int(rows.sub[row]),
                user_records=1 if rows.sub[row] >= 0 else 0,
                **evidence,
            )
        # A plain record whose explicit hash key is in the capture; those of aggregates count as a whole.
        astray = np.flatnonzero(rows.where("placement", "stray") & ~rows.aggregated)
        fields = (*PLACE, "expected_shard_id", "kcl")
        for row, evidence in zip(astray.tolist(), rows.evidence(astray, fields), strict=True):
            yield Finding("stray", sub_sequence_number=int(rows.sub[row]), user_records=1, **evidence)

    def _runs(self, rows: Rows) -> Iterator[Finding]:
        starts = rows.starts()
        continued = self._open is not None and not starts[0]
        starts[0] = not continued
        if not continued and self._open is not None:
            before, self._open = self._open, None
            yield from self._judge(before)
        firsts = np.union1d([0], np.flatnonzero(starts))
        runs = Sums(rows, firsts)
        # Sound records that end in this batch are only counted; all others are looked at one by one.
        usual = runs.usual & (rows.sub[firsts] >= -1)
        usual[-1] = False
        usual[0] &= not continued
        whole = usual & (rows.sub[firsts] <= 0)
        shards = rows.codes["shardId"][firsts]
        for code in np.unique(shards[whole]).tolist():
            of_shard = whole & (shards == code)
            kinesis_records = int(of_shard.sum())
            aggregated = int((of_shard & (runs.of["aggregated"] > 0)).sum())
            plain = kinesis_records - aggregated
            self.tally.records.update(kinesis=kinesis_records, plain=plain, aggregated=aggregated)
            self.tally.add("shards", rows.texts["shardId"][code], kinesis_records, aggregated, None, None)
        ends = np.append(firsts[1:], len(rows.sub))
        unusual = np.flatnonzero(~usual & (rows.sub[firsts] >= -1))
        places = rows.evidence(firsts[unusual], PLACE)
        for number, place in zip(unusual.tolist(), places, strict=True):
            first, end = int(firsts[number]), int(ends[number])
            run = self._open if number == 0 and continued else None
            if run is None:
                run = Run(place, started=bool(rows.sub[first] <= 0))
            self._extend(run, rows, first, end, runs)
            self._open = run if number == len(firsts) - 1 else None
            if self._open is None:
                yield from self._judge(run)

    def _extend(self, run: Run, rows: Rows, first: int, end: int, runs: Sums) -> None:
        at = int(np.searchsorted(runs.firsts, first))
        run.empty = run.empty or rows.text("error", first) == "no-user-records"
        if runs.of["dropped"][at] and not run.counts["dropped"]:
            run.drop_error = rows.text("error", first + int(np.argmax(rows.dropped[first:end])))
        run.counts.update({name: int(sums[at]) for name, sums in runs.of.items()})
        if self._map is not None and run.counts["aggregated"]:
            keys = rows.keys(first, end)
            run.lowest = min(keys if run.lowest is None else [run.lowest, *keys], default=None)
            run.highest = max(keys if run.highest is None else [run.highest, *keys], default=None)

    def _judge(self, run: Run) -> Iterator[Finding]:
        tally, counts = self.tally, run.counts
        aggregated, broken = counts["aggregated"] > 0, counts["defective"] > 0
        if run.started:
            tally.records.update(["kinesis", "aggregated" if aggregated else "broken" if broken else "plain"])
            tally.add("shards", run.place["shard_id"], 1, int(aggregated), None, None)
        if not aggregated:
            return
        inside, outside = counts["known"] - counts["outside"], counts["outside"]
        raw = counts["raw"] and not counts["dropped"]  # the KCL does not open it, so it cannot drop it
        if counts["dropped"] or run.empty:
            tally.add("losses", _reason(run), 1, counts["dropped"])
        repaired = counts["repaired"]
        if repaired and not counts["dropped"]:
            detail = f"copies of {repaired} user records that the KCL drops were put and are delivered"
            yield Finding("repaired", user_records=repaired, **run.place, detail=detail)
            return
        kind = aggregate_kind(inside, outside)
        if raw or (kind != "mixed" and kind != "foreign"):
            return
        if run.started:
            tally.records[kind] += 1
        cause = self._cause(run)
        if cause is not None:
            tally.add("causes", cause.name, 1, counts["user_records"], counts["dropped"])
        held = f" ({cause.shard_id})" if cause is not None and cause.shard_id else ""
        are = "is" if outside == 1 else "are"
        yield Finding(
            f"{kind}-aggregate",
            **run.place,
            user_records=counts["user_records"],
            inside=inside,
            outside=outside,
            dropped=counts["dropped"],
            cause=cause.name if cause else None,
            detail=f"{outside} of {counts['user_records']} user records {are} outside the shard's range"
            + (f"; {CAUSES[cause.name]}{held}" if cause else ""),
        )

    def _cause(self, run: Run) -> Cause | None:
        shard_id = run.place["shard_id"]
        if self._causes is None or shard_id is None or run.lowest is None or run.highest is None:
            return None
        if self._map is not None and self._map.distribution == "AUTO":
            return None  # the service chose the shard
        lowest, highest = (hash_key_from_bytes(key) for key in (run.lowest, run.highest))
        at = run.place["approximate_arrival_timestamp"] or hinted_time(run.place["sequence_number"])
        return self._causes.of(shard_id, lowest, highest, at)


def _reason(run: Run) -> str:
    """Why the KCL drops user records of this Kinesis record (the names of `kcl.Outcome.reason`)."""
    if run.empty:
        return "no-user-records"
    if run.drop_error == "index-out-of-table":
        return run.drop_error
    if run.counts["delivered"] or (run.drop_error and not run.counts["outside"]):
        return "hash-key"
    return "out-of-range"
