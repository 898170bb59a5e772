"""`kpl-codec audit`: was everything that producers put handled? What was not, by name, and why."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..findings import SEVERITIES, at_least_as_bad, kind_of
from ..pictures.terminal import line, note, show, show_json, table
from .main import CLEAN, FINDINGS
from .source import UsageError, add_connection, add_fail_on, client_of, since, stream_type

if TYPE_CHECKING:
    from ..audit.judge import Audit
    from ..findings import Finding

_EPILOG = """\
--produced: ledgers of producers (kpl_codec.audit.Ledger), or tables (Parquet, CSV, JSON lines) with the columns
shard, sequence number and user records.
--handled: ledgers of consumers, or tables with the columns shard, sequence number and sub-sequence number: the
output of a job, a query's result. A lastSubSequenceNumber makes a row a run.

Of each shard, what comes before the last handled user record is judged; the rest is "too early". Where a
consumer handles several batches of a shard at a time, say with --until what must be handled by now.

With --stream what is missing is fetched while retention lasts, and the cause is told. With --output, too,
kpl-codec repair DIR plans to put it again; after the repair: audit with --repaired DIR.

Exit status: 0 everything was handled, 1 something was not or nobody can say (see --fail-on), 2 failure.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    many: dict[str, Any] = {"action": "extend", "nargs": "+", "metavar": "PATH"}
    add("--produced", required=True, help="what was put: files, folders or URIs", **many)
    add("--handled", required=True, help="what was handled: files, folders or URIs", **many)
    add("--repaired", default=[], help="folders that kpl-codec repair has worked in", **many)
    add(
        "--until",
        type=since,
        metavar="TIME",
        help="what was put before it must be handled (ISO 8601, or 15m ago)",
    )
    add("--stream", type=stream_type, metavar="NAME", help="look there why; its name or ARN")
    add_connection(parser)
    add("--output", metavar="DIR", help="an empty or new folder for the results")
    add_fail_on(parser, "for findings of this severity or worse, and if it is not complete")
    add("--json", action="store_true", help="print the sums as JSON")


def run(args: argparse.Namespace) -> int:
    from ..audit.handled import read_handled, read_produced
    from ..audit.judge import Tally, judge
    from ..audit.names import NAMED, Names, runs_of
    from ..audit.results import copies_of, facts, findings_of, headline, repaired_names, write
    from ..audit.why import Why, fetch
    from ..aws.shard_map import fetch_shard_map
    from ..captures import Location
    from ..shards.stream import stream_of
    from ..validation.results import check_output

    output = None if args.output is None else Location(args.output)
    if output is not None:
        check_output(output)
    client = None if args.stream is None else client_of(args)
    shard_map = None if client is None else fetch_shard_map(client, args.stream, closed=True)
    book, rows = read_produced(args.produced)
    streams = book.streams | (set() if args.stream is None else {stream_of(args.stream).name})
    if len(streams) > 1:
        raise UsageError(reason=f"ledgers of several streams: {', '.join(sorted(streams))}")
    rows += [row for _, block in book.rows("produced") for row in block]
    repaired = repaired_names(args.repaired)
    names = Names([*(row for row in rows if row.kind in NAMED), *copies_of(repaired)])
    tally = Tally(names)
    consumers = read_handled(args.handled, tally)
    begun = tally.handled_shards
    audit = judge(
        names,
        tally,
        unnamed=[row for row in rows if row.kind not in NAMED],
        holes=book.holes("produced"),
        handled_holes=consumers.holes("handled"),
        until=None if args.until is None else int(args.until.timestamp() * 1000),
        # A consumer begins with a child when it has read the parent to its end.
        finished=[
            shard.shard_id
            for shard in shard_map or ()
            if shard_map is not None
            and any(child.shard_id in begun for child in shard_map.lineage.children(shard.shard_id))
        ],
        repaired=repaired,
    )
    fetched = None
    if client is not None and shard_map is not None:
        places = sorted({run[:2] for run in runs_of(names, audit.missing)})
        fetched = fetch(client, args.stream, shard_map, places)
    missing = Why(names, tally, shard_map, fetched).findings(audit.missing)
    found = list(findings_of(audit, names, missing))
    summary = facts(audit, names, tally, found)
    if output is not None:
        records = fetched.records.values() if fetched is not None else ()
        stream = next(iter(streams), None)
        write(output, audit, names, summary, found, records, shard_map, stream)
    if args.json:
        show_json(summary)
    else:
        _tell(args, audit, headline(audit), summary, found)
    bad = any(at_least_as_bad(finding.severity, args.fail_on) for finding in found)
    # AUD-19: "`kpl-codec audit` MUST end with 0 only where it is complete, and no finding is as bad as
    # --fail-on; with 1 where it found something or cannot be sure, with 2 where it could not be done."
    return FINDINGS if bad or not audit.complete else CLEAN


def _tell(
    args: argparse.Namespace, audit: Audit, headline: str, summary: dict[str, Any], found: list[Finding]
) -> None:
    rows = [
        [shard, *(f"{sums[name]:,}" for name in _COLUMNS)]
        for shard, sums in sorted(summary["shards"].items())
    ]
    show(line((headline, "bold")), line(""))
    show(table(["shard", *(name.replace("_", " ") for name in _COLUMNS)], rows, range(1, 7), indent=2))
    kinds = {finding.kind for finding in found}
    if kinds:
        told = [
            [f"{summary['kinds'][kind]:,}", kind_of(kind).severity, kind, kind_of(kind).title]
            for kind in sorted(kinds, key=lambda kind: (SEVERITIES.index(kind_of(kind).severity), kind))
        ]
        show(line(""), table(["user records", "severity", "kind", ""], told, (0,), indent=2))
    for finding in [one for one in found if one.severity == "critical"][:5]:
        name = f"{finding.shard_id} {finding.sequence_number}/{finding.sub_sequence_number}"
        show(line(f"  {name}: {finding.detail}"))
    if summary["unreadableRows"]:
        note(f"{summary['unreadableRows']:,} rows of --handled name no user record")
    if args.output is not None:
        show(
            line(""), line(f"Every finding: kpl-codec findings {args.output}   (with pictures: report.html)")
        )
    if args.output is not None and args.stream is not None and len(audit.missing):
        show(line(f"To plan a repair (nothing is put): kpl-codec repair {args.output}"))


_COLUMNS = ("delivered", "handled", "repaired", "missing", "unknown", "too_early")
