"""Finds and counts what is wrong with the Kinesis records of one shard.

Judges like the rest of the library: the report policy, against a shard map with its closed shards. A Kinesis
record whose user records the KCL drops is one loss; its kind and cause come from where its hash keys lie.
Specification: spec/10-sentinel.md, SEN-12, SEN-13.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..deaggregation.policies import deaggregate
from ..deaggregation.records import DeaggregatedRecord
from ..errors import UnusedHashKey
from ..format.disguises import disguise_of
from ..format.records import KinesisRecord
from ..shards.misplacement_causes import ACROSS_SHARDS, Cause, Causes, hinted_time
from ..shards.shard_map import ShardMap
from .writers import writer_of

#: The kind of finding about an aggregated record that was turned into text.
ENCODED: Final = "capture-encoded-frame"
#: How many Kinesis records are remembered, to recognise those already counted.
REMEMBERED = 20_000


class Wrong(NamedTuple):
    """Faults with the same kind, kind of writer and cause are one finding."""

    kind: str
    writer: str
    cause: str | None


@dataclass(slots=True)
class Fault:
    """Kinesis records with one `Wrong`. ``lost``: user records that the KCL drops, in the slot looked at;
    ``outside``: the same of records read past it."""

    kinesis_records: int = 0
    lost: int = 0
    outside: int = 0
    sequence_number: str | None = None
    expected_shard_id: str | None = None


@dataclass(slots=True)
class Judged:
    """The counts of some Kinesis records of one shard. ``slot_records``, ``slot_user_records``,
    ``slot_bytes``: without those past the end of the slot. ``bytes``: of the data. ``keys``: user records in
    the slot by partition key. ``writers``: Kinesis records by kind of writer. ``reread``: seen before.

    As validation counts them: ``broken_frames``; ``aggregates``: "mixed" and "foreign"; ``fates``: user
    records, and bytes of their data, by placement verdict and what the KCL does."""

    slot_records: int = 0
    slot_user_records: int = 0
    slot_bytes: int = 0
    kinesis_records: int = 0
    user_records: int = 0
    bytes: int = 0
    reread: int = 0
    faults: dict[Wrong, Fault] = field(default_factory=dict)
    keys: Counter[str] = field(default_factory=Counter)
    writers: Counter[str] = field(default_factory=Counter)
    newest: float | None = None
    broken_frames: int = 0
    aggregates: Counter[str] = field(default_factory=Counter)
    fates: dict[tuple[str | None, str | None], tuple[int, int]] = field(default_factory=dict)

    def add(self, wrong: Wrong, sequence_number: str | None, lost: int, *, inside: bool) -> Fault:
        """Count one Kinesis record with a fault; ``inside`` the slot looked at or past it."""
        fault = self.faults.setdefault(wrong, Fault())
        fault.kinesis_records += 1
        # SEN-18: "User records read past the end of a slot MUST be told as seen, and not scaled up."
        if inside:
            fault.lost += lost
        else:
            fault.outside += lost
        fault.sequence_number = fault.sequence_number or sequence_number
        return fault


class Judge:
    """Judges records of one stream. State: the shard map, the Kinesis records seen last, and up to which
    sequence number each shard was read by an earlier run."""

    def __init__(self) -> None:
        self._map: ShardMap | None = None
        self._causes: Causes | None = None
        self._seen: OrderedDict[tuple[str | None, str | None, int], int] = OrderedDict()
        self._read_before: dict[str | None, int] = {}

    @property
    def shard_map(self) -> ShardMap | None:
        """The map that records are judged against."""
        return self._map

    def use(self, shard_map: ShardMap, *, forget: bool = False) -> None:
        """Judge against ``shard_map`` from now on; ``forget`` what was seen (of a deleted stream)."""
        if shard_map is not self._map:
            self._map, self._causes = shard_map, Causes(shard_map)
        if forget:
            self._seen.clear()
            self._read_before.clear()

    def resume(self, read_to: Mapping[str, str | None]) -> None:
        """``read_to``: by shard the sequence number up to which an earlier run read."""
        self._read_before = {shard_id: int(number) for shard_id, number in read_to.items() if number}

    def judge(
        self,
        records: Sequence[KinesisRecord],
        *,
        look: int,
        rereads: bool,
        end_ms: float = float("inf"),
    ) -> Judged:
        """Judge records of one shard. ``look``: the number of the look they come from. ``rereads``: our
        own reading may bring records of earlier looks again; else a record seen again is a duplicate.
        ``end_ms``: the end of the slot; what arrived later is past it."""
        found = Judged()
        for record in self._fresh(records, found, look, rereads):
            self._one(record, list(deaggregate([record], "report", shard_map=self._map)), found, end_ms)
        return found

    def _fresh(
        self, records: Iterable[KinesisRecord], found: Judged, look: int, rereads: bool
    ) -> Iterator[KinesisRecord]:
        for record in records:
            # SEN-33: "A Kinesis record that an earlier run read MUST NOT be counted again."
            earlier = self._read_before.get(record.shard_id, -1)
            if earlier >= 0 and record.sequence_number and int(record.sequence_number) <= earlier:
                found.reread += 1
                continue
            key = record.shard_id, record.sequence_number, record.sub_sequence_number or 0
            before = self._seen.get(key) if record.sequence_number is not None else None
            # SEN-13: "A Kinesis record (shard, sequence number, sub-sequence number) among the last 20,000
            # seen MUST NOT be counted again; it is a duplicate unless the sentinel itself read it twice."
            if before is not None:
                self._seen.move_to_end(key)
                if before == look or not rereads:
                    found.add(Wrong("duplicate", "unknown", None), record.sequence_number, 0, inside=True)
                else:
                    found.reread += 1
                continue
            self._seen[key] = look
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
            yield record

    def _one(
        self, record: KinesisRecord, rows: Sequence[DeaggregatedRecord], found: Judged, end_ms: float
    ) -> None:
        arrival = record.approximate_arrival_timestamp
        seconds = arrival.timestamp() if arrival is not None else None
        inside = seconds is None or seconds * 1000 < end_ms
        if seconds is not None:
            found.newest = seconds if found.newest is None else max(found.newest, seconds)
        writer = writer_of(record, rows)
        user_records = sum(row.sub_sequence_number >= 0 for row in rows)
        found.kinesis_records += 1
        found.user_records += user_records
        found.bytes += len(record.data)
        found.writers[writer] += 1
        self._count_fates(rows, found)
        if inside:
            found.slot_records += 1
            found.slot_user_records += user_records
            found.slot_bytes += len(record.data)
            found.keys.update(row.partition_key for row in rows if row.partition_key is not None)
        # SEN-12: "A user record is lost if the report policy says that the KCL drops it; the finding MUST
        # name the shard, the kind of writer, and the cause as far as the shards can tell."
        lost = sum(row.kcl == "dropped" for row in rows)
        if rows and not rows[0].aggregated and disguise_of(record.data) is not None:
            # SEN-38: "A Kinesis record that is an aggregated record turned into text MUST be a finding here,
            # as in a validation."
            found.add(Wrong(ENCODED, writer, None), record.sequence_number, 0, inside=inside)
        defects = [row.defects[0] for row in rows if row.defects]
        # The warning stands first; what loses user records is told before it.
        defect = next((d for d in defects if d.code != UnusedHashKey.code or not lost), None)
        if defect is not None:
            found.add(Wrong(defect.code, writer, None), record.sequence_number, lost, inside=inside)
        elif lost:
            kind, cause = self._misplaced(record, rows)
            fault = found.add(Wrong(kind, writer, cause.name), record.sequence_number, lost, inside=inside)
            fault.expected_shard_id = fault.expected_shard_id or cause.shard_id

    @staticmethod
    def _count_fates(rows: Sequence[DeaggregatedRecord], found: Judged) -> None:
        broken = any(row.defects for row in rows)
        found.broken_frames += bool(rows) and broken and not rows[0].aggregated
        users = [row for row in rows if row.sub_sequence_number >= 0]
        kinds = {row.placement.aggregate for row in users if row.placement is not None}
        unopened = any(row.kcl == "raw" for row in rows) and not any(row.kcl == "dropped" for row in rows)
        if not unopened:
            found.aggregates.update(kind for kind in kinds if kind in ("mixed", "foreign"))
        for row in users:
            verdict = str(row.placement.verdict) if row.placement is not None else None
            count, size = found.fates.get((verdict, row.kcl), (0, 0))
            found.fates[verdict, row.kcl] = count + 1, size + len(row.data)

    def _misplaced(self, record: KinesisRecord, rows: Sequence[DeaggregatedRecord]) -> tuple[str, Cause]:
        assert self._map is not None
        assert self._causes is not None
        assert record.shard_id is not None
        placements = [row.placement for row in rows if row.placement is not None]
        hash_keys = [placement.hash_key for placement in placements if placement.hash_key is not None]
        if self._map.distribution == "AUTO":
            return "distribution-auto", Cause("distribution-auto")
        at = hinted_time(record.sequence_number) or record.approximate_arrival_timestamp
        cause = self._causes.of(record.shard_id, min(hash_keys), max(hash_keys), at)
        if cause.name == ACROSS_SHARDS:
            return "naive-aggregator", cause
        return f"{placements[0].aggregate}-aggregate", cause
