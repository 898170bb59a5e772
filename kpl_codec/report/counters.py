"""Counters of limited size that can be added: one per Spark partition, merged at the end.

    parts = [Tally.from_bytes(part) for part in collected]
    total = Tally.merged(parts)

A tally depends neither on the partitions nor on the order of merging, within its limits: after `MAX_SHARDS`
shard ids the others count for `OTHERS`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from hashlib import blake2b
from heapq import nsmallest
from typing import Any

from ..findings import Finding
from .model import NOT_JUDGED, Landing

#: How many shard ids are counted separately.
MAX_SHARDS = 10_000
#: How many pairs of shard and expected shard (times verdict) are counted separately.
MAX_GROUPS = 50_000
#: Cells of shard and time bucket; above, buckets are made longer.
MAX_CELLS = 60_000
#: Findings of each kind that are kept as examples.
MAX_EXAMPLES = 250
#: Names of streams that are kept.
MAX_STREAMS = 8
#: Parts of the hash key space: one per value of a hash key's first byte.
SLOTS = 256
#: Stands for all shards past the bound.
OTHERS = "(other shards)"
#: Seconds that a time bucket may have; each is a multiple of the one before.
_LADDER = (1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400, 172_800, 345_600)

_Key = tuple[str | None, ...]


def _longer(seconds: int) -> int:
    return next((step for step in _LADDER if step > seconds), seconds * 2)


def example(one: str | None, other: str | None) -> str | None:
    """One of two sequence numbers, in either order the same; None counts as none."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _sample_key(finding: Finding) -> tuple[bytes, str]:
    """Sort key for order-independent sampling of findings."""
    place = repr(
        (
            finding.shard_id,
            finding.sequence_number,
            finding.sub_sequence_number,
            finding.record_index,
            finding.file,
            finding.line,
            finding.offset,
        )
    )
    return blake2b(place.encode("utf-8", "surrogatepass"), digest_size=8).digest(), place


def drawn(findings: Iterable[Finding], count: int) -> list[Finding]:
    """An even sample of at most ``count`` findings, independent of their order."""
    return nsmallest(count, findings, key=_sample_key)


class Tally:
    """See the module. All fields may be read; `add_*` and `merge` change them.

    ``groups``: (shard, expected shard, verdict, kcl) -> [user records, bytes, a sequence number].
    ``shards``: shard -> [Kinesis records, aggregated records, first arrival, last arrival] (seconds).
    ``cells``: (bucket start in seconds, shard) -> [user records, bytes, dropped].
    ``slots``: per 1/256 of the key space [user records, misplaced].
    ``losses``: reason -> [aggregates, user records].
    ``causes``: cause -> [aggregates, user records, dropped].
    ``kinds``: kind -> [findings, user records]. ``examples``: kind -> findings.
    """

    def __init__(self) -> None:
        self.kinesis_records = 0
        self.plain_records = 0
        self.broken_frames = 0
        self.aggregates: Counter[str] = Counter()  # "" all, "mixed", "foreign"
        self.groups: dict[_Key, list[Any]] = {}
        self.shards: dict[str | None, list[Any]] = {}
        self.bucket_seconds = 1
        self.cells: dict[tuple[int, str | None], list[int]] = {}
        self.slots = [[0, 0] for _ in range(SLOTS)]
        self.losses: dict[str, list[int]] = {}
        self.causes: dict[str, list[int]] = {}
        self.kinds: dict[str, list[int]] = {}
        self.examples: dict[str, list[Finding]] = {}
        self.streams: set[str] = set()

    # -- counting -------------------------------------------------------------------------------

    def known(self, shard_id: str | None) -> str | None:
        """``shard_id``, or `OTHERS` where there are too many to tell apart."""
        if shard_id in self.shards or len(self.shards) < MAX_SHARDS:
            self.shards.setdefault(shard_id, [0, 0, None, None])
            return shard_id
        self.shards.setdefault(OTHERS, [0, 0, None, None])
        return OTHERS

    def add_group(
        self,
        shard_id: str | None,
        expected: str | None,
        verdict: str | None,
        kcl: str | None,
        user_records: int,
        size: int,
        sequence_number: str | None,
    ) -> None:
        """Count user records of one shard with the same expected shard, verdict and fate at the KCL."""
        key: _Key = (self.known(shard_id), expected, verdict, kcl)
        if key not in self.groups and len(self.groups) >= MAX_GROUPS:
            key = (key[0], OTHERS, verdict, kcl)
        group = self.groups.setdefault(key, [0, 0, None])
        group[0] += user_records
        group[1] += size
        group[2] = example(group[2], sequence_number)

    def add_kinesis_records(self, shard_id: str | None, kinesis_records: int, aggregated: int) -> None:
        """Count Kinesis records on a shard, and how many of them are aggregated."""
        shard = self.shards[self.known(shard_id)]
        shard[0] += kinesis_records
        shard[1] += aggregated

    def add_arrivals(self, shard_id: str | None, first: int, last: int) -> None:
        """When the first and the last of some records came to a shard, in seconds since 1970."""
        shard = self.shards[self.known(shard_id)]
        shard[2] = first if shard[2] is None else min(shard[2], first)
        shard[3] = last if shard[3] is None else max(shard[3], last)

    def add_cell(self, second: int, shard_id: str | None, user_records: int, size: int, dropped: int) -> None:
        """Count what arrived on a shard in the bucket of that second (since 1970, may be negative)."""
        key = (second - second % self.bucket_seconds, self.known(shard_id))
        cell = self.cells.setdefault(key, [0, 0, 0])
        cell[0] += user_records
        cell[1] += size
        cell[2] += dropped
        if len(self.cells) > MAX_CELLS:
            self._coarsen()

    def _coarsen(self, seconds: int | None = None) -> None:
        """Lengthen the buckets to ``seconds``, or until there are not too many cells."""
        while self.bucket_seconds < seconds if seconds else len(self.cells) > MAX_CELLS:
            if seconds is None and len({start for start, _ in self.cells}) <= 1:
                return  # one bucket holds it all: there are just that many shards
            self.bucket_seconds = _longer(self.bucket_seconds)
            before, self.cells = self.cells, {}
            for (start, shard_id), cell in before.items():
                into = self.cells.setdefault((start - start % self.bucket_seconds, shard_id), [0, 0, 0])
                for index, value in enumerate(cell):
                    into[index] += value

    def add_loss(self, reason: str, user_records: int) -> None:
        """One Kinesis record of which the KCL drops ``user_records``."""
        _add(self.losses, reason, (1, user_records))

    def add_cause(self, cause: str, user_records: int, dropped: int) -> None:
        """Count an aggregate with user records outside its shard's range, and its cause if known.
        ``dropped``: how many of its user records the KCL drops."""
        _add(self.causes, cause, (1, user_records, dropped))

    def add_finding(self, finding: Finding) -> None:
        """Count a finding, and keep it if it is drawn as an example."""
        _add(self.kinds, finding.kind, (1, finding.user_records or 0))
        kept = self.examples.setdefault(finding.kind, [])
        kept.append(finding)
        if len(kept) >= 4 * MAX_EXAMPLES:
            self.examples[finding.kind] = drawn(kept, MAX_EXAMPLES)

    # -- adding up ------------------------------------------------------------------------------

    def merge(self, other: Tally) -> Tally:
        """Add the counts of ``other``. Returns this tally."""
        self.kinesis_records += other.kinesis_records
        self.plain_records += other.plain_records
        self.broken_frames += other.broken_frames
        self.aggregates += other.aggregates
        for shard_id, (kinesis_records, aggregated, first, last) in other.shards.items():
            self.add_kinesis_records(shard_id, kinesis_records, aggregated)
            if first is not None:
                self.add_arrivals(shard_id, first, last)
        for (shard_id, expected, verdict, kcl), group in other.groups.items():
            self.add_group(shard_id, expected, verdict, kcl, *group)
        self._coarsen(other.bucket_seconds)
        for (start, shard_id), cell in other.cells.items():
            self.add_cell(start, shard_id, *cell)
        for slot, counts in zip(self.slots, other.slots, strict=True):
            slot[0] += counts[0]
            slot[1] += counts[1]
        for mine, theirs in (
            (self.losses, other.losses),
            (self.causes, other.causes),
            (self.kinds, other.kinds),
        ):
            for name, counts in theirs.items():
                _add(mine, name, counts)
        for kind, findings in other.examples.items():
            both = self.examples.get(kind, []) + findings
            self.examples[kind] = drawn(both, MAX_EXAMPLES)
        self.streams = set(sorted(self.streams | other.streams)[:MAX_STREAMS])
        return self

    @classmethod
    def merged(cls, tallies: Iterable[Tally]) -> Tally:
        """The sum of all ``tallies``, lazily taken."""
        total = cls()
        for tally in tallies:
            total.merge(tally)
        return total

    # -- travelling -----------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """As JSON (UTF-8); `from_bytes` reads it back."""
        values = dict(vars(self))
        values["groups"] = [[*key, *group] for key, group in self.groups.items()]
        values["shards"] = [[shard_id, *shard] for shard_id, shard in self.shards.items()]
        values["cells"] = [[*key, *cell] for key, cell in self.cells.items()]
        values["streams"] = sorted(self.streams)
        values["examples"] = {
            kind: [finding_row(finding) for finding in drawn(findings, MAX_EXAMPLES)]
            for kind, findings in self.examples.items()
        }
        return json.dumps(values).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Tally:
        """The tally that `to_bytes` wrote. Raises ValueError for anything else."""
        values = json.loads(data)
        tally = cls()
        if not isinstance(values, dict) or values.keys() != vars(tally).keys():
            raise ValueError("not a tally")
        values["aggregates"] = Counter(values["aggregates"])
        values["groups"] = {tuple(row[:4]): row[4:] for row in values["groups"]}
        values["shards"] = {row[0]: row[1:] for row in values["shards"]}
        values["cells"] = {(row[0], row[1]): row[2:] for row in values["cells"]}
        values["streams"] = set(values["streams"])
        values["examples"] = {
            kind: [_finding_of(row) for row in rows] for kind, rows in values["examples"].items()
        }
        vars(tally).update(values)
        return tally

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and _comparable(self) == _comparable(other)

    __hash__ = None  # type: ignore[assignment]


class Loads:
    """The groups of a tally, summed up by shard."""

    def __init__(self, tally: Tally) -> None:
        self.user_records: Counter[str | None] = Counter()
        self.bytes: Counter[str | None] = Counter()
        self.misplaced: Counter[str | None] = Counter()
        self.dropped: Counter[str | None] = Counter()
        self.belonging: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.kcl: Counter[str] = Counter()
        #: (shard, verdict) -> [user records, a sequence number]
        self.judged: dict[tuple[str | None, str], list[Any]] = {}
        pairs: Counter[tuple[str | None, str | None, str]] = Counter()
        for (shard_id, expected, verdict, kcl), (count, size, number) in tally.groups.items():
            verdict = verdict or NOT_JUDGED
            self.user_records[shard_id] += count
            self.bytes[shard_id] += size
            self.verdicts[verdict] += count
            if verdict == "stray":
                self.misplaced[shard_id] += count
            if kcl is not None:
                self.kcl[kcl] += count
            if kcl == "dropped":
                self.dropped[shard_id] += count
            if expected is not None and expected != OTHERS:
                self.belonging[expected] += count
            pairs[shard_id, expected, verdict] += count
            judged = self.judged.setdefault((shard_id, verdict), [0, None])
            judged[0] += count
            judged[1] = example(judged[1], number)
        self.landings = [
            Landing(shard_id, expected, verdict, count)
            for (shard_id, expected, verdict), count in pairs.items()
            if verdict != NOT_JUDGED
        ]


def _add(into: dict[str, list[int]], name: str, counts: Sequence[int]) -> None:
    have = into.setdefault(name, [0] * len(counts))
    for index, count in enumerate(counts):
        have[index] += count


def _comparable(tally: Tally) -> dict[str, Any]:
    examples = {kind: drawn(kept, MAX_EXAMPLES) for kind, kept in tally.examples.items()}
    return {**vars(tally), "examples": examples}


def finding_row(finding: Finding) -> dict[str, Any]:
    """The fields of a finding that apply, for JSON; the time is a text."""
    row = {name: value for name, value in asdict(finding).items() if value is not None}
    if finding.approximate_arrival_timestamp is not None:
        row["approximate_arrival_timestamp"] = finding.approximate_arrival_timestamp.isoformat()
    return row


def _finding_of(row: dict[str, Any]) -> Finding:
    text = row.get("approximate_arrival_timestamp")
    time = datetime.fromisoformat(text).astimezone(timezone.utc) if text is not None else None
    return Finding(**{**row, "approximate_arrival_timestamp": time})
