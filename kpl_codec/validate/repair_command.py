"""`kpl-codec repair`: sends again the user records that `kpl-codec validate` found lost at the KCL."""

from __future__ import annotations

import argparse
import json
import posixpath
from typing import TYPE_CHECKING

from ..captures.command_inputs import client_of, client_settings, location_of, results_of
from ..cli.exit_status import CLEAN, FINDINGS, INTERRUPTED
from ..cli.options import Company, UsageError, add, add_aws, add_shared
from ..cli.signals import stop_on_signals
from ..rendering.labels import plural
from ..rendering.terminal import command, line, note, show, table

if TYPE_CHECKING:
    from ..captures import Location

EPILOG = """\
1. Without --apply it is a dry run: it writes a plan to DIR/repair/plan and sends
   nothing. The plan is Parquet: its column decision says what becomes of each user
   record, reason why one cannot be sent. The guide check-captures.md shows how to
   read it. An aggregated record that cannot be opened is not in the plan: the findings
   of validate name it. What lies on a shard that the consumer of an audit has never
   read is not sent: a worker that takes the shard still reads it. If none will (it
   begins at LATEST), plan that, too, with --with-unread. A KCL that does not know the
   range of its shard drops nothing: with skipShardSyncAtStartupIfLeasesExist without a
   word, else its log says "Cannot get the shard for this ProcessTask", and no shard.
   Leave out such shards with --without-range SHARD ...
2. With --apply --stream NAME it sends the user records of the plan, and logs each
   delivery in DIR/repair/log.

After a failure, Ctrl-C or SIGTERM run it again: it sends the rest. If it was killed,
as by a second Ctrl-C, run validate again first, and repair from the new results: the
log may lack the last copies that it sent.

Repair only from results of a validate run that began after the last repair ended.
Older results do not know of that repair: its user records would be sent twice. Repair
from results of an audit only if that audit was given --repaired DIR for each earlier
repair, also one of validate.

Exit status: 0 done, 1 some user records cannot be sent, 2 failure, 130 interrupted.
"""

#: The decisions of a plan, in words.
_PLANNED = {
    "put": "to re-send",
    "already-delivered": "already delivered: their producer re-sent them after a reshard",
    "copy": "lost copies of an earlier repair: their originals are in this plan, too",
    "not-read-yet": "on shards that the consumer has never read: it may still read them",
    "delivered-without-range": "on shards whose range the KCL did not know: it delivered them",
    "cannot": "cannot be re-sent: column reason of the plan says why",
}
#: The decisions, and the outcomes of an applied plan, in words.
_APPLIED = {
    **_PLANNED,
    "put": "sent",
    "put-before": "sent by an earlier run of this repair, and not again",
    "failed": "could not be sent: the log says why",
    "not-sent": "not sent, because the command was interrupted",
}


WITHOUT_RANGE = "without --apply: leave out these shards, whose range the KCL did not know"
#: Asked where the results are not of an audit, which knows what was handled.
ASKED = (
    'Has the consumer the setting skipShardSyncAtStartupIfLeasesExist, or does its log say "Cannot get the '
    'shard for this ProcessTask"? Then the KCL did not',
    "know the range of some shards, and delivered these user records. Leave out the shards:",
)
#: Asked where they are of an audit, which knows the copies of earlier repairs only by their results.
ASKED_OF_AUDIT = (
    "Has an earlier repair of this stream, of an audit or of validate, put some of these again? Then they",
    "would be put twice. First audit again, with --repaired and the folder of results of each such repair.",
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "results", "--stream", "--quiet", use="with --apply: the stream to send to")
    add(parser, "--apply", "send the user records of the plan")
    text = "send them even if the results are of another stream"
    add(parser, "--other-stream", text, Company(("--apply",)))
    text = "without --apply: plan to send also those of shards that the audit's consumer never read"
    add(parser, "--with-unread", text)
    add(parser, "--without-range SHARD", WITHOUT_RANGE, action="extend", nargs="+")
    add_aws(parser)


def run(args: argparse.Namespace) -> int:
    from ..aws.stream_reading import fetch_lineage
    from ..cli.progress import waiting
    from .repair import apply_repair, check_results, check_stream, plan_repair
    from .validate_job import read_shard_map

    if args.apply != (args.stream is not None):
        raise UsageError(reason="to send, give both --apply and --stream; without both it is a dry run")
    results_of(args.results, "user-records")
    folder = location_of(args.results)
    for name in ("with_unread", "without_range"):
        if args.apply and getattr(args, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(reason=f"{option} makes a plan: give it without --apply first")
    check_results(folder, with_plan=args.apply, replan=args.with_unread or bool(args.without_range))
    if args.apply:
        lineage = fetch_lineage(client_of(args), args.stream)
        if not args.other_stream:
            check_stream(folder, args.stream, lineage)
        with waiting("repairing", quiet=args.quiet), stop_on_signals() as signals:
            counts = apply_repair(folder, client_settings(args), args.stream, lambda: bool(signals))
    else:
        with waiting(f"planning the repair of {args.results}", quiet=args.quiet):
            counts = plan_repair(folder, with_unread=args.with_unread, without_range=args.without_range or ())
    if counts:
        words = _APPLIED if args.apply else _PLANNED
        rows = [[f"{counts[name]:,}", words[name]] for name in sorted(counts)]
        show(table(["user records", "what"], rows, (0,)))
    repair_folder = posixpath.join(args.results, "repair")
    of_audit = (folder / "findings/part-audit.parquet").kind() is not None
    unknown = None if args.apply else _not_known(folder)
    if not counts:
        known = "lost" if unknown is None else "known to be lost"
        show(line(f"Nothing was {known} at the KCL, so there is nothing to send."))
    elif not counts.get("put") and not counts.get("not-sent"):
        show(line("There is nothing to send."))
    elif not args.apply:
        show(line(f"Dry run, nothing sent. The plan is in {repair_folder}/plan."))
        stream = read_shard_map((folder / "shards.json").path).stream
        name = "NAME" if stream is None else stream.name
        show(line("To send it:"), command(f"kpl-codec repair {args.results} --apply --stream {name}"))
        if of_audit:
            show(*map(line, ASKED_OF_AUDIT))
        else:
            show(*map(line, ASKED))
            show(command(f"kpl-codec repair {args.results} --without-range SHARD ..."))
    elif not counts.get("not-sent"):
        show(line(f"Every delivery is in {repair_folder}/log."))
        show(line(f"From now on give every audit of this stream --repaired {args.results}: without it, an"))
        show(line("audit calls the originals missing, and a repair of that audit puts them once more."))
        show(line("To check what is on the stream now:"))
        show(command(f"kpl-codec validate --stream {args.stream} --output NEW-FOLDER"))
    if unknown is not None:
        show(line(unknown))
    if counts.get("not-read-yet") and not args.apply:
        show(
            line("Let a worker take the shards that were never read, and audit again. If none will read what")
        )
        show(line("is there, plan that, too:"), command(f"kpl-codec repair {args.results} --with-unread"))
    cannot = counts.get("failed") or counts.get("cannot")
    if cannot:
        names = "the log and the plan name them" if args.apply else "the plan names them"
        note(f"some user records cannot be sent; {names}")
    if counts.get("not-sent"):
        note("interrupted: run the same command again to send the rest")
        return INTERRUPTED
    return FINDINGS if cannot else CLEAN


#: What the KCL does with a user record, where that is known.
_KNOWN = {"delivered", "dropped", "altered", "repaired"}


def _not_known(results: Location) -> str | None:
    """A sentence, if the results do not know of everything that was read whether it was lost."""
    from ..findings import is_unread_input  # late: --help needs none of it

    summary = json.loads((results / "summary.json").read())
    if "verdict" not in summary:  # of an audit
        unknown, early = (summary["userRecords"][name] for name in ("unknown", "tooEarly"))
        if not (unknown or early or summary["incomplete"]):
            return None
        text = "The audit does not know it of all: its findings say why"
        return f"{text} ({plural(unknown, 'user record')} unknown, {early:,} too early to say)."
    totals = summary["totals"]
    unread = any(is_unread_input(kind["name"]) for kind in summary["kinds"])
    unsure = unread or totals["brokenFrames"] or totals["kcl"].keys() - _KNOWN
    return str(summary["verdict"]) if unsure else None
