"""The members of summary.json, as spec/summary.schema.json has them."""

from __future__ import annotations

from typing import Any, Final, TypedDict

from ...findings import Severity

#: The version of summary.json: it increases when a member changes its meaning or is removed, not for new
#: members.
VERSION: Final = 1


class KindFacts(TypedDict):
    """How many findings of one kind there are, and how many user records they are about."""

    name: str
    severity: Severity
    title: str
    findings: int
    userRecords: int


class Arrivals(TypedDict):
    """What arrived when: stretches of ``seconds`` from ``start`` on. A cell is the number of its stretch,
    from 0, a shard, its user records that arrived then, and those of them that the KCL drops."""

    start: str
    seconds: int
    cells: list[tuple[int, str, int, int]]


class Facts(TypedDict):
    """The members of summary.json. Times are ISO 8601, hash keys texts of digits. ``kinds``: worst first.
    ``shards``: parents before children; ``userRecords`` and other counts: of records on it; ``belonging``:
    user records whose hash key belongs to it now; ``share``: its part of all these (None for closed shards).
    ``omitted``: how many findings, shards and inputs are not listed. ``totals``: ``misplaced`` are user
    records certainly outside the range of their shard; ``kcl`` says what the KCL does with all user records:
    delivered, dropped, altered, raw (in a frame that it does not open), or unknown; a broken frame counts as
    one."""

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
    read: dict[str, Any] | None
    rows: dict[str, int] | None
    distribution: str | None
    firstArrival: str | None
    lastArrival: str | None
    skew: float | None
    totals: dict[str, Any]
    kinds: list[KindFacts]
    causes: list[dict[str, Any]]
    shards: list[dict[str, Any]]
    arrivals: Arrivals | None
    inputs: list[str]
    omitted: dict[str, int]
