"""Words and numbers for both the terminal's summary and the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..pictures.labels import number, percent, plural, size
from .model import Report, ShardFacts

#: What the KCL's reasons for dropping user records mean.
REASONS = {
    "out-of-range": "a user record of the aggregate belongs to another shard: all of it is dropped",
    "index-out-of-table": "a user record without a key: it and all after it are dropped",
    "hash-key": "an explicit hash key that is no number: it and all after it are dropped",
    "no-user-records": "an aggregate of nothing",
}
_HEADLINES = {"critical": "Misplaced aggregates", "error": "Broken records", "warning": "Needs a look"}


#: Counts that are shown where they are 0, too.
_ALWAYS = (
    "Kinesis records",
    "plain",
    "aggregated",
    "User records",
    "misplaced",
    "Mixed aggregates",
    "Lost at the KCL",
)


class Count(NamedTuple):
    """One count of the summary. ``part``: of the count before it. ``bad``: above 0 it is bad news."""

    label: str
    value: int
    note: str = ""
    part: bool = False
    bad: bool = False


def outcome(report: Report) -> tuple[str, str]:
    """What the report comes to: in two or three words, and in a sentence or two."""
    totals, lost = report.totals, report.totals.lost_at_kcl
    read = f"{number(totals.user_records)} user records were read"
    sample = report.about.sample
    if report.audit:
        missing, early = (sum(getattr(at, name) for at in report.audit) for name in ("missing", "too_early"))
        known = "Not all is known" if report.kinds else "Everything was handled"
        said = f"{plural(missing, 'user record')} put and never handled; too early to say of"
        return "User records are missing" if missing else known, f"{said} {plural(early, 'user record')}."
    if not totals.kinesis_records:
        said = "Not one Kinesis record was read, so nothing is known about the stream."
        return "Nothing was read", said
    if sample is not None and sample.estimated_loss is not None:
        said = f"A KCL consumer drops {sample.estimated_loss} user records, without a log line."
        of = f"This is an estimate: {read}, of which it drops {number(lost)}."
        return "Records are lost", f"{said} {of}"
    if sample is not None and report.clean:
        share = percent(round(sample.share * 10_000), 10_000)
        said = f"Nothing was found in what was read: {share} of each shard's time, {read}."
        return "Nothing was found", said
    if lost:
        part = f"{number(totals.user_records)} ({percent(lost, totals.user_records)})"
        said = f"A KCL consumer drops {plural(lost, 'user record')} of {part}, without a log line."
        if caught := report.caught_by_reshard:
            some = "All of them" if caught == lost else f"{number(caught)} of them"
            said += f" {some} were overtaken by a reshard: their producer may have sent them again."
        return "Records are lost" if lost > caught else "Records may be lost", said
    serious = sum(count.findings for count in report.kinds if count.kind.severity in ("critical", "error"))
    unknown = sum(count.user_records for count in report.kinds if count.kind.name == "unknown-shard")
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
    """The important counts, most of them only if above 0."""
    totals = report.totals
    user = totals.user_records
    unread = sum(count.findings for count in report.kinds if count.kind.name.startswith("capture"))
    opened = user - totals.plain_records - totals.broken_frames
    each = f"{opened / totals.aggregated_records:,.1f} user records each" if totals.aggregated_records else ""
    rows = [
        Count("Kinesis records", totals.kinesis_records, _per_second(report)),
        Count("plain", totals.plain_records, part=True),
        Count("aggregated", totals.aggregated_records, each, part=True),
        Count("broken frames", totals.broken_frames, "cannot be opened, or have no data", True, True),
        Count("User records", user, size(totals.bytes) + " of data"),
        Count("Not read", unread, "files, lines and records; what is in them is not counted", bad=True),
    ]
    if report.distribution is not None:
        outside = f"{percent(totals.misplaced, user)}; outside their shard's range"
        mixed, foreign = (
            "user records of this shard and of others in one",
            "no user record of this shard in them",
        )
        rows += [
            Count("misplaced", totals.misplaced, outside, True, True),
            Count("Mixed aggregates", totals.mixed_aggregates, mixed, bad=True),
            Count("Foreign aggregates", totals.foreign_aggregates, foreign, bad=True),
        ]
    if totals.kcl:
        lost = f"{percent(totals.lost_at_kcl, user)} of the user records"
        rows += [
            Count("Lost at the KCL", totals.lost_at_kcl, lost, bad=True),
            Count("Repaired", totals.kcl.get("repaired", 0), "dropped by the KCL, and put again"),
            Count("Unopened by the KCL", totals.kcl.get("raw", 0), "it hands the frame on as one record"),
            Count("Altered by the KCL", totals.kcl.get("altered", 0), "delivered under another key"),
        ]
    return [row for row in rows if row.value or row.label in _ALWAYS]


def _per_second(report: Report) -> str:
    if report.rate.first_arrival is None or report.rate.last_arrival is None:
        return ""
    seconds = (report.rate.last_arrival - report.rate.first_arrival).total_seconds()
    # What is read of a sample says nothing of the rate.
    rate = report.totals.kinesis_records / seconds if seconds >= 1 and report.about.sample is None else 0
    return f"{rate:,.1f} a second" if rate >= 0.1 else ""


def span_text(report: Report) -> str | None:
    """From the first arrival to the last, None where no time is known."""
    if report.rate.first_arrival is None or report.rate.last_arrival is None:
        return None
    first, last = report.rate.first_arrival, report.rate.last_arrival
    form = "%H:%M:%S" if first.date() == last.date() else "%Y-%m-%d %H:%M:%S"
    return f"{first:%Y-%m-%d %H:%M:%S} to {last.strftime(form)} UTC"


def worst_first(shards: Iterable[ShardFacts]) -> list[ShardFacts]:
    """Those of which the KCL loses most, then those with most misplaced, then those with most on them."""
    return sorted(shards, key=lambda s: (-s.dropped, -s.misplaced, -s.user_records))


def state(shard: ShardFacts) -> str:
    return "unknown" if shard.open is None else "open" if shard.open else "closed"
