"""The last hour of a stream: findings with estimates of lost user records, from the records that were read.

Counts are kept by minute and shard. A `Watch` reads the records: spec/10-watch.md, 10.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, Literal

from ..deaggregation.fingerprints import WRITERS
from ..findings import SEVERITIES, Finding
from ..findings.counters import finding_facts
from ..format.records import KinesisRecord
from ..rendering.labels import plural
from ..shards.placement import CAUSES
from ..shards.shard_map import ShardMap
from .estimates import Estimate, HotKeys, Load, Sample, estimate, skewed_shards
from .record_checks import FindingGroup, Minute, RecordChecker, RecordFault, SampleSlot

#: Seconds of a minute, and of the time that is kept.
MINUTE, HOUR = 60, 3600
#: Seconds after which a finding that was not seen again is resolved.
_QUIET: Final = 600.0
#: How many findings are kept separately; later ones count for `OTHERS`.
MAX_FINDINGS: Final = 2_000
OTHERS: Final = "(other shards)"
FindingState = Literal["open", "grown", "resolved"]
#: A shard id (None: not known), and the `FindingGroup` of what is wrong on that shard.
FindingKey = tuple[str | None, FindingGroup]


@dataclass(slots=True)
class OpenFinding:
    """``kinesis_records``: how many have the finding; ``reported``: how many when it was last reported.
    ``doubt``: why the shard map by which it was found may be old."""

    first_seen: float
    last_seen: float
    kinesis_records: int = 0
    reported: int = 0
    expected_shard_id: str | None = None
    sequence_number: str | None = None
    detail: str | None = None
    doubt: str = ""


class Faults:
    """The faults of one response. ``losses``: user records by shard, group and number of the poll, as
    `Minute.losses`. ``by_map``: with another shard map they may be none."""

    def __init__(self, seen_at: float, *, by_map: bool) -> None:
        self.seen_at, self.by_map = seen_at, by_map
        self.findings: dict[FindingKey, OpenFinding] = {}
        self.losses: Counter[tuple[str | None, FindingGroup, int | None]] = Counter()

    def add(self, fault: RecordFault, slot: SampleSlot) -> None:
        key = slot.shard_id, fault.group
        entry = self.findings.setdefault(key, OpenFinding(self.seen_at, self.seen_at))
        entry.kinesis_records += 1
        entry.sequence_number = entry.sequence_number or fault.sequence_number
        entry.expected_shard_id = entry.expected_shard_id or fault.expected_shard_id
        # One poll may take several responses, which together are one sample.
        # WCH-18: "User records read past the end of a slot MUST be reported as seen, and not scaled up."
        poll = (*key, slot.number if slot.scale > 1.0 and fault.inside else None)
        self.losses[poll] += fault.lost


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFinding(Finding):
    """One thing that is wrong with a stream now. ``state``: "open" when new, "grown" when it has doubled
    since it was last reported, "resolved" when it was not seen for ten minutes. ``first_seen``,
    ``last_seen``: seconds since 1970. ``writer``: a key of `WRITERS`. ``kinesis_records``: how many have the
    finding; ``sequence_number``: of one of them. ``lost``: user records that the KCL drops, in the last
    hour."""

    stream: str
    state: FindingState
    first_seen: float
    last_seen: float
    writer: str | None = None
    kinesis_records: int = 0
    lost: Estimate | None = None

    @property
    def text(self) -> str:
        """What is wrong, in a sentence or two."""
        where = f" on {self.shard_id}" if self.shard_id else ""
        return ": ".join(filter(None, [f"{self.title} ({self.kind}){where}", self.evidence]))

    @property
    def evidence(self) -> str:
        """The text without its kind and shard."""
        parts = []
        if self.writer in WRITERS and self.writer != "unknown":
            because = f"; {CAUSES[self.cause]}" if self.cause is not None else ""
            parts.append(f"written by {WRITERS[self.writer]}{because}")
        if self.lost is not None and self.lost.seen:
            parts.append(f"a KCL consumer loses {self.lost.user_records}")
        elif self.kinesis_records:
            parts.append(f"{plural(self.kinesis_records, 'Kinesis record')} seen")
        if self.detail:
            parts.append(self.detail)
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The finding as a JSON object, without fields that do not apply. Sequence numbers are strings."""
        row = finding_facts(self)
        row |= {"firstSeen": _iso(self.first_seen), "lastSeen": _iso(self.last_seen), "text": self.text}
        if self.lost is not None:
            row["lost"] = self.lost.to_json()
        return row


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


class LastHour:
    """The counts of ``stream`` over the last hour, and the findings that are open.

    ``names``: report hot partition keys by name, not by hash key.
    """

    def __init__(self, stream: str, *, names: bool = False) -> None:
        self.stream = stream
        self._checker = RecordChecker()
        #: The counts of each shard, by minute since 1970; and the open findings. Read only.
        self.by_shard: dict[str | None, dict[int, Minute]] = {}
        self.open_findings: dict[FindingKey, OpenFinding] = {}
        #: Whether a loss waits until the shards were listed since it was seen: `set_shard_map` comes often.
        self.waits_for_listing = False
        self._held: list[Faults] = []
        self._doubt = ""  # why the shard map may be old: then no loss waits
        self._keys = HotKeys(names=names)
        self._slots = 1.0
        self._tidied_at = float("-inf")
        #: True while something should be watched and is not: then no figure is exact. True if the stream is
        #: sampled: then no figure of the whole stream is.
        self.has_gaps = self.sampled = False
        #: Since the start: kinesis_records, user_records, bytes, reread, lost; Kinesis records by writer.
        self.totals: Counter[str] = Counter()
        self.writers: Counter[str] = Counter()
        #: Seconds from arrival to reading, of the last records of each shard.
        self.lags: dict[str | None, float] = {}

    @property
    def shard_map(self) -> ShardMap | None:
        """The map that records are checked against."""
        return self._checker.shard_map

    def set_shard_map(
        self, shard_map: ShardMap, now: float, *, recreated: bool = False, listed_at: float | None = None
    ) -> list[WatchFinding]:
        """Check records against ``shard_map`` from now on. ``recreated``: it is of a new stream.
        ``listed_at``: when its listing began (None: now). Returns the findings to report."""
        self._checker.set_shard_map(shard_map, forget=recreated)
        self._doubt = ""
        if not recreated:
            for finding in self.open_findings.values():
                finding.doubt = ""
            return self._count_held(listed_at)
        self._held.clear()
        # WCH-11: "Of a stream that was deleted and created again nothing known of the old one MUST be kept,
        # and that it was MUST be a finding."
        resolved = [self._pop_resolved(key) for key in list(self.open_findings)]
        for entry in (self.by_shard, self.lags, self._keys):
            entry.clear()
        return resolved + self.report(FindingGroup("stream-recreated"), None, now)

    def shift(self, seconds: float) -> None:
        """Follow a clock that was set by ``seconds``: what was counted keeps its age."""
        minutes = round(seconds / MINUTE)
        self.by_shard = {
            shard_id: {number + minutes: minute for number, minute in counts.items()}
            for shard_id, counts in self.by_shard.items()
        }
        for entry in self.open_findings.values():
            entry.first_seen += seconds
            entry.last_seen += seconds
        for faults in self._held:
            faults.seen_at += seconds
        self._keys.shift(seconds)
        self._tidied_at += seconds

    def observe(self, slot: SampleSlot, records: Sequence[KinesisRecord], now: float) -> list[WatchFinding]:
        """Check ``records``, all of one shard; returns the findings to report now."""
        minute = self._minute(slot.shard_id, now)
        result = self._checker.check(records, slot, minute)
        self.totals.update(result.read)
        self.writers.update(result.writers)
        self._keys.count(slot.shard_id, result.keys, now, scale=slot.scale)
        self._slots = max(self._slots, slot.scale)
        # WCH-50: "A loss that rests on the shard map MUST be reported once a listing that began after it was
        # seen shows the same stream; without one, after 15 seconds, with the words that the map may be old."
        known, by_map = Faults(now, by_map=False), Faults(now, by_map=True)
        for fault in result.faults:
            (by_map if fault.by_map else known).add(fault, slot)
        self._held += [by_map] if by_map.findings else []
        counts_now = bool(self._doubt) or not self.waits_for_listing
        return (self._count_held() if counts_now else []) + self._count(known)

    def lag(
        self, shard_id: str | None, seconds: float, now: float, *, allowed: float, detail: str
    ) -> list[WatchFinding]:
        """Note that a shard's records are read ``seconds`` after they arrive: a finding above ``allowed``."""
        self.lags[shard_id] = seconds
        return self.report(FindingGroup("lag"), shard_id, now, detail) if seconds > allowed else []

    @property
    def has_new_loss(self) -> bool:
        """Whether a loss that has no finding yet waits for a listing of the shards."""
        keys = (key for faults in self._held for key in faults.findings)
        return any(self._key(group, shard_id) not in self.open_findings for shard_id, group in keys)

    @property
    def waiting_since(self) -> float:
        """When the first loss was seen that waits for a listing of the shards; infinity without one."""
        return self._held[0].seen_at if self._held else float("inf")

    def count_waiting(self, why: str) -> list[WatchFinding]:
        """No listing comes, for the reason ``why``: count the losses that wait for one, and later ones at
        once until one comes. Returns the findings to report."""
        self._doubt = f"the shards were not listed since it was seen ({why}): the shard map may be old"
        return self._count_held()

    def add_time(self, shard_id: str, read_ms: int, represented_ms: int, now: float) -> None:
        """Note the milliseconds of a shard's time that were read, and those that they stand for."""
        minute = self._minute(shard_id, now)
        minute.polls += read_ms > 0 or not represented_ms
        minute.read_ms += read_ms
        if represented_ms:
            minute.slots += read_ms > 0
            minute.sampled_ms += read_ms
            minute.represented_ms += represented_ms

    def report(
        self, group: FindingGroup, shard_id: str | None, now: float, detail: str | None = None
    ) -> list[WatchFinding]:
        """Open a finding that is not about records, such as throttling; empty if it is open already."""
        key = self._key(group, shard_id)
        new = key not in self.open_findings
        self._see(key, now).detail = detail
        return [self._finding(key, "open")] if new else []

    def report_only(
        self, group: FindingGroup, details: Mapping[str | None, str], now: float
    ) -> list[WatchFinding]:
        """Make ``details`` the open findings of ``group``, one of each shard; what is no longer among them is
        resolved."""
        over = [key for key in self.open_findings if key[1] == group and key[0] not in details]
        findings = [self._pop_resolved(key) for key in over if key[0] != OTHERS]
        others = 0
        for shard_id, detail in details.items():
            others += self._key(group, shard_id)[0] == OTHERS
            findings += self.report(group, shard_id, now, detail)
        if others:
            self.open_findings[OTHERS, group].detail = plural(others, "shard")
        elif (OTHERS, group) in self.open_findings:
            findings.append(self._pop_resolved((OTHERS, group)))
        return findings

    def tick(self, now: float) -> list[WatchFinding]:
        """Call every few seconds: returns the findings that are new or resolved. Once a minute it forgets
        what is older than an hour, and looks for skew and hot keys."""
        findings = []
        if not 0 <= now - self._tidied_at < MINUTE:
            self._tidied_at = now
            self._forget_old(int(now // MINUTE))
            findings = self._uneven(now)
        quiet = [key for key, entry in self.open_findings.items() if now - entry.last_seen > _QUIET]
        return [*findings, *map(self._pop_resolved, quiet)]

    def _forget_old(self, minute: int) -> None:
        # WCH-20: "What is kept MUST NOT grow with the time that a watch runs: an hour of minutes a shard,
        # 20,000 Kinesis records, 256 keys and 2,000 findings at most."
        first = minute - HOUR // MINUTE + 1
        for shard_id, minutes in list(self.by_shard.items()):
            for number in [number for number in minutes if number < first]:
                del minutes[number]
            if not minutes:
                del self.by_shard[shard_id]
                self.lags.pop(shard_id, None)

    def _uneven(self, now: float) -> list[WatchFinding]:
        shards = self.shard_map.open_shards if self.shard_map is not None else ()
        if self.sampled and any(shard.shard_id not in self.by_shard for shard in shards):
            return []  # both need some polls of every shard
        loads = {shard.shard_id: self.load(shard.shard_id) for shard in shards}
        findings = []
        for kind, uneven in (("hot-key", self._keys.hot(loads)), ("skewed-shard", skewed_shards(loads))):
            for shard_id, detail in uneven:
                findings += self.report(FindingGroup(kind), shard_id, now, detail)
        return findings

    def findings(self) -> list[WatchFinding]:
        """All open findings, the worst first."""

        def order(one: WatchFinding) -> tuple[int, int, str]:
            loss = one.lost.estimate if one.lost is not None else 0
            return SEVERITIES.index(one.severity), -loss, one.shard_id or ""

        return sorted((self._finding(key, "open") for key in self.open_findings), key=order)

    def lost(self, shard_id: str | None = None) -> Estimate:
        """User records that the KCL drops, in the last hour: of one shard, or of the whole stream."""
        shards = self.by_shard if shard_id is None else [shard_id]
        has_gaps = self.has_gaps or (self.sampled and shard_id is None)
        return estimate([self._sample(one) for one in shards], has_gaps=has_gaps)

    def load(self, shard_id: str) -> Load:
        """The load of a shard."""
        minutes = self.by_shard.get(shard_id, {}).values()
        read = [minute for minute in minutes if minute.read_ms]
        seconds = sum(minute.read_ms for minute in read) / 1000 or 1.0
        return Load(
            sum(minute.slot_user_records for minute in read) / seconds,
            sum(minute.slot_bytes for minute in read) / seconds,
            sum(minute.polls for minute in minutes),
            sum(minute.slot_user_records for minute in minutes),
            sum(minute.slot_records for minute in read) / seconds,
        )

    def _minute(self, shard_id: str | None, now: float) -> Minute:
        return self.by_shard.setdefault(shard_id, {}).setdefault(int(now // MINUTE), Minute())

    def _key(self, group: FindingGroup, shard_id: str | None) -> FindingKey:
        key = shard_id, group
        return key if key in self.open_findings or len(self.open_findings) < MAX_FINDINGS else (OTHERS, group)

    def _see(self, key: FindingKey, now: float) -> OpenFinding:
        entry = self.open_findings.setdefault(key, OpenFinding(now, now))
        entry.last_seen = max(entry.last_seen, now)
        return entry

    def _pop_resolved(self, key: FindingKey) -> WatchFinding:
        finding = self._finding(key, "resolved")
        del self.open_findings[key]
        return finding

    def _count_held(self, seen_before: float | None = None) -> list[WatchFinding]:
        ready = [one for one in self._held if seen_before is None or one.seen_at < seen_before]
        del self._held[: len(ready)]
        return [finding for faults in ready for finding in self._count(faults)]

    def _count(self, faults: Faults) -> list[WatchFinding]:
        # WCH-10: "A loss that was seen MUST be reported, however small the sampling rate, and its finding
        # MUST stay open until the loss was not seen for ten minutes."
        seen: dict[FindingKey, OpenFinding] = {}
        for (shard_id, group), new in faults.findings.items():
            key = self._key(group, shard_id)
            seen[key] = entry = self._see(key, faults.seen_at)
            entry.kinesis_records += new.kinesis_records
            entry.sequence_number = entry.sequence_number or new.sequence_number
            entry.expected_shard_id = entry.expected_shard_id or new.expected_shard_id
            entry.doubt = self._doubt if faults.by_map else ""
        for (shard_id, group, poll), lost in faults.losses.items():
            self.totals["lost"] += lost
            self._minute(shard_id, faults.seen_at).losses[group, poll] += lost
        findings = []
        for key, entry in seen.items():
            state: FindingState = "grown" if entry.reported else "open"
            if entry.kinesis_records >= 2 * entry.reported:
                entry.reported = entry.kinesis_records
                findings.append(self._finding(key, state))
        return findings

    def _sample(self, shard_id: str | None, only: FindingGroup | None = None) -> Sample:
        sampled = represented = slots = 0
        losses: dict[int | None, int] = {}
        for minute in self.by_shard.get(shard_id, {}).values():
            sampled += minute.sampled_ms
            represented += minute.represented_ms
            slots += minute.slots
            for (group, poll), count in minute.losses.items():
                losses[poll] = losses.get(poll, 0) + count * (only in (None, group))
        certain = losses.pop(None, 0)
        if not represented and not losses:
            return Sample(certain=certain)
        scale = max(self._slots, represented / sampled) if sampled else self._slots
        # A slot that is being read, by several responses, is not counted yet.
        polls = [count for count in losses.values() if count]
        return Sample(self._slots, polls, max(0, slots - len(polls)), certain, scale)

    def _finding(self, key: FindingKey, state: FindingState) -> WatchFinding:
        (shard_id, group), entry = key, self.open_findings[key]
        lost = estimate([self._sample(shard_id, group)], has_gaps=self.has_gaps)
        return WatchFinding(
            kind=group.kind,
            stream=self.stream,
            shard_id=shard_id,
            writer=group.writer if entry.kinesis_records else None,
            cause=group.cause,
            state=state,
            first_seen=entry.first_seen,
            last_seen=entry.last_seen,
            kinesis_records=entry.kinesis_records,
            lost=lost if lost.seen else None,
            expected_shard_id=entry.expected_shard_id,
            sequence_number=entry.sequence_number,
            detail=entry.detail or entry.doubt or None,
        )
