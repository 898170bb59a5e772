"""The data that the summary and the page show: plain values of limited size, without record data or keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...findings import SEVERITIES, Finding, FindingType, Severity, worst

if TYPE_CHECKING:
    from ...captures.account import AccountFacts

#: The shard id that stands for records without a shard id.
NO_SHARD = "(no shard)"


class KindCount(NamedTuple):
    """How many findings of one kind there are, and how many user records they are about."""

    kind: FindingType
    findings: int
    user_records: int


@dataclass(frozen=True, slots=True)
class Totals:
    """``kinesis_records``: the three that follow; of these ``broken_frames`` could not be opened.
    ``misplaced``: user records that are certainly outside the range of their shard. ``bytes``: of the data of
    all user records. ``kcl``: user records by what the KCL does: delivered, dropped, altered, raw (in a frame
    that it does not open), or unknown. Together they are ``user_records``, where a broken frame counts as
    one."""

    kinesis_records: int = 0
    plain_records: int = 0
    aggregated_records: int = 0
    broken_frames: int = 0
    user_records: int = 0
    bytes: int = 0
    misplaced: int = 0
    mixed_aggregates: int = 0
    foreign_aggregates: int = 0
    kcl: Mapping[str, int] = field(default_factory=dict)
    verdicts: Mapping[str, int] = field(default_factory=dict)

    @property
    def lost_at_kcl(self) -> int:
        return self.kcl.get("dropped", 0)

    @property
    def unknown_at_kcl(self) -> int:
        return self.kcl.get("unknown", 0)


class CauseCount(NamedTuple):
    """Aggregates with misplaced user records, by ``cause``, a key of `shards.placement.CAUSES`; all user
    records in them, and those that the KCL drops."""

    cause: str
    aggregates: int
    user_records: int
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """``start``, ``end``: its hash key range, both inclusive, None for a shard the map does not have.
    ``opened``, ``closed``: as sequence numbers hint. ``generation``: reshards since the oldest shard listed.
    ``user_records`` and other counts: of records on it; ``belonging``: user records whose hash key belongs to
    it now; ``share``: its part of all these (None for closed shards)."""

    shard_id: str
    start: int | None = None
    end: int | None = None
    parents: tuple[str, ...] = ()
    state: Literal["open", "closed", "unknown"] = "unknown"
    opened: datetime | None = None
    closed: datetime | None = None
    generation: int = 0
    kinesis_records: int = 0
    aggregated_records: int = 0
    user_records: int = 0
    bytes: int = 0
    misplaced: int = 0
    dropped: int = 0
    belonging: int = 0
    share: float | None = None
    first_arrival: datetime | None = None
    last_arrival: datetime | None = None

    @property
    def key_space(self) -> float | None:
        """The part of the hash key space in its range, 0 to 1."""
        if self.start is None or self.end is None:
            return None
        return (self.end - self.start + 1) / 2**128


class RateCell(NamedTuple):
    """The records that arrived on one shard in one bucket of time."""

    start: datetime
    shard_id: str | None
    user_records: int
    bytes: int
    dropped: int


class AuditCell(NamedTuple):
    """User records put to one shard in ``seconds`` from ``start`` on; of them those that are missing, that
    may have been handled, and of which it is too early to say."""

    start: datetime
    seconds: float
    shard_id: str
    user_records: int
    missing: int
    unknown: int
    too_early: int

    @property
    def handled(self) -> int:
        return self.user_records - self.missing - self.unknown - self.too_early


class AuditShard(NamedTuple):
    """User records that were delivered to one shard, and how many of them are in each state of an audit."""

    shard_id: str
    delivered: int
    handled: int
    aside: int
    missing: int
    unknown: int
    too_early: int


@dataclass(frozen=True, slots=True)
class About:
    """``generated``: when the report was made; ``version``: kpl_codec's. ``source``: where the records came
    from, one line; ``inputs``: files or shards read. ``audit_outcome``: the headline of an audit, and the
    sentences below it. ``read``: what became of all that was given, where an account was kept. ``rows``: how
    many rows of results were written, by their folder."""

    generated: datetime
    version: str
    title: str = "Kinesis stream validation"
    stream_name: str | None = None
    source: str | None = None
    inputs: Sequence[str] = ()
    audit_outcome: tuple[str, str] | None = None
    read: AccountFacts | None = None
    rows: Mapping[str, int] | None = None
    hot_keys: str = "the count of user-records by partition key names it"


@dataclass(frozen=True, slots=True)
class Report:
    """``distribution``: of the shard map, None without one. ``cells``: of ``bucket_seconds`` each.
    ``key_space``: user records, and of them misplaced, per 1/256 of the hash key space. ``skew``: see
    `build`. ``omitted``: how many "shards", "findings" and "inputs" are not listed here."""

    about: About
    totals: Totals
    distribution: str | None = None
    kinds: tuple[KindCount, ...] = ()
    findings: tuple[Finding, ...] = ()
    causes: tuple[CauseCount, ...] = ()
    shards: tuple[ShardFacts, ...] = ()
    bucket_seconds: int = 1
    cells: tuple[RateCell, ...] = ()
    first_arrival: datetime | None = None
    last_arrival: datetime | None = None
    key_space: tuple[tuple[int, int], ...] = ()
    skew: float | None = None
    omitted: Mapping[str, int] = field(default_factory=dict)
    audit: tuple[AuditCell, ...] = ()
    audit_shards: tuple[AuditShard, ...] = ()

    @property
    def worst(self) -> Severity | None:
        return worst(count.kind.name for count in self.kinds)

    @property
    def clean(self) -> bool:
        return self.worst in (None, SEVERITIES[-1])
