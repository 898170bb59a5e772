"""The summary for terminals and text files: what was read, what is wrong, and what to do first."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from ..findings import Finding, Severity
from ..pictures.labels import number, plural, size
from ..pictures.terminal import line, render, table, wrapped
from ..shards.placement import CAUSES
from .model import CauseCount, KclLoss, Report
from .summary import REASONS, counts, outcome, span_text, state, worst_first

_STYLES = {"critical": "bold red", "error": "red", "warning": "yellow", "info": "cyan"}
_MARKS: dict[Severity, str] = {"critical": "CRITICAL", "error": "ERROR", "warning": "WARNING", "info": "info"}
#: How many shards are shown; the rest is only counted.
_SHARDS = 24
_INDENT = 11


def summary_text(report: Report, *, color: bool = False, width: int = 100) -> str:
    """The summary as text, ending in a newline. ``color`` adds ANSI escapes, for a terminal only.

    Nothing is said by colour alone.
    """
    return render(*summary(report, width=width), color=color, width=width)


def summary(report: Report, *, width: int = 100) -> list[RenderableType]:
    """The summary from top to bottom, as parts for `kpl_codec.pictures.terminal.show`."""
    heading = report.about.title + (f": {report.about.stream_name}" if report.about.stream_name else "")
    where = ", ".join(filter(None, (report.about.source, span_text(report))))
    style = "green" if report.clean else _STYLES[report.worst or "info"]
    made: list[RenderableType] = [line((heading, "bold"))]
    made += [line((where, "dim"))] if where else []
    made += [] if report.about.complete else [line("Not complete: this is what has been seen so far.")]
    made += [line(""), *wrapped(line((outcome(report)[1], style)), width), line("")]
    made += [
        line(f"{'  ' if c.part else ''}{c.label}".ljust(20), f"{c.value:>16,}  ", (c.note, "dim"))
        for c in counts(report)
    ]
    if report.kcl_losses:
        made += [line(""), line(("What a KCL consumer would not get", "bold"))]
        for loss in report.kcl_losses:
            made += wrapped(_loss(loss, REASONS.get(loss.reason, loss.reason)), width, 2)
        if report.causes:
            made.append(line(("Where aggregates of other shards come from", "bold")))
        for count in report.causes:
            made += wrapped(_loss(count, CAUSES.get(count.cause, count.cause)), width, 2)
    if report.shards:
        made += [line(""), *_shards(report)]
    if report.kinds:
        made += [line(""), line(("Findings, worst first", "bold")), *_findings(report, width)]
    return made


def _loss(count: KclLoss | CauseCount, why: str) -> Text:
    return line(
        f"{plural(count.user_records, 'user record')} in {plural(count.aggregates, 'aggregate')}: {why}"
    )


def _findings(report: Report, width: int) -> Iterator[RenderableType]:
    told: dict[str, str] = {}
    for count in report.kinds:
        kind = count.kind
        mark = (f"  {_MARKS[kind.severity]:<8} ", _STYLES[kind.severity])
        yield line(mark, (kind.name, "bold"), f": {kind.title}")
        about = f", {plural(count.user_records, 'user record')}" if count.user_records else ""
        texts = [plural(count.findings, "finding") + about + _example(report, kind.name)]
        if kind.severity != "info":
            texts += [kind.meaning, f"Whom it concerns: {kind.concerns}"]
            if told.setdefault(kind.todo, kind.name) == kind.name:
                texts.append(f"What to do: {kind.todo}")
            else:
                texts.append(f"What to do: as for {told[kind.todo]}.")
        for text in texts:
            yield from wrapped(line(text), width, _INDENT)


def _example(report: Report, kind: str) -> str:
    finding = next((finding for finding in report.findings if finding.kind == kind), None)
    place = place_of(finding) if finding is not None else ""
    return f"; e.g. {place}" if place else ""


def place_of(finding: Finding) -> str:
    """Where a finding is, and its detail, on one line."""
    said = []
    if finding.file:
        line_number = f" line {finding.line}" if finding.line else ""
        position = f" at {finding.position}" if finding.position and not finding.line else ""
        said.append(f"{finding.file}{line_number}{position}")
    said += [finding.shard_id] if finding.shard_id else []
    if finding.sequence_number:
        sub = finding.sub_sequence_number
        said.append(finding.sequence_number + (f"/{sub}" if sub is not None and sub >= 0 else ""))
    said += [f"byte {finding.offset}"] if finding.offset is not None else []
    said += [finding.detail] if finding.detail else []
    return ", ".join(said)


def _shards(report: Report) -> Iterator[RenderableType]:
    skew = f"; the fullest open shard has {report.skew:.2f} times the mean" if report.skew is not None else ""
    yield line(("Shards" + skew, "bold"))
    shown = worst_first(report.shards)[:_SHARDS]
    rows = [
        [
            shard.shard_id if len(shard.shard_id) <= 30 else shard.shard_id[:29] + "…",
            state(shard),
            number(shard.user_records),
            size(shard.bytes),
            number(shard.misplaced),
            number(shard.dropped),
        ]
        for shard in shown
    ]
    heads = ["shard", "state", "user records", "data", "misplaced", "KCL loses"]
    yield table(heads, rows, (2, 3, 4, 5), indent=2)
    left = len(report.shards) - len(shown) + report.omitted.get("shards", 0)
    if left:
        yield line(f"  and {plural(left, 'more shard')}, with less on them")
