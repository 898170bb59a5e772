"""The members of summary.json, as spec/summary.schema.json has them."""

from __future__ import annotations

from typing import Final, Literal, TypedDict

from ...findings import Severity
from ...shards.shard import Distribution

#: The version of summary.json: it increases when a member changes its meaning or is removed, not for new
#: members.
VERSION: Final = 1


class ReadFacts(TypedDict):
    """What became of all that was given: see `kpl_codec.captures.account.AccountFacts`."""

    unit: Literal["file", "shard"]
    sources: int
    whole: int
    leftOut: int
    bytes: int
    records: int
    unread: int
    empty: int


class Totals(TypedDict):
    """``misplaced``: user records certainly outside the range of their shard. ``kcl``: what the KCL does with
    all user records: delivered, dropped, altered, raw (in a frame that it does not open), or unknown; a
    broken frame counts as one. ``verdicts``: of placement."""

    kinesisRecords: int
    plainRecords: int
    aggregatedRecords: int
    brokenFrames: int
    userRecords: int
    bytes: int
    misplaced: int
    mixedAggregates: int
    foreignAggregates: int
    kcl: dict[str, int]
    verdicts: dict[str, int]
    lostAtKcl: int


class KindFacts(TypedDict):
    """How many findings of one kind there are, and how many user records they are about."""

    name: str
    severity: Severity
    title: str
    findings: int
    userRecords: int


class CauseFacts(TypedDict):
    """How many misplaced aggregates have one cause, and what is in them."""

    cause: str
    aggregates: int
    userRecords: int
    dropped: int


class ShardFacts(TypedDict):
    """``start``, ``end``: of its hash keys. ``userRecords`` and other counts: of records on it.
    ``belonging``: user records whose hash key belongs to it now; ``share``: its part of all these (None for
    closed shards)."""

    shardId: str
    start: str | None
    end: str | None
    parents: list[str]
    state: Literal["open", "closed", "unknown"]
    opened: str | None
    closed: str | None
    generation: int
    kinesisRecords: int
    aggregatedRecords: int
    userRecords: int
    bytes: int
    misplaced: int
    dropped: int
    belonging: int
    share: float | None
    firstArrival: str | None
    lastArrival: str | None


class Arrivals(TypedDict):
    """What arrived when: stretches of ``seconds`` from ``start`` on. A cell is the number of its stretch,
    from 0, a shard, its user records that arrived then, and those of them that the KCL drops."""

    start: str
    seconds: int
    cells: list[tuple[int, str, int, int]]


class Facts(TypedDict):
    """The members of summary.json. Times are ISO 8601, hash keys texts of digits. ``kinds``: worst first.
    ``shards``: parents before children. ``omitted``: how many findings, shards and inputs are not listed."""

    summaryVersion: int
    kplCodecVersion: str
    title: str
    streamName: str | None
    source: str | None
    generated: str
    complete: bool
    clean: bool
    worst: Severity | None
    headline: str
    verdict: str
    read: ReadFacts | None
    rows: dict[str, int] | None
    run: str | None
    distribution: Distribution | None
    firstArrival: str | None
    lastArrival: str | None
    skew: float | None
    totals: Totals
    kinds: list[KindFacts]
    causes: list[CauseFacts]
    shards: list[ShardFacts]
    arrivals: Arrivals | None
    inputs: list[str]
    omitted: dict[str, int]
