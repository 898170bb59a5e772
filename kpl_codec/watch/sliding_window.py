"""Finds what is wrong with a live stream: findings with estimates, from the records of each look.

    last_hour = LastHour("orders")
    last_hour.use(shard_map)
    last_hour.observe(look, records, now)   # -> findings that are new, have doubled, or are over
    last_hour.findings()                    # all that are open

Keeps the last hour by minute and shard. Its caller (a `Watch`, a Lambda function) reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, Literal

from ..findings import SEVERITIES, Finding
from ..findings.counters import Tally, finding_facts
from ..format.records import KinesisRecord
from ..shards.placement import CAUSES
from ..shards.shard_map import ShardMap
from .checkpoint import MINUTE, Checkpoint, FindingGroup, FindingKey, Load, Minute, OpenFinding
from .estimates import Estimate, Sample, estimate
from .hot_keys import HotKeys, skewed_shards
from .record_checks import WRITERS, RecordChecker, RecordFault, SampleSlot

#: Seconds that are remembered.
HOUR: Final = 3600
#: How many findings are kept separately; later ones count for `OTHERS`.
MAX_FINDINGS: Final = 2_000
OTHERS: Final = "(other shards)"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFinding(Finding):
    """One thing that is wrong, as far as it is known now.

    ``writer``: a key of `WRITERS`. ``state``: "open" when new, "grown" when it has doubled since
    it was last told, "over" when it was not seen again for a while. ``first_seen``, ``last_seen``: seconds
    since 1970. ``kinesis_records``: how many of the kind were seen in all; ``sequence_number``: of one of
    them. ``lost``: user records that the KCL drops, in the last hour.
    """

    stream: str
    state: Literal["open", "grown", "over"]
    first_seen: float
    last_seen: float
    writer: str | None = None
    kinesis_records: int = 0
    lost: Estimate | None = None

    @property
    def text(self) -> str:
        """What is wrong, in a sentence or two."""
        where = f" on {self.shard_id}" if self.shard_id else ""
        parts = []
        if self.writer in WRITERS and self.writer != "unknown":
            because = f"; {CAUSES[self.cause]}" if self.cause is not None else ""
            parts.append(f"written by {WRITERS[self.writer]}{because}")
        if self.lost is not None and self.lost.seen:
            seen = f", {self.lost.seen:,} of them seen" if self.lost.high > self.lost.seen else ""
            parts.append(f"a KCL consumer loses {self.lost} user records{seen}")
        elif self.kinesis_records:
            parts.append(f"{self.kinesis_records:,} Kinesis records seen")
        if self.detail:
            parts.append(self.detail)
        return ": ".join(filter(None, [f"{self.title} ({self.kind}){where}", "; ".join(parts)]))

    def to_json(self) -> dict[str, Any]:
        """As one JSON object; what does not apply is left out. Sequence numbers are strings."""
        row = finding_facts(self)
        row |= {"firstSeen": _iso(self.first_seen), "lastSeen": _iso(self.last_seen), "text": self.text}
        if self.lost is not None:
            row["lost"] = self.lost._asdict()
        return row


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


class LastHour:
    """``quiet``: a finding not seen for so many seconds is over. ``names``: tell hot partition keys, not
    their hash keys. ``late``: seconds from arrival to now above which records are late (None: never)."""

    def __init__(
        self, stream: str, *, quiet: float = 600.0, names: bool = False, late: float | None = None
    ) -> None:
        self.stream = stream
        self._quiet, self._late = quiet, late
        self._judge = RecordChecker()
        #: The map that records are judged against.
        self.shard_map: ShardMap | None = None
        #: What was read in the last hour of each shard, by minute since 1970, and what is open. Read only.
        self.by_shard: dict[str | None, dict[int, Minute]] = {}
        self.open_findings: dict[FindingKey, OpenFinding] = {}
        #: By minute what was read, as validation counts it. Not kept between runs.
        self.tallies: dict[int, Tally] = {}
        self._keys = HotKeys(names=names)
        self._scale = 1.0
        #: Over the whole life: Kinesis records, user records, bytes, reread, lost; Kinesis records by writer.
        self.totals: Counter[str] = Counter()
        self.writers: Counter[str] = Counter()
        #: Seconds from arrival to reading, of the last records of each shard.
        self.lags: dict[str | None, float] = {}

    def use(self, shard_map: ShardMap, now: float, *, recreated: bool = False) -> list[WatchFinding]:
        """Judge against ``shard_map`` from now on. ``recreated``: the stream is a new one."""
        self.shard_map = shard_map
        self._judge.use(shard_map, forget=recreated)
        if not recreated:
            return []
        # WCH-11: "Of a stream that was deleted and created again nothing known of the old one MUST be kept,
        # and that it was MUST be a finding."
        return self.forget() + self.report(FindingGroup("stream-recreated"), None, now)

    def forget(self) -> list[WatchFinding]:
        """Begin anew; gives the open findings, which are over."""
        over = [self._over(key) for key in list(self.open_findings)]
        for known in (self.by_shard, self.tallies, self.lags, self._keys):
            known.clear()
        return over

    def resume(self, kept: Checkpoint) -> None:
        """Go on with what an earlier run knew; call it before all else."""
        self.by_shard = {shard_id: dict(numbered) for shard_id, numbered in kept.minutes.items()}
        self.open_findings = dict(kept.findings)
        self._judge.resume({shard_id: shard.read_to for shard_id, shard in kept.shards.items()})

    def observe(self, look: SampleSlot, records: Sequence[KinesisRecord], now: float) -> list[WatchFinding]:
        """Judge ``records``, all of one shard; gives the findings to tell of now."""
        minute = self._minute(look.shard_id, now)
        tally = self.tallies.setdefault(int(now // MINUTE), Tally(MINUTE))
        judged = self._judge.judge(records, look, minute, tally)
        self.totals.update(judged.read)
        self.writers.update(judged.writers)
        self._keys.count(look.shard_id, judged.keys, now, stands_for=look.scale)
        self._scale = max(self._scale, look.scale)
        for fault in judged.faults:
            self.totals["lost"] += fault.lost
            # One look may take several answers: its count is one draw.
            # WCH-18: "User records read past the end of a slot MUST be told as seen, and not scaled up."
            drawn = look.number if look.scale > 1.0 and fault.inside else None
            minute.losses[fault.wrong, drawn] += fault.lost
        findings = list(self._seen(judged.faults, look.shard_id, now))
        if self._late is not None and judged.newest:
            lag = now - judged.newest
            detail = f"{lag:.0f} s from arrival to now"
            findings += self.lag(look.shard_id, lag, now, allowed=self._late, detail=detail)
        return findings

    def lag(
        self, shard_id: str | None, seconds: float, now: float, *, allowed: float, detail: str
    ) -> list[WatchFinding]:
        """Records of a shard are read that long after their arrival; above ``allowed`` it is a finding."""
        self.lags[shard_id] = seconds
        return self.report(FindingGroup("lag"), shard_id, now, detail) if seconds > allowed else []

    def add_time(self, shard_id: str, read_ms: int, stands_for_ms: int, now: float) -> None:
        """So many milliseconds of a shard were read. ``stands_for_ms``: by a sample, for so many of them;
        (0, n): a period missed."""
        minute = self._minute(shard_id, now)
        minute.looks += read_ms > 0 or not stands_for_ms
        minute.read_ms += read_ms
        if stands_for_ms:
            minute.looked_ms += read_ms
            minute.stands_for_ms += stands_for_ms

    def report(
        self, wrong: FindingGroup, shard_id: str | None, now: float, detail: str | None = None
    ) -> list[WatchFinding]:
        """Report something that is not in the records; reported once, until `settle`."""
        key, known, new = self._open(wrong, shard_id, now)
        known.detail = detail
        return [self._finding(key, "open")] if new else []

    def settle(self, wrong: FindingGroup, shard_id: str | None) -> list[WatchFinding]:
        """Something from `report` is over."""
        key = self._key(wrong, shard_id)
        return [self._over(key)] if key in self.open_findings else []

    def tick(self, now: float) -> list[WatchFinding]:
        """Call every few seconds: forgets what is older than an hour, looks at skew and hot keys, and gives
        the findings that are new or over."""
        # WCH-20: "What is kept MUST NOT grow with the time that a watch runs: an hour of minutes a shard,
        # 20,000 Kinesis records, 256 keys and 2,000 findings at most."
        first = int(now // MINUTE) - HOUR // MINUTE + 1
        for shard_id, minutes in list(self.by_shard.items()):
            self.by_shard[shard_id] = minutes = {n: one for n, one in minutes.items() if n >= first}
            if not minutes:
                del self.by_shard[shard_id]
                self.lags.pop(shard_id, None)
            elif self._late is not None and max(minutes) < int(now // MINUTE) - 1:
                # In a consumer a shard may be silent, or read by another execution environment.
                self.lags.pop(shard_id, None)
        self.tallies = {number: tally for number, tally in self.tallies.items() if number >= first}
        findings = list(self._uneven(now))
        over = [key for key, known in self.open_findings.items() if now - known.last_seen > self._quiet]
        return findings + [self._over(key) for key in over]

    def findings(self) -> list[WatchFinding]:
        """All open findings, the worst first."""

        def order(one: WatchFinding) -> tuple[int, int, str]:
            lost = one.lost.estimate if one.lost is not None else 0
            return SEVERITIES.index(one.severity), -lost, one.shard_id or ""

        return sorted((self._finding(key, "open") for key in self.open_findings), key=order)

    def lost(self, shard_id: str | None = None) -> Estimate:
        """User records that the KCL drops, in the last hour: of one shard, or of the whole stream."""
        shards = self.by_shard if shard_id is None else [shard_id]
        return estimate(self._sample(one) for one in shards)

    def load(self, shard_id: str) -> Load:
        """What comes on a shard in a second."""
        minutes = self.by_shard.get(shard_id, {}).values()
        read = [minute for minute in minutes if minute.read_ms]
        seconds = sum(minute.read_ms for minute in read) / 1000 or 1.0
        return Load(
            sum(minute.slot_user_records for minute in read) / seconds,
            sum(minute.slot_bytes for minute in read) / seconds,
            sum(minute.looks for minute in minutes),
            sum(minute.slot_user_records for minute in minutes),
            sum(minute.slot_records for minute in read) / seconds,
        )

    def _minute(self, shard_id: str | None, now: float) -> Minute:
        return self.by_shard.setdefault(shard_id, {}).setdefault(int(now // MINUTE), Minute())

    def _key(self, wrong: FindingGroup, shard_id: str | None) -> FindingKey:
        key = shard_id, wrong
        return key if key in self.open_findings or len(self.open_findings) < MAX_FINDINGS else (OTHERS, wrong)

    def _open(
        self, wrong: FindingGroup, shard_id: str | None, now: float
    ) -> tuple[FindingKey, OpenFinding, bool]:
        """The open finding, and whether it is new."""
        key = self._key(wrong, shard_id)
        new = key not in self.open_findings
        known = self.open_findings.setdefault(key, OpenFinding(now, now))
        known.last_seen = now
        return key, known, new

    def _over(self, key: FindingKey) -> WatchFinding:
        finding = self._finding(key, "over")
        del self.open_findings[key]
        return finding

    def _seen(
        self, faults: Sequence[RecordFault], shard_id: str | None, now: float
    ) -> Iterator[WatchFinding]:
        # WCH-10: "A loss that was seen MUST be told at once, however small its share, and its finding MUST
        # stay open until it was not seen for the time said."
        seen: dict[FindingKey, bool] = {}
        for fault in faults:
            key, known, new = self._open(fault.wrong, shard_id, now)
            seen.setdefault(key, new)
            known.kinesis_records += 1
            known.sequence_number = known.sequence_number or fault.sequence_number
            known.expected_shard_id = known.expected_shard_id or fault.expected_shard_id
        for key, new in seen.items():
            known = self.open_findings[key]
            if new or known.kinesis_records >= 2 * known.told:
                known.told = known.kinesis_records
                yield self._finding(key, "open" if new else "grown")

    def _sample(self, shard_id: str | None, wrong: FindingGroup | None = None) -> Sample:
        looked = stands_for = 0
        lost: Counter[int | None] = Counter()
        for minute in self.by_shard.get(shard_id, {}).values():
            looked += minute.looked_ms
            stands_for += minute.stands_for_ms
            for (kind, look), count in minute.losses.items():
                lost[look] += count * (wrong in (None, kind))
        certain = lost.pop(None, 0)
        scale = max(1.0, stands_for / looked) if looked else self._scale
        return Sample(scale, lost.values(), certain)

    def _finding(self, key: FindingKey, state: Literal["open", "grown", "over"]) -> WatchFinding:
        (shard_id, wrong), known = key, self.open_findings[key]
        lost = estimate([self._sample(shard_id, wrong)])
        return WatchFinding(
            kind=wrong.kind,
            stream=self.stream,
            shard_id=shard_id,
            writer=wrong.writer if known.kinesis_records else None,
            cause=wrong.cause,
            state=state,
            first_seen=known.first_seen,
            last_seen=known.last_seen,
            kinesis_records=known.kinesis_records,
            lost=lost if lost.seen else None,
            expected_shard_id=known.expected_shard_id,
            sequence_number=known.sequence_number,
            detail=known.detail,
        )

    def _uneven(self, now: float) -> Iterator[WatchFinding]:
        opened = self.shard_map.open_shards if self.shard_map is not None else ()
        loads = {shard.shard_id: self.load(shard.shard_id) for shard in opened}
        for kind, uneven in (("hot-key", self._keys.hot(loads)), ("skewed-shard", skewed_shards(loads))):
            for shard_id, detail in uneven:
                yield from self.report(FindingGroup(kind), shard_id, now, detail)
