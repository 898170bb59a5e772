"""Finds what is wrong with the Kinesis records of one shard, by the report policy: spec/10-watch.md, 10.2."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..deaggregation.deaggregated_record import DeaggregatedRecord
from ..deaggregation.fingerprints import OTHERS, Sign, fingerprint
from ..deaggregation.policies import opened
from ..findings.record_findings import findings_in, writer_finding
from ..format.records import KinesisRecord, opening_of
from ..shards.placement import ACROSS_SHARDS, Causes, time_of_hint
from ..shards.shard_map import ShardMap


class FindingGroup(NamedTuple):
    """The faults on a shard with the same kind, kind of writer and cause are one finding."""

    kind: str
    writer: str = "unknown"
    cause: str | None = None


@dataclass(slots=True)
class Minute:
    """Counts of what was read of one shard in one minute. ``slot_...``: only of records that arrived within
    the slots. ``read_ms``: milliseconds of the shard's time that were read; ``sampled_ms``: those of
    ``slots`` slots; ``represented_ms``: those of their periods and of skipped ones. ``losses``: user records
    that the KCL drops, by `FindingGroup` and number of the poll (None: not to be extrapolated)."""

    slot_records: int = 0
    slot_user_records: int = 0
    slot_bytes: int = 0
    polls: int = 0
    slots: int = 0
    read_ms: int = 0
    sampled_ms: int = 0
    represented_ms: int = 0
    losses: Counter[tuple[FindingGroup, int | None]] = field(default_factory=Counter)


#: How many Kinesis records are remembered, to recognise those already counted.
REMEMBERED = 20_000


class SampleSlot(NamedTuple):
    """The part of a shard's time that one poll reads. ``number``: of the poll. ``scale``: slots in a period;
    1 where everything is read. ``end_ms``: of the slot, since 1970; responses may have later records."""

    shard_id: str | None
    number: int
    scale: float = 1.0
    end_ms: float = float("inf")


class RecordFault(NamedTuple):
    """What is wrong with one Kinesis record. ``inside``: it arrived within the slot. ``lost``: user records
    that the KCL drops. ``by_map``: another shard map could say that it drops none."""

    group: FindingGroup
    sequence_number: str | None
    inside: bool
    lost: int = 0
    expected_shard_id: str | None = None
    by_map: bool = False


@dataclass(slots=True)
class CheckResult:
    """``keys``: user records within the slot, by partition key. ``read``: kinesis_records, user_records,
    bytes, reread (Kinesis records that the watch read twice). ``writers``: Kinesis records by kind of
    writer."""

    faults: list[RecordFault] = field(default_factory=list)
    keys: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    writers: Counter[str] = field(default_factory=Counter)


class RecordChecker:
    """Checks records of one stream. It keeps which Kinesis records were read last."""

    def __init__(self) -> None:
        self.shard_map: ShardMap | None = None
        self._causes: Causes | None = None
        self._recent: OrderedDict[tuple[str | None, str | None, int], int] = OrderedDict()

    def set_shard_map(self, shard_map: ShardMap, *, forget: bool = False) -> None:
        """Check against ``shard_map`` from now on. ``forget`` which records were read."""
        if shard_map is not self.shard_map:
            self.shard_map, self._causes = shard_map, Causes(shard_map)
        if forget:
            self._recent.clear()

    def check(self, records: Iterable[KinesisRecord], slot: SampleSlot, minute: Minute) -> CheckResult:
        """Check the records that were not checked before, and count them in ``minute``."""
        result = CheckResult()
        for record in self._new_records(records, result, slot):
            self._check_record(record, result, slot, minute)
        return result

    def _new_records(
        self, records: Iterable[KinesisRecord], result: CheckResult, slot: SampleSlot
    ) -> Iterator[KinesisRecord]:
        for record in records:
            key = record.shard_id, record.sequence_number, record.sub_sequence_number or 0
            poll = self._recent.get(key) if record.sequence_number is not None else None
            # WCH-13: "A Kinesis record (shard, sequence number, sub-sequence number) among the last 20,000
            # seen MUST NOT be counted again; it is a duplicate unless the watch itself read it twice."
            if poll is not None:
                self._recent.move_to_end(key)
                if poll == slot.number:
                    group = FindingGroup("duplicate")
                    result.faults.append(RecordFault(group, record.sequence_number, inside=True))
                else:
                    result.read["reread"] += 1
                continue
            self._recent[key] = slot.number
            if len(self._recent) > REMEMBERED:
                self._recent.popitem(last=False)
            yield record

    def _check_record(
        self, record: KinesisRecord, result: CheckResult, slot: SampleSlot, minute: Minute
    ) -> None:
        rows = list(opened([record], "report", shard_map=self.shard_map))
        arrival = record.approximate_arrival_timestamp
        seconds = arrival.timestamp() if arrival is not None else 0.0
        inside = seconds * 1000 < slot.end_ms
        sign = fingerprint(record.data, record.partition_key)
        writer = writer_of(record, rows, sign)
        user_records = sum(row.is_user_record for row in rows)
        result.read.update(kinesis_records=1, user_records=user_records, bytes=len(record.data))
        result.writers[writer] += 1
        if inside:
            minute.slot_records += 1
            minute.slot_user_records += user_records
            minute.slot_bytes += len(record.data)
            result.keys.update(row.partition_key for row in rows if row.partition_key is not None)
        by_map = any(row.kcl == "dropped" and row.placement is not None for row in rows)
        for group, lost, expected in self._faults(record, rows, sign, writer):
            fault = RecordFault(group, record.sequence_number, inside, lost, expected, by_map and lost > 0)
            result.faults.append(fault)

    def _faults(
        self, record: KinesisRecord, rows: Sequence[DeaggregatedRecord], sign: Sign | None, writer: str
    ) -> Iterator[tuple[FindingGroup, int, str | None]]:
        """What is wrong with a Kinesis record, how many user records the KCL drops for it, and the shard that
        they belong on."""
        kinds = {found.kind for found in findings_in(rows)}
        if sign is not None:
            kinds.add(writer_finding(sign).kind)
        for kind in sorted(kinds - {"writer"}):  # writers are counted by themselves
            yield FindingGroup(kind, writer), 0, None
        # WCH-12: "A user record is lost if the report policy says that the KCL drops it; the finding MUST
        # name the shard, the kind of writer, and the cause as far as the shards can tell."
        dropped = sum(row.kcl == "dropped" for row in rows)
        defects = [row.defects[0].code for row in rows if row.defects]
        if defects:
            yield FindingGroup(defects[0], writer), dropped, None
        elif dropped:
            group, expected = self._misplaced(record, rows, writer)
            yield group, dropped, expected

    def _misplaced(
        self, record: KinesisRecord, rows: Sequence[DeaggregatedRecord], writer: str
    ) -> tuple[FindingGroup, str | None]:
        """Why the KCL drops user records of a sound Kinesis record, and the shard that they belong on."""
        assert self.shard_map is not None
        assert self._causes is not None
        assert record.shard_id is not None
        if self.shard_map.distribution == "AUTO":
            return FindingGroup("distribution-auto", writer), None
        placements = [row.placement for row in rows if row.placement is not None]
        hash_keys = [placement.hash_key for placement in placements if placement.hash_key is not None]
        at = time_of_hint(record.sequence_number) or record.approximate_arrival_timestamp
        cause, shard_id = self._causes.of(record.shard_id, min(hash_keys), max(hash_keys), at)
        kind = "naive-aggregator" if cause == ACROSS_SHARDS else f"{placements[0].aggregate}-aggregate"
        return FindingGroup(kind, writer, cause), shard_id


def writer_of(record: KinesisRecord, rows: Sequence[DeaggregatedRecord], sign: Sign | None) -> str:
    """The kind of the writer, a key of `WRITERS`."""
    aggregated = bool(rows) and rows[0].aggregated
    if sign is not None and sign in OTHERS:
        return sign.name
    if rows and not aggregated and not rows[0].defects:
        return "plain"
    if not aggregated or record.partition_key is None or opening_of(record) is not None:
        return "unknown"  # what was opened before does not have the key of its Kinesis record
    if record.partition_key == "a":
        return "kpl"
    first = next((row.partition_key for row in rows if row.sub_sequence_number == 0), None)
    return "first-key" if record.partition_key == first else "other-key"
