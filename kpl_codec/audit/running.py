"""A whole audit: reads both sides, judges, and looks at the stream for the causes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal

from ..captures import Location
from ..errors import KplError
from ..ledger import Row, digest_of
from ..shards.stream import stream_of
from ..validation.repair_files import read_copies
from .handled import read_handled, read_produced
from .judge import judge
from .names import NAMED, Name, Names, runs_of
from .results import Audited, findings_of
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
    unnamed = [row for row in rows if row.kind not in NAMED]
    copies = list(_copies(repaired))
    names = Names([*(row for row in rows if row.kind in NAMED), *_rows_of_copies(copies)])
    tally = Tally(names)
    consumers = read_handled(handled, tally)

    def fetched(places: Iterable[tuple[str, str]]) -> Fetched:
        if shard_map is None or stream is None:
            return Fetched()
        return fetch(client, stream, shard_map, places)

    attempts = any(row.kind == "unanswered" for row in unnamed)
    unclaimed = [place for place in tally.unclaimed if attempts and place[0]]  # (not of a queue)
    digests = {
        place: digest_of(record.partition_key or "", record.data)
        for place, record in fetched(unclaimed).records.items()
    }
    judged = judge(
        names,
        tally,
        unnamed=unnamed,
        holes=book.holes("produced"),
        handled_holes=consumers.holes("handled"),
        until=None if until is None else int(until.timestamp() * 1000),
        # A consumer begins with a child when it has read the parent to its end.
        finished=[
            parent
            for shard_id, shard in (shard_map or {}).items()
            if shard_id in tally.handled_shards
            for parent in shard.parent_shard_ids
        ],
        repaired=copies,
        digests=digests,
    )
    held = fetched(run[:2] for run in runs_of(names, judged.missing))
    missing = Why(names, tally, shard_map, held).findings(judged.missing)
    found = list(findings_of(judged, names, missing))
    return Audited(judged, names, tally, found, next(iter(streams), None), shard_map, held)


def _copies(folders: Iterable[str]) -> Iterable[tuple[Name, Name]]:
    """Originals and copies, by the logs of `kpl-codec repair`. Raises InputError."""
    for folder in folders:
        for file in (Location(folder) / "repair/log").files():
            if file.name.endswith(".jsonl"):
                for (shard_id, number, sub), new in read_copies(file):
                    if shard_id is not None and number is not None:
                        yield (shard_id, number, sub), new


def _rows_of_copies(copies: Iterable[tuple[Name, Name]]) -> list[Row]:
    """Rows of the Kinesis records that hold copies. (When they were put is not in the log: --until never
    judges them.)"""
    counts: dict[tuple[str, str], int] = {}
    for _, (shard_id, number, sub) in copies:
        counts[shard_id, number] = max(counts.get((shard_id, number), 0), sub + 1)
    return [Row("repaired", *place, count, 1 << 62) for place, count in counts.items()]
