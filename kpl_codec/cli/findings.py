"""``kpl-codec findings``: print the findings that validate wrote as Parquet."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..findings import KINDS, SEVERITIES, at_least_as_bad, kind_of, order_of
from ..pictures.terminal import json_line, line, note, show, table, width, wrapped, write
from .main import CLEAN, FINDINGS
from .source import UsageError, add_fail_on, at_least

if TYPE_CHECKING:
    from ..findings import Finding


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("results", metavar="DIR", help="the folder that validate wrote")
    parser.add_argument("--kind", metavar="NAME", help="only findings of this kind")
    parser.add_argument(
        "--severity", choices=SEVERITIES, default=SEVERITIES[-1], help="only this severity and worse"
    )
    parser.add_argument("--shard-id", metavar="ID", help="only on this shard")
    parser.add_argument(
        "--limit", type=at_least(0), default=100, metavar="N", help="show at most N (default: 100)"
    )
    parser.add_argument("--json", action="store_true", help="a JSON object a line; all findings, unordered")
    add_fail_on(parser, "where a finding of this severity or worse is shown")


def run(args: argparse.Namespace) -> int:
    """1 where findings of --fail-on or worse are shown, else 0. Raises UsageError for a folder without
    results, InputError."""
    from ..report.facts import finding_facts

    if args.kind is not None and args.kind not in KINDS:
        raise UsageError(reason=f"no kind of finding is called {args.kind} (kpl-codec explain lists them)")
    wanted = (
        finding
        for finding in _read(args.results)
        if at_least_as_bad(finding.severity, args.severity)
        and args.kind in (None, finding.kind)
        and args.shard_id in (None, finding.shard_id)
    )
    if args.json:
        status = CLEAN
        for finding in wanted:
            status = FINDINGS if at_least_as_bad(finding.severity, args.fail_on) else status
            write(json_line(finding_facts(finding)))
        return status
    shown, counts = _worst(wanted, args.limit)
    if counts:
        rows = [
            [f"{count:,}", KINDS[kind].severity if kind in KINDS else "error", kind]
            for kind, count in _ordered(counts)
        ]
        show(table(["findings", "severity", "kind"], rows, (0,)), line(""))
    _show(shown)
    if len(shown) < counts.total():
        note(f"{len(shown):,} of {counts.total():,} findings shown; --limit shows more, --json all")
    bad = any(at_least_as_bad(kind_of(kind).severity, args.fail_on) for kind in counts)
    return FINDINGS if bad else CLEAN


def _worst(findings: Iterable[Finding], limit: int) -> tuple[list[Finding], Counter[str]]:
    """The ``limit`` worst, worst first, and how many there are of each kind. Holds few of each kind."""
    kept: dict[str, list[Finding]] = {}
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.kind] += 1
        some = kept.setdefault(finding.kind, [])
        some.append(finding)
        if len(some) > 2 * limit:
            kept[finding.kind] = sorted(some, key=order_of)[:limit]
    return sorted((finding for some in kept.values() for finding in some), key=order_of)[:limit], counts


def _ordered(counts: Counter[str]) -> list[tuple[str, int]]:
    names = list(KINDS)
    return sorted(counts.items(), key=lambda item: names.index(item[0]) if item[0] in names else len(names))


def _read(folder: str) -> Iterator[Finding]:
    import pyarrow.dataset as ds

    from ..captures import Location, readable
    from ..report.scan import FINDINGS_SCHEMA, findings_of

    held = [Location(folder) / name for name in ("findings", "findings-of-the-whole.parquet")]
    there = [location for location in held if location.kind() is not None]
    if not there:
        raise UsageError(reason=f"{folder} holds no results of kpl-codec validate (no findings/)")
    for location in there:
        system, inner = location.opened()
        with readable(location.path):
            rows = ds.dataset(inner, schema=FINDINGS_SCHEMA, filesystem=system, format="parquet")
            for batch in rows.to_batches():
                yield from findings_of(batch)


def _show(findings: list[Finding]) -> None:
    from ..report.layout import place_of

    before = None
    for finding in findings:
        if finding.kind != before:
            title = (
                KINDS[finding.kind].title if finding.kind in KINDS else "a kind this version does not know"
            )
            show(line((finding.kind, "bold"), f": {title}"))
            before = finding.kind
        show(*wrapped(line(place_of(finding) or "(nothing more is known)"), max(width(), 60), 2))
