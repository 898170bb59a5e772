"""`kpl-codec repair`: put again what `kpl-codec validate` found lost at the KCL."""

from __future__ import annotations

import argparse

from ..cli.exit_status import CLEAN, FINDINGS
from ..cli.inputs import UsageError, client_of, connection, location_of, results_of
from ..cli.options import add, add_aws, add_shared
from ..rendering.terminal import line, note, show, table

EPILOG = """\
1. Without --apply it writes a plan to DIR/repair/plan and puts nothing. Read the plan.
2. With --apply --stream NAME it puts what the plan says, and writes each delivery to
   DIR/repair/log.

After a failure run it again: it puts what is left. If it was killed, run validate again
first, and repair from the new results: they have all copies in the stream, the log may
not.

Repair only from results of a validate run that began after the last repair ended. Older
ones do not know of that repair: its user records would be put twice.

Exit status: 0 done, 1 some user records cannot be put, 2 failure.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "results", "--stream", "--quiet", use="with --apply: the stream to put to")
    add(parser, "--apply", "put the user records of the plan")
    add(parser, "--other-stream", "put them even if the results are of another stream")
    add_aws(parser)


def run(args: argparse.Namespace) -> int:
    from ..aws.list_shards import fetch_lineage
    from ..cli.progress import waiting
    from .repair import apply_repair, check_results, check_stream, plan_repair

    if args.apply != (args.stream is not None):
        raise UsageError(reason="--apply and --stream go together")
    results_of(args.results, "user-records")
    folder = location_of(args.results)
    check_results(folder, planned=args.apply)
    if args.apply:
        lineage = fetch_lineage(client_of(args), args.stream)
        if not args.other_stream:
            check_stream(folder, args.stream, lineage)
        with waiting("repairing", quiet=args.quiet):
            counts = apply_repair(folder, connection(args), args.stream)
    else:
        with waiting(f"planning the repair of {args.results}"):
            counts = plan_repair(folder)
    if counts:
        show(table(["user records", "what"], [[f"{counts[name]:,}", name] for name in sorted(counts)], (0,)))
    if args.apply and counts:
        check = f"kpl-codec validate --stream {args.stream} --output DIR"
        show(line(f"Every delivery is in {args.results}/repair/log. To check: {check}"))
    elif any(counts.values()):
        plan = f"Nothing was put. The plan: {args.results}/repair/plan."
        show(line(f"{plan} To do it: kpl-codec repair {args.results} --apply --stream NAME"))
    else:
        show(line("Nothing was lost at the KCL, so there is nothing to put."))
    if counts.get("failed") or counts.get("cannot"):
        note("some user records cannot be put; the log and the plan name them")
        return FINDINGS
    return CLEAN
