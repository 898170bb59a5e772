"""`kpl-codec audit`: compares what producers put with what consumers handled."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ..cli.command_inputs import check_new_output, client_of
from ..cli.exit_status import CLEAN, FINDINGS
from ..cli.options import UsageError, add, add_aws, add_shared
from ..findings import at_least_as_bad, kind_of
from ..rendering.terminal import command, line, note, show, show_json, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from .audit_run import AuditResult

#: How many missing user records, and how many unreadable files, the command prints.
_EXAMPLES = 3
_HEADS = ["shard", "delivered", "handled", "put aside", "missing", "unknown", "too early"]
EPILOG = """\
--produced: ledgers of producers (kpl_codec.audit.Ledger).

--handled: ledgers of consumers, or Parquet with the columns shardId, sequenceNumber and
subSequenceNumber: the output of a job, the result of a query. With streamName, rows of
other streams are left out.

Any other file there is refused, with the command that makes a ledger or Parquet of it,
where there is one. --leave-out '*.csv' leaves files of that name out.

On each shard, user records before the last handled one must be handled by now; the
others are "too early". Give --put-before where a consumer handles several batches of a
shard at a time.

With --stream, the audit fetches missing records while retention lasts, and reports why
they are missing. With --output, too, DIR/user-records has them with their data.

Exit status: 0 everything was handled, and no finding is as bad as --fail-on; 1 there
is such a finding, or (whatever --fail-on is) a user record is missing, unknown or too
early to say, or a producer's ledger is not whole; 2 the audit failed.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    many: dict[str, Any] = {"action": "extend", "nargs": "+"}
    add(parser, "--produced PATH", "what producers put: files, folders or URIs", required=True, **many)
    add(parser, "--handled PATH", "what consumers handled: files, folders or URIs", required=True, **many)
    text = "what was put before WHEN must be handled by now: a time, or 15m for fifteen minutes ago"
    add(parser, "--put-before WHEN", text)
    text = "files that are not read, by name or path, such as '*.csv'; may be repeated"
    add(parser, "--leave-out PATTERN", text, action="append", default=[])
    add(parser, "--output DIR", "a new or empty folder for the results")
    use = "fetch missing records from this stream"
    add_shared(parser, "--stream", "--fail-on", "--json", "--quiet", use=use)
    add_aws(parser)


def run(args: argparse.Namespace) -> int:
    from ..captures import Location
    from ..cli.progress import waiting
    from .audit_run import audit
    from .files import ReadProgress

    if args.put_before is not None and args.put_before > datetime.now(timezone.utc):
        raise UsageError(
            reason="--put-before is in the future: nothing that was put by then must be handled now"
        )
    if args.output is not None:
        check_new_output(Location(args.output))
    progress = ReadProgress()
    with waiting("auditing", progress.mebibytes, unit="MiB", quiet=args.quiet):
        result = audit(
            args.produced,
            args.handled,
            put_before=args.put_before,
            client=None if args.stream is None else client_of(args),
            stream=args.stream,
            leave_out=args.leave_out,
            progress=progress,
        )
    if args.output is not None:
        result.write(args.output)
    if args.json:
        show_json(result.facts)
    else:
        show(*audit_lines(result))
        for text in result.notes:
            note(text)
        if args.output is not None:
            show(line(""), line("Every finding (report.html there is a page of them):"))
            show(command(f"kpl-codec findings {args.output}"))
    bad = any(at_least_as_bad(finding.severity, args.fail_on) for finding in result.findings)
    # AUD-17: "`kpl-codec audit` MUST end with 0 only where it is complete, and no finding is as bad as
    # --fail-on; with 1 where it found something or cannot be sure, with 2 where it could not be done."
    return FINDINGS if bad or not result.audit.complete else CLEAN


def audit_lines(result: AuditResult) -> list[RenderableType]:
    """The text that the command prints: sums by shard, findings by kind, some examples."""
    facts = result.facts
    names = ("delivered", "handled", "aside", "missing", "unknown", "tooEarly")
    rows = [[shard["shardId"], *(f"{shard[name]:,}" for name in names)] for shard in facts["shards"]]
    lines: list[RenderableType] = [
        line((result.headline, "bold")),
        line(""),
        table(_HEADS, rows, range(1, 7), indent=2),
    ]
    kinds = []
    for count in facts["kinds"]:
        kind = kind_of(count["kind"])
        numbers = [f"{count[name]:,}" if count[name] else "" for name in ("userRecords", "findings")]
        kinds.append([*numbers, kind.severity, kind.name, kind.title])
    if kinds:
        heads = ["user records", "findings", "severity", "kind", ""]
        lines += [line(""), table(heads, kinds, (0, 1), indent=2)]
    if any(shard["tooEarly"] for shard in facts["shards"]):
        text = "Too early to say: nothing later of the shard has been handled."
        lines += [line(""), line(text)]
        lines.append(line("Audit again later, or say with --put-before what must be handled by now."))
    examples = [one for one in result.findings if one.severity == "critical"][:_EXAMPLES]
    for kind_name in ("audit-unreadable", "audit-incomplete"):
        examples += [one for one in result.findings if one.kind == kind_name][:_EXAMPLES]
    if examples:
        lines.append(line(""))
    for one in examples:
        place = one.file or f"{one.shard_id} {one.sequence_number}/{one.sub_sequence_number}"
        lines.append(line(f"  {place}: {one.detail}"))
    return lines
