"""Words and numbers for both the terminal's summary and the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..pictures.labels import number, percent, plural, size
from .model import Report, Sample, ShardFacts

#: What the KCL's reasons for dropping user records mean.
REASONS = {
    "out-of-range": "a user record of the aggregate belongs to another shard: all of it is dropped",
    "index-out-of-table": "a user record without a key: it and all after it are dropped",
    "hash-key": "an explicit hash key that is no number: it and all after it are dropped",
    "no-user-records": "an aggregate of nothing",
}
_HEADLINES = {"critical": "Misplaced aggregates", "error": "Broken records", "warning": "Needs a look"}


class Count(NamedTuple):
    """One count of the summary. ``part``: of the count before it. ``bad``: above 0 it is bad news."""

    label: str
    value: int
    note: str = ""
    part: bool = False
    bad: bool = False


def headline(report: Report) -> str:
    """The outcome in two or three words."""
    lost = report.totals.lost_at_kcl
    if report.audit:
        if any(cell.missing for cell in report.audit):
            return "User records are missing"
        return "Not all is known" if report.kinds else "Everything was handled"
    if not report.totals.kinesis_records:
        return "Nothing was read"
    if lost:
        return "Records are lost" if lost > report.caught_by_reshard else "Records may be lost"
    if report.clean and report.about.sample is not None:
        return "Nothing was found"
    if report.clean:
        return "Clean" if report.distribution else "Readable"
    return _HEADLINES[report.worst or "warning"]


def verdict(report: Report) -> str:
    """The result in one sentence."""
    lost = report.totals.lost_at_kcl
    if report.audit:
        missing = sum(cell.missing for cell in report.audit)
        early = sum(cell.too_early for cell in report.audit)
        return (
            f"{plural(missing, 'user record')} put and never handled; "
            f"too early to say of {plural(early, 'user record')}."
        )
    if not report.totals.kinesis_records:
        return "Not one Kinesis record was read, so nothing is known about the stream."
    if report.about.sample is not None and (report.about.sample.estimated_loss or report.clean):
        return _of_a_sample(report, report.about.sample)
    if lost:
        dropped = (
            f"A KCL consumer drops {plural(lost, 'user record')} of {number(report.totals.user_records)} "
            f"({percent(lost, report.totals.user_records)}), without a log line."
        )
        caught = report.caught_by_reshard
        if not caught:
            return dropped
        of = "All of them" if caught == lost else f"{number(caught)} of them"
        return f"{dropped} {of} were overtaken by a reshard: their producer may have sent them again."
    serious = [count for count in report.kinds if count.kind.severity in ("critical", "error")]
    if serious:
        found = sum(count.findings for count in serious)
        return (
            f"{plural(found, 'thing')} cannot be read as written. "
            "A KCL consumer drops none of the user records that could be."
        )
    unknown = sum(count.user_records for count in report.kinds if count.kind.name == "unknown-shard")
    if unknown:
        return (
            f"Every record can be read. Whether a KCL consumer drops {plural(unknown, 'user record')} is not "
            "known: the map does not have their shards."
        )
    if not report.clean:
        return "Every record can be read and reaches a KCL consumer; some things need a look."
    repaired = report.totals.kcl.get("repaired", 0)
    if repaired:
        return (
            f"Every user record reaches a KCL consumer: {plural(repaired, 'user record')} that it drops were "
            "put again by a repair."
        )
    if report.distribution is None:
        return "Every record can be read. Placement was not checked: there is no shard map."
    return "Clean: every record can be read, lies where it belongs, and reaches a KCL consumer."


def _of_a_sample(report: Report, sample: Sample) -> str:
    read = f"{number(report.totals.user_records)} user records were read"
    if sample.estimated_loss is not None:
        return (
            f"A KCL consumer drops {sample.estimated_loss} user records, without a log line. This is an "
            f"estimate: {read}, of which it drops {number(report.totals.lost_at_kcl)}."
        )
    share = percent(round(sample.share * 10_000), 10_000)
    return f"Nothing was found in what was read: {share} of each shard's time, {read}."


def counts(report: Report) -> list[Count]:
    """The important counts, most of them only if above 0."""
    totals = report.totals
    user = totals.user_records
    unread = sum(count.findings for count in report.kinds if count.kind.name.startswith("capture"))
    rows = [
        Count("Kinesis records", totals.kinesis_records, _per_second(report)),
        Count("plain", totals.plain_records, part=True),
        Count("aggregated", totals.aggregated_records, _per_aggregate(report), part=True),
        Count("broken frames", totals.broken_frames, "cannot be opened, or have no data", True, True),
        Count("User records", user, size(totals.bytes) + " of data"),
        Count("Not read", unread, "files, lines and records; what is in them is not counted", bad=True),
    ]
    if report.distribution is not None:
        outside = f"{percent(totals.misplaced, user)}; outside their shard's range"
        rows += [
            Count("misplaced", totals.misplaced, outside, True, True),
            Count(
                "Mixed aggregates",
                totals.mixed_aggregates,
                "user records of this shard and of others in one",
                bad=True,
            ),
            Count(
                "Foreign aggregates",
                totals.foreign_aggregates,
                "no user record of this shard in them",
                bad=True,
            ),
        ]
    if totals.kcl:
        lost = totals.lost_at_kcl
        raw, altered = totals.kcl.get("raw", 0), totals.kcl.get("altered", 0)
        rows += [
            Count("Lost at the KCL", lost, f"{percent(lost, user)} of the user records", bad=True),
            Count("Repaired", totals.kcl.get("repaired", 0), "dropped by the KCL, and put again"),
            Count("Unopened by the KCL", raw, "it hands the whole frame on as one record"),
            Count("Altered by the KCL", altered, "delivered under another key"),
        ]
    always = ("Kinesis records", "plain", "aggregated", "User records", "misplaced", "Mixed aggregates")
    return [row for row in rows if row.value or row.label in (*always, "Lost at the KCL")]


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


def _per_aggregate(report: Report) -> str:
    totals = report.totals
    opened = totals.user_records - totals.plain_records - totals.broken_frames
    return f"{opened / totals.aggregated_records:,.1f} user records each" if totals.aggregated_records else ""


def worst_first(shards: Iterable[ShardFacts]) -> list[ShardFacts]:
    """Those of which the KCL loses most, then those with most misplaced, then those with most on them."""
    return sorted(shards, key=lambda s: (-s.dropped, -s.misplaced, -s.user_records))


def state(shard: ShardFacts) -> str:
    """open, closed, or unknown to the shard map."""
    return "unknown" if shard.open is None else "open" if shard.open else "closed"
