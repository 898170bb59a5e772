"""The summary of a report: its sentences and counts, which the page shows too; the text for terminals; and
``summary.json``, whose schema is spec/summary.schema.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ...findings import DAMAGE_KINDS, HIDDEN_AGGREGATE_KINDS, camel_keys, is_unread_input
from ...rendering.labels import number, percent, plural, size
from ...rendering.terminal import line, render, table
from ...shards.placement import CAUSES
from .model import AuditShard, Report, ShardFacts

if TYPE_CHECKING:
    from rich.console import RenderableType

_HEADLINES = {"critical": "Misplaced aggregates", "error": "Broken records", "warning": "Needs a look"}
_STYLES = {"critical": "bold red", "error": "red", "warning": "yellow", "info": "cyan"}
#: The columns of `model.AuditShard`: heading, and class on the page.
AUDIT_COLUMNS = (
    ("Shard", "id"),
    *((name.replace("_", " ").capitalize(), "number") for name in AuditShard._fields[1:]),
)
#: How many shards are shown; the others are only counted.
_SHARDS = 24
_INDENT = 11
_PLACES = ("file, line or item", "files, lines or items")
#: The version of summary.json: it increases when a member changes its meaning or is removed, not for new
#: members.
VERSION = 1


class Count(NamedTuple):
    """One count of the summary. ``how``: "part": a part of the count before it; "bad": marked on the page if
    above 0; "rare": not shown if it is 0."""

    label: str
    value: int
    note: str = ""
    how: str = ""


def outcome(report: Report) -> tuple[str, str]:
    """The headline of the report, and the sentences below it. They account for all user records that
    were read: those that the KCL drops, those of which this is not known, and inputs that could not be
    read."""
    if report.about.audit_outcome is not None:
        return report.about.audit_outcome
    headline, first = _kcl_outcome(report)
    if headline == "Records may be lost" and any(_unread(report)):
        headline = "Records may be lost, some cannot be read"
    return headline, " ".join([first, *_not_known(report)])


def _kcl_outcome(report: Report) -> tuple[str, str]:
    """The headline, and what a KCL consumer gets of the user records that were read."""
    totals, dropped = report.totals, report.totals.lost_at_kcl
    read = plural(totals.user_records, "user record")
    if not totals.kinesis_records:
        return "Nothing was read", "No Kinesis record was read, so nothing is known about the stream."
    if dropped:
        part = f"{number(totals.user_records)} ({percent(dropped, totals.user_records)})"
        text = f"A KCL consumer drops {plural(dropped, 'user record')} of {part}, without a log line."
        # A producer that notices a reshard sends them again, so they may be on the stream twice, and
        # delivered once.
        overtaken = sum(count.dropped for count in report.causes if count.cause == "reshard")
        if overtaken:
            some = "All of them were" if overtaken == dropped else plural(overtaken, "was", "were")
            text += f" {some} in flight during a split or merge; the producer may have retried them."
        return "Records are lost" if dropped > overtaken else "Records may be lost", text
    clean = "Clean" if report.distribution else "Readable"
    headline = clean if report.clean else _HEADLINES[report.worst or "warning"]
    if report.worst == "error" and all(
        is_unread_input(count.kind.name) for count in report.kinds if count.kind.severity == "error"
    ):
        headline = "Not everything was read"
    if report.distribution is None:
        return headline, f"{read} read. Placement was not checked: there is no shard map."
    if totals.unknown_at_kcl or any(_unread(report)):
        # User records of a frame that the KCL delivers unopened reach no consumer as user records.
        checked = totals.user_records - totals.unknown_at_kcl - totals.kcl.get("raw", 0)
        text = f"A KCL consumer drops none of the {plural(checked, 'user record')} that could be checked."
        return headline, text if checked else "No user record could be checked."
    if not report.clean:
        text = f"Every user record ({number(totals.user_records)}) can be read and reaches a KCL consumer"
        return headline, f"{text}; some things need a look."
    return "Clean", "Clean: every record can be read, lies where it belongs, and reaches a KCL consumer."


class _Unread(NamedTuple):
    """Input that a report does not count as user records, or only in part. ``places``: files, lines and items
    that were not read. ``broken``: Kinesis records that cannot be opened. ``damaged``: user records and
    aggregates with damaged bytes in other Kinesis records. ``hidden``: records with an aggregated record in
    their data."""

    places: int
    broken: int
    damaged: int
    hidden: int


def _unread(report: Report) -> _Unread:
    counts = [(count.kind.name, count.findings) for count in report.kinds]
    places = sum(findings for name, findings in counts if is_unread_input(name))
    broken = report.totals.broken_frames
    # Each broken frame is a finding of one of these kinds, too.
    damaged = sum(findings for name, findings in counts if name in DAMAGE_KINDS)
    hidden = sum(findings for name, findings in counts if name in HIDDEN_AGGREGATE_KINDS)
    return _Unread(places, broken, max(damaged - broken, 0), hidden)


def _not_known(report: Report) -> Iterator[str]:
    unknown = report.totals.unknown_at_kcl
    if unknown and report.distribution is not None:
        expired = sum(count.user_records for count in report.kinds if count.kind.name == "unknown-shard")
        why = "the shard map does not have their shards" if expired == unknown else "the findings say why"
        yield f"Whether a KCL consumer drops {plural(unknown, 'user record')} is not known: {why}."
    places, broken, damaged, hidden = _unread(report)
    if broken:
        each = "it is counted as one user record" if broken == 1 else "each is counted as one user record"
        yield f"{plural(broken, 'Kinesis record')} cannot be read: {each}, whatever is in it."
    if places:
        were = "was not read: what is in it" if places == 1 else "were not read: what is in them"
        yield f"{plural(places, *_PLACES)} of the input {were} is not counted."
    if damaged:
        records = "user record or aggregate is", "user records or aggregates are"
        yield f"{plural(damaged, *records)} damaged."
    if hidden:
        records = "record holds", "records hold"
        text = "an aggregated record that no consumer opens: the user records in it are not counted."
        yield f"{plural(hidden, *records)} {text}"


def counts(report: Report) -> list[Count]:
    totals = report.totals
    user = totals.user_records
    unread = _unread(report).places
    mean = (user - totals.plain_records - totals.broken_frames) / (totals.aggregated_records or 1)
    each = f"{mean:,.1f} user records each" if totals.aggregated_records else ""
    broken = "cannot be opened; each counts as one user record"
    rows = [
        Count("Kinesis records", totals.kinesis_records, _per_second(report)),
        Count("plain", totals.plain_records, "", "part"),
        Count("aggregated", totals.aggregated_records, each, "part"),
        Count("broken frames", totals.broken_frames, broken, "part bad rare"),
        Count("Not read", unread, f"{_PLACES[unread != 1]} of the input; not counted", "bad rare"),
        Count("User records", user, size(totals.bytes) + " of data"),
    ]
    if report.distribution is not None:
        outside = f"{percent(totals.misplaced, user)}; outside their shard's range"
        mixed = "user records of this shard and of others in one"
        foreign = "user records of other shards only"
        rows += [
            Count("misplaced", totals.misplaced, outside, "part bad"),
            Count("Mixed aggregates", totals.mixed_aggregates, mixed, "bad"),
            Count("Foreign aggregates", totals.foreign_aggregates, foreign, "bad rare"),
        ]
    if kcl := totals.kcl:
        loss = percent(totals.lost_at_kcl, user)
        if totals.lost_at_kcl and totals.misplaced:
            loss += "; one misplaced user record loses its whole aggregate"
        delivered = kcl.get("delivered", 0)
        rows += [
            Count("Delivered by the KCL", delivered, percent(delivered, user)),
            Count("Lost at the KCL", totals.lost_at_kcl, loss, "bad"),
            Count("Unopened by the KCL", kcl.get("raw", 0), "it hands the frame on as one record", "rare"),
            Count("Altered by the KCL", kcl.get("altered", 0), "delivered under another key", "rare"),
            Count("Not known", totals.unknown_at_kcl, "whether the KCL drops them", "rare"),
        ]
    return [row for row in rows if row.value or "rare" not in row.how]


def _per_second(report: Report) -> str:
    if report.first_arrival is None or report.last_arrival is None:
        return ""
    seconds = (report.last_arrival - report.first_arrival).total_seconds() + 1  # both are whole seconds
    # Neither a few seconds nor the records of a sample show the rate.
    rate = report.totals.kinesis_records / seconds if seconds >= 10 else 0
    return f"{rate:,.{0 if rate >= 10 else 1}f} a second" if rate >= 0.1 else ""


def span_text(report: Report) -> str | None:
    """The times of the first and last arrival, as text; None if no time is known."""
    if report.first_arrival is None or report.last_arrival is None:
        return None
    first, last = report.first_arrival, report.last_arrival
    form = "%H:%M:%S" if first.date() == last.date() else "%Y-%m-%d %H:%M:%S"
    return f"{first:%Y-%m-%d %H:%M:%S} to {last.strftime(form)} UTC"


def worst_first(shards: Iterable[ShardFacts]) -> list[ShardFacts]:
    """The shards in the order of dropped user records, then misplaced ones, then all user records; most
    first."""
    return sorted(shards, key=lambda s: (-s.dropped, -s.misplaced, -s.user_records))


def shards_in_order(report: Report) -> list[ShardFacts]:
    """All shards: in the order of the shard map if they are few, else the worst first."""
    few = len(report.shards) <= _SHARDS and "shards" not in report.omitted
    return list(report.shards) if few else worst_first(report.shards)


def summary_text(report: Report) -> str:
    """The summary as text without colours, ending in a newline."""
    return render(*summary(report))


def summary(report: Report) -> list[RenderableType]:
    """The summary, as parts for `kpl_codec.rendering.terminal.show`."""
    heading = report.about.title + (f": {report.about.stream_name}" if report.about.stream_name else "")
    where = ", ".join(filter(None, (report.about.source, span_text(report))))
    style = "green" if report.clean else _STYLES[report.worst or "info"]
    parts: list[RenderableType] = [line((heading, "bold"))]
    parts += [line((where, "dim"))] if where else []
    parts += [line((report.about.read.sentence(), "dim"))] if report.about.read else []
    parts += [line(""), line((outcome(report)[1], style)), line("")]
    for count in counts(report):
        label = f"{'  ' if 'part' in count.how else ''}{count.label}".ljust(20)
        value = f"{count.value:>16,}  "
        parts.append(line(label, value, (count.note, "dim"), hang=len(label + value)))
    if report.causes:
        parts += [line(""), line(("Causes of misplaced aggregates", "bold"))]
    for cause, aggregates, user_records, _ in report.causes:
        extent = f"{plural(user_records, 'user record')} in {plural(aggregates, 'aggregate')}"
        parts.append(line(f"  {extent}: {CAUSES.get(cause, cause)}"))
    if report.shards:
        parts += [line(""), *_shards(report)]
    if report.kinds:
        title = line(("Findings, worst first", "bold"), "; one user record may be in several")
        parts += [line(""), title, *_findings(report)]
    return parts


def _findings(report: Report) -> Iterator[RenderableType]:
    kind_of_todo: dict[str, str] = {}
    for count in report.kinds:
        kind = count.kind
        mark = (f"  {kind.severity.upper():<8} ", _STYLES[kind.severity])
        yield line(mark, (kind.name, "bold"), f": {kind.title}")
        about = f", {plural(count.user_records, 'user record')}" if count.user_records else ""
        place = next((finding.place for finding in report.findings if finding.kind == kind.name), "")
        texts = [plural(count.findings, "finding") + about + (f"; e.g. {place}" if place else "")]
        if kind.severity != "info":
            texts += [kind.meaning, f"Who is affected: {kind.concerns}"]
            if kind_of_todo.setdefault(kind.todo, kind.name) == kind.name:
                texts.append(f"What to do: {kind.todo}")
            else:
                texts.append(f"What to do: as for {kind_of_todo[kind.todo]}.")
        for text in texts:
            yield line(" " * _INDENT, text)


def _shards(report: Report) -> Iterator[RenderableType]:
    head = "Shards"
    if report.skew is not None:
        head += f"; the busiest open shard holds {report.skew:.2f} times the average"
    yield line((head, "bold"))
    shards = shards_in_order(report)[:_SHARDS]
    heads = ["shard", "state", "user records", "data", "misplaced", "KCL loses"]
    rows = []
    for shard in shards:
        name = shard.shard_id if len(shard.shard_id) <= 30 else shard.shard_id[:29] + "…"
        counts = number(shard.user_records), size(shard.bytes), number(shard.misplaced), number(shard.dropped)
        rows.append([name, shard.state, *counts])
    yield table(heads, rows, (2, 3, 4, 5), indent=2)
    omitted = len(report.shards) - len(shards) + report.omitted.get("shards", 0)
    if omitted:
        yield line(f"  and {plural(omitted, 'more shard')}, with less on them")


def _fact(name: str, value: Any) -> Any:
    """``value`` for JSON: times and hash keys become texts."""
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if name in ("start", "end") and value is not None else value


def report_facts(report: Report) -> dict[str, Any]:
    """The members of summary.json: the whole summary without single findings, which are in findings/."""
    about = report.about
    return {
        "summaryVersion": VERSION,
        "kplCodecVersion": about.version,
        "title": about.title,
        "streamName": about.stream_name,
        "source": about.source,
        "generated": about.generated.isoformat(),
        "complete": True,
        "clean": report.clean,
        "worst": report.worst,
        **dict(zip(("headline", "verdict"), outcome(report), strict=True)),
        "read": camel_keys(about.read._asdict()) if about.read is not None else None,
        "rows": dict(about.rows) if about.rows is not None else None,
        "distribution": report.distribution,
        "firstArrival": _fact("", report.first_arrival),
        "lastArrival": _fact("", report.last_arrival),
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
        "shards": [
            camel_keys({name: _fact(name, value) for name, value in asdict(shard).items()})
            for shard in report.shards
        ],
        "omitted": dict(report.omitted),
    }
