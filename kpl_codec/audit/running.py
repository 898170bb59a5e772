"""A whole audit: reads both sides, judges, and looks at the stream for the causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from ..captures import Location
from ..errors import KplError
from ..findings import Finding
from ..shards.shard_map import ShardMap
from ..shards.stream import stream_of
from . import results
from .handled import read_handled, read_produced
from .judge import Audit, judge
from .names import NAMED, Names, runs_of
from .tally import Tally
from .why import Fetched, Why, fetch


class AuditError(KplError, ValueError):
    """There is nothing to compare, or ledgers of several streams: ``streams``."""

    code: Literal["nothing-produced", "several-streams"]
    requirement = "AUD-10"
    streams: tuple[str, ...] = ()
    concerns = "Whoever audits. Nothing was written."
    todo = "Name the ledgers of the producers of one stream with --produced."

    def describe(self) -> str:
        """What is wrong."""
        if self.code == "several-streams":
            return f"ledgers of several streams: {', '.join(self.streams)}"
        return "there is no ledger and no row in what was produced"


class Audited(NamedTuple):
    """``stream``: its name, where it is known. ``fetched``: what the stream still holds of the missing."""

    audit: Audit
    names: Names
    tally: Tally
    findings: list[Finding]
    stream: str | None
    shard_map: ShardMap | None
    fetched: Fetched | None

    @property
    def headline(self) -> str:
        """One sentence."""
        return results.headline(self.audit)

    @property
    def facts(self) -> Mapping[str, Any]:
        """The sums, as in summary.json."""
        return results.facts(self.audit, self.names, self.tally, self.findings)

    def write(self, output: str | Location) -> None:
        """Write the folder of `results`. Raises OutputError if it is not empty."""
        records = () if self.fetched is None else self.fetched.records.values()
        results.write(
            Location(output),
            self.audit,
            self.names,
            self.facts,
            self.findings,
            records,
            self.shard_map,
            self.stream,
        )


def audit(
    produced: Sequence[str],
    handled: Sequence[str],
    *,
    repaired: Sequence[str] = (),
    until: datetime | None = None,
    client: Any = None,
    stream: str | None = None,
) -> Audited:
    """Compare what was ``produced`` with what was ``handled``: paths of ledgers and tables, see `handled`.

    ``repaired``: folders that repair has worked in. ``until``: what was put before it must be handled.
    ``client``, ``stream``: where to look for causes. Raises InputError, AuditError, StreamUnavailable.
    """
    from ..aws.shard_map import fetch_shard_map

    shard_map = None if client is None or stream is None else fetch_shard_map(client, stream, closed=True)
    book, rows = read_produced(produced)
    streams = book.streams | (set() if stream is None else {stream_of(stream).name})
    if len(streams) > 1:
        raise AuditError(code="several-streams", streams=tuple(sorted(streams)))
    if not book and not rows:
        raise AuditError(code="nothing-produced")
    rows += [row for _, block in book.rows("produced") for row in block]
    copies = results.repaired_names(repaired)
    names = Names([*(row for row in rows if row.kind in NAMED), *results.copies_of(copies)])
    tally = Tally(names)
    consumers = read_handled(handled, tally)
    shards = () if shard_map is None else shard_map.values()
    judged = judge(
        names,
        tally,
        unnamed=[row for row in rows if row.kind not in NAMED],
        holes=book.holes("produced"),
        handled_holes=consumers.holes("handled"),
        until=None if until is None else int(until.timestamp() * 1000),
        # A consumer begins with a child when it has read the parent to its end.
        finished=[
            shard.shard_id
            for shard in shards
            if shard_map is not None
            and any(child.shard_id in tally.handled_shards for child in shard_map.children(shard.shard_id))
        ],
        repaired=copies,
    )
    fetched = None
    if shard_map is not None and stream is not None:
        places = sorted({run[:2] for run in runs_of(names, judged.missing)})
        fetched = fetch(client, stream, shard_map, places)
    missing = Why(names, tally, shard_map, fetched).findings(judged.missing)
    found = list(results.findings_of(judged, names, missing))
    return Audited(judged, names, tally, found, next(iter(streams), None), shard_map, fetched)
