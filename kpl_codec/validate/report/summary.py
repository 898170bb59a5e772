"""The summary of a report: its words and numbers, which the page shows too; the text for terminals and files;
and one JSON value, ``summary.json``, whose schema is spec/summary.schema.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ...findings import Finding, camel, camel_keys
from ...rendering.labels import number, percent, plural, size
from ...rendering.terminal import line, render, table, wrapped
from ...shards.placement import CAUSES
from .model import Report, ShardFacts

if TYPE_CHECKING:
    from rich.console import RenderableType

_HEADLINES = {"critical": "Misplaced aggregates", "error": "Broken records", "warning": "Needs a look"}
_STYLES = {"critical": "bold red", "error": "red", "warning": "yellow", "info": "cyan"}
#: How many shards are shown; the rest is only counted.
_SHARDS = 24
_INDENT = 11
#: Raised when a member of the JSON changes its meaning or is removed, not for new members.
VERSION = 1


class Count(NamedTuple):
    """One count of the summary. ``how``: "part" of the count before it; "bad" news, if above 0; "rare": not
    shown where it is 0."""

    label: str
    value: int
    note: str = ""
    how: str = ""


def outcome(report: Report) -> tuple[str, str]:
    """What the report comes to: in two or three words, and in a sentence or two."""
    totals, lost = report.totals, report.totals.lost_at_kcl
    read = f"{number(totals.user_records)} user records were read"
    about = report.about
    if report.audit:
        missing, early = (sum(getattr(at, name) for at in report.audit) for name in ("missing", "too_early"))
        known = "Not all is known" if report.kinds else "Everything was handled"
        said = f"{plural(missing, 'user record')} put and never handled; too early to say of"
        return "User records are missing" if missing else known, f"{said} {plural(early, 'user record')}."
    if not totals.kinesis_records:
        said = "Not one Kinesis record was read, so nothing is known about the stream."
        return "Nothing was read", said
    if about.estimated_loss is not None:
        said = f"A KCL consumer drops {about.estimated_loss} user records, without a log line."
        of = f"This is an estimate: {read}, of which it drops {number(lost)}."
        return "Records are lost", f"{said} {of}"
    if about.share < 1 and report.clean:
        said = f"Nothing was found in what was read: {percent(about.share, 1)} of each shard's time, {read}."
        return "Nothing was found", said
    if lost:
        part = f"{number(totals.user_records)} ({percent(lost, totals.user_records)})"
        said = f"A KCL consumer drops {plural(lost, 'user record')} of {part}, without a log line."
        # A producer that notices sends them again, so they may be on the stream twice, and delivered once.
        if caught := sum(count.dropped for count in report.causes if count.cause == "reshard"):
            some = "All of them" if caught == lost else f"{number(caught)} of them"
            said += f" {some} were overtaken by a reshard: their producer may have sent them again."
        return "Records are lost" if lost > caught else "Records may be lost", said
    serious = sum(count.findings for count in report.kinds if count.kind.severity in ("critical", "error"))
    unknown = sum(count.user_records for count in report.kinds if count.kind.name == "unknown-shard")
    if any(count.kind.name == "other-stream" for count in report.kinds):
        unknown += totals.verdicts.get("not-judged", 0)
    repaired = totals.kcl.get("repaired", 0)
    if serious:
        said = f"{plural(serious, 'thing')} cannot be read as written."
        said += " A KCL consumer drops none of the user records that could be."
    elif unknown:
        said = f"Every record can be read. Whether a KCL consumer drops {plural(unknown, 'user record')}"
        said += " is not known: the map does not have their shards."
    elif not report.clean:
        said = "Every record can be read and reaches a KCL consumer; some things need a look."
    elif repaired:
        said = f"Every user record reaches a KCL consumer: {plural(repaired, 'user record')}"
        said += " that it drops were put again by a repair."
    elif report.distribution is None:
        said = "Every record can be read. Placement was not checked: there is no shard map."
    else:
        said = "Clean: every record can be read, lies where it belongs, and reaches a KCL consumer."
    clean = "Clean" if report.distribution else "Readable"
    return clean if report.clean else _HEADLINES[report.worst or "warning"], said


def counts(report: Report) -> list[Count]:
    totals = report.totals
    user = totals.user_records
    unread = sum(count.findings for count in report.kinds if count.kind.name.startswith("capture"))
    opened = user - totals.plain_records - totals.broken_frames
    each = f"{opened / totals.aggregated_records:,.1f} user records each" if totals.aggregated_records else ""
    rows = [
        Count("Kinesis records", totals.kinesis_records, _per_second(report)),
        Count("plain", totals.plain_records, "", "part"),
        Count("aggregated", totals.aggregated_records, each, "part"),
        Count("broken frames", totals.broken_frames, "cannot be opened, or have no data", "part bad rare"),
        Count("User records", user, size(totals.bytes) + " of data"),
        Count("Not read", unread, "files, lines and records; what is in them is not counted", "bad rare"),
    ]
    if report.distribution is not None:
        outside = f"{percent(totals.misplaced, user)}; outside their shard's range"
        mixed = "user records of this shard and of others in one"
        rows += [
            Count("misplaced", totals.misplaced, outside, "part bad"),
            Count("Mixed aggregates", totals.mixed_aggregates, mixed, "bad"),
            Count("Foreign aggregates", totals.foreign_aggregates, "all of other shards", "bad rare"),
        ]
    if kcl := totals.kcl:
        lost = f"{percent(totals.lost_at_kcl, user)} of the user records"
        rows += [
            Count("Lost at the KCL", totals.lost_at_kcl, lost, "bad"),
            Count("Repaired", kcl.get("repaired", 0), "dropped by the KCL, and put again", "rare"),
            Count("Unopened by the KCL", kcl.get("raw", 0), "it hands the frame on as one record", "rare"),
            Count("Altered by the KCL", kcl.get("altered", 0), "delivered under another key", "rare"),
        ]
    return [row for row in rows if row.value or "rare" not in row.how]


def _per_second(report: Report) -> str:
    if report.first_arrival is None or report.last_arrival is None:
        return ""
    seconds = (report.last_arrival - report.first_arrival).total_seconds()
    # What is read of a sample says nothing of the rate.
    rate = report.totals.kinesis_records / seconds if seconds >= 1 and report.about.share == 1 else 0
    return f"{rate:,.1f} a second" if rate >= 0.1 else ""


def span_text(report: Report) -> str | None:
    """From the first arrival to the last, None where no time is known."""
    if report.first_arrival is None or report.last_arrival is None:
        return None
    first, last = report.first_arrival, report.last_arrival
    form = "%H:%M:%S" if first.date() == last.date() else "%Y-%m-%d %H:%M:%S"
    return f"{first:%Y-%m-%d %H:%M:%S} to {last.strftime(form)} UTC"


def worst_first(shards: Iterable[ShardFacts]) -> list[ShardFacts]:
    """Those of which the KCL loses most, then those with most misplaced, then those with most on them."""
    return sorted(shards, key=lambda s: (-s.dropped, -s.misplaced, -s.user_records))


def summary_text(report: Report) -> str:
    """The summary as text without colours, ending in a newline."""
    return render(*summary(report))


def summary(report: Report, *, width: int = 100) -> list[RenderableType]:
    """The summary from top to bottom, as parts for `kpl_codec.rendering.terminal.show`."""
    heading = report.about.title + (f": {report.about.stream_name}" if report.about.stream_name else "")
    where = ", ".join(filter(None, (report.about.source, span_text(report))))
    style = "green" if report.clean else _STYLES[report.worst or "info"]
    made: list[RenderableType] = [line((heading, "bold"))]
    made += [line((where, "dim"))] if where else []
    made += [] if report.about.complete else [line("Not complete: this is what has been seen so far.")]
    made += [line(""), *wrapped(line((outcome(report)[1], style)), width), line("")]
    made += [
        line(f"{'  ' if 'part' in c.how else ''}{c.label}".ljust(20), f"{c.value:>16,}  ", (c.note, "dim"))
        for c in counts(report)
    ]
    if report.causes:
        made += [line(""), line(("Where aggregates of other shards come from", "bold"))]
    for cause, aggregates, user_records, _ in report.causes:
        held = f"{plural(user_records, 'user record')} in {plural(aggregates, 'aggregate')}"
        made += wrapped(line(f"{held}: {CAUSES.get(cause, cause)}"), width, 2)
    if report.shards:
        made += [line(""), *_shards(report)]
    if report.kinds:
        made += [line(""), line(("Findings, worst first", "bold")), *_findings(report, width)]
    return made


def _findings(report: Report, width: int) -> Iterator[RenderableType]:
    told: dict[str, str] = {}
    for count in report.kinds:
        kind = count.kind
        mark = (f"  {kind.severity.upper():<8} ", _STYLES[kind.severity])
        yield line(mark, (kind.name, "bold"), f": {kind.title}")
        about = f", {plural(count.user_records, 'user record')}" if count.user_records else ""
        place = next((place_of(finding) for finding in report.findings if finding.kind == kind.name), "")
        texts = [plural(count.findings, "finding") + about + (f"; e.g. {place}" if place else "")]
        if kind.severity != "info":
            texts += [kind.meaning, f"Whom it concerns: {kind.concerns}"]
            if told.setdefault(kind.todo, kind.name) == kind.name:
                texts.append(f"What to do: {kind.todo}")
            else:
                texts.append(f"What to do: as for {told[kind.todo]}.")
        for text in texts:
            yield from wrapped(line(text), width, _INDENT)


def place_of(finding: Finding) -> str:
    """Where a finding is, and its detail, on one line."""
    said = []
    if finding.file:
        line_number = f" line {finding.line}" if finding.line is not None else ""
        position = "" if finding.position is None or line_number else f" at {finding.position}"
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
            shard.state,
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


def _facts(values: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON: names in camel case, times as texts."""
    return {camel(name): of.isoformat() if isinstance(of, datetime) else of for name, of in values.items()}


def _shard_facts(shard: ShardFacts) -> dict[str, Any]:
    values = asdict(shard)
    texts = {name: str(values[name]) for name in ("start", "end") if values[name] is not None}
    return _facts({**values, **texts})


def report_facts(report: Report) -> dict[str, Any]:
    """Everything in the summary, and every shard shown, without single findings (they are in findings/)."""
    about = report.about
    return {
        "summaryVersion": VERSION,
        "kplCodecVersion": about.version,
        "title": about.title,
        "streamName": about.stream_name,
        "source": about.source,
        "generated": about.generated.isoformat(),
        "complete": about.complete,
        "clean": report.clean,
        "worst": report.worst,
        **dict(zip(("headline", "verdict"), outcome(report), strict=True)),
        "distribution": report.distribution,
        **_facts({name: getattr(report, name) for name in ("first_arrival", "last_arrival")}),
        "skew": report.skew,
        "totals": {**camel_keys(asdict(report.totals)), "lostAtKcl": report.totals.lost_at_kcl},
        "kinds": [
            {
                **{name: getattr(count.kind, name) for name in ("name", "severity", "title")},
                "findings": count.findings,
                "userRecords": count.user_records,
            }
            for count in report.kinds
        ],
        "causes": [camel_keys(count._asdict()) for count in report.causes],
        "shards": [_shard_facts(shard) for shard in report.shards],
        "omitted": dict(report.omitted),
    }
