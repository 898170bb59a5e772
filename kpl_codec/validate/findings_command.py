"""``kpl-codec findings``: print the findings that validate wrote as Parquet."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from heapq import nsmallest
from typing import TYPE_CHECKING

from ..cli.command_inputs import results_of
from ..cli.exit_status import CLEAN, FINDINGS
from ..cli.options import UsageError, add, add_aws, add_shared, note_nothing
from ..cli.progress import waiting
from ..findings import KINDS, at_least_as_bad, kind_of, order_of, order_of_kind
from ..rendering.labels import plural
from ..rendering.terminal import json_line, line, note, show, table, write

if TYPE_CHECKING:
    from ..findings import Finding

#: How many findings are shown without --json-lines.
_SHOWN = 100


def configure(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "results")
    add(parser, "--kind NAME", "only findings of this kind; repeatable", action="append")
    add(parser, "--shard-id ID", "only findings on this shard; repeatable", action="append")
    add(
        parser,
        "--json-lines",
        f"print all as JSON, one object a line (without it the {_SHOWN} worst are shown)",
    )
    add_shared(parser, "--fail-on")
    add_aws(parser, kinesis=False)


def run(args: argparse.Namespace) -> int:
    """Raises UsageError for a folder without results, InputError."""
    from ..findings.counters import finding_facts

    unknown = set(args.kind or ()) - KINDS.keys()
    if unknown:
        kinds = ", ".join(sorted(unknown))
        raise UsageError(reason=f"no kind of finding is called {kinds} (kpl-codec explain lists them)")
    counts: Counter[str] = Counter()
    undecided: Counter[str] = Counter()
    read = 0

    def matching() -> Iterator[Finding]:
        nonlocal read
        for finding in _read(args.results):
            read += 1
            if args.kind is None or finding.kind in args.kind:
                if args.shard_id is None or finding.shard_id in args.shard_id:
                    counts[finding.kind] += 1
                    yield finding
                # ACC-5: "What a filter cannot decide about MUST be counted aloud, with exit status 1 where it
                # may hide what was asked for."
                undecided[finding.kind] += finding.shard_id is None

    with waiting(f"reading {args.results}, nothing to show yet") as something:
        if args.json_lines:
            for finding in matching():
                something()
                write(json_line(finding_facts(finding)))
        else:
            worst = nsmallest(_SHOWN, matching(), key=order_of)
            _show(worst, counts)
            if len(worst) < counts.total():
                note(f"{len(worst):,} of {plural(counts.total(), 'finding')} shown; --json-lines shows all")
    if not counts:
        note_nothing(args, "finding", read, args.results, "--kind", "--shard-id")
    if args.shard_id is not None and undecided.total():
        text = "each names no shard, and may be about these (without --shard-id it is shown)"
        note(f"{plural(undecided.total(), 'finding')} left out: {text}")
        counts += undecided
    bad = any(at_least_as_bad(kind_of(kind).severity, args.fail_on) for kind in counts)
    return FINDINGS if bad else CLEAN


def _read(folder: str) -> Iterator[Finding]:
    from .scan import FINDINGS_SCHEMA, findings_of

    for location in results_of(folder, "findings"):
        for batch in location.rows(schema=FINDINGS_SCHEMA):
            yield from findings_of(batch)


def _show(findings: list[Finding], counts: Counter[str]) -> None:
    if counts:
        kinds = sorted(counts, key=order_of_kind)
        rows = [[f"{counts[kind]:,}", kind_of(kind).severity, kind] for kind in kinds]
        show(table(["findings", "severity", "kind"], rows, (0,)), line(""))
    before = None
    for finding in findings:
        if finding.kind != before:
            show(line((finding.kind, "bold"), f": {kind_of(finding.kind).title}"))
            before = finding.kind
        show(line(f"  {finding.place or '(nothing more is known)'}"))
