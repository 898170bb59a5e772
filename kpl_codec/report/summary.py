"""The summary for a terminal: what was read, what is wrong with it, and what to do first.

Plain text of at most 100 columns; with ``color`` the severities and headings carry ANSI colours. Nothing
is said by colour alone.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator

from ..shards.misplacement_causes import CAUSES
from .kinds import Severity
from .model import NO_SHARD, CauseCount, KclLoss, Report, ShardFacts

WIDTH = 100
_ANSI = {
    "critical": "1;31",
    "error": "31",
    "warning": "33",
    "info": "36",
    "bold": "1",
    "good": "32",
    "dim": "2",
}
_MARKS: dict[Severity, str] = {"critical": "CRITICAL", "error": "ERROR", "warning": "WARNING", "info": "info"}
#: Shards shown; the rest is told as a number.
_SHARDS = 24
#: What the KCL's reasons for dropping user records mean.
REASONS = {
    "out-of-range": "a user record of the aggregate belongs to another shard: all of it is dropped",
    "index-out-of-table": "a user record without a key: it and all after it are dropped",
    "hash-key": "an explicit hash key that is no number: it and all after it are dropped",
    "no-user-records": "an aggregate of nothing",
}


def safe(text: object) -> str:
    """Text from outside (file names, shard ids) without control characters: those can rewrite a
    terminal."""
    return re.sub(
        r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", "\ufffd", str(text)
    )


def number(value: int) -> str:
    """With thousands apart."""
    return f"{value:,}"


def size(value: float) -> str:
    """Bytes for people: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    raise AssertionError


def percent(part: float, whole: float) -> str:
    """A share for people; never 0 % or 100 % of what is neither."""
    if not whole:
        return "0 %"
    share = 100 * part / whole
    if 0 < share < 0.1:
        return "< 0.1 %"
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.1f} %" if share % 1 else f"{share:.0f} %"


def plural(count: int, one: str, many: str | None = None) -> str:
    """``3 user records``."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def verdict(report: Report) -> str:
    """The one sentence that a person in a hurry reads."""
    lost = report.totals.lost_at_kcl
    if not report.totals.kinesis_records:
        return "Not one Kinesis record was read, so nothing is known about the stream."
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
    if report.distribution is None:
        return "Every record can be read. Placement was not checked: there is no shard map."
    return "Clean: every record can be read, lies where it belongs, and reaches a KCL consumer."


def totals_table(report: Report) -> list[tuple[str, str, str]]:
    """The counts that matter: label, value, explanation."""
    totals = report.totals
    user = totals.user_records
    rows = [
        ("Kinesis records", number(totals.kinesis_records), _per_second(report)),
        ("  plain", number(totals.plain_records), ""),
        ("  aggregated", number(totals.aggregated_records), _per_aggregate(report)),
    ]
    if totals.broken_frames:
        rows.append(("  broken frames", number(totals.broken_frames), "cannot be opened, or have no data"))
    rows.append(("User records", number(user), size(totals.bytes) + " of data"))
    unread = sum(count.findings for count in report.kinds if count.kind.name.startswith("capture"))
    if unread:
        rows.append(("Not read", number(unread), "files, lines and records; what is in them is not counted"))
    if report.distribution is not None:
        rows.append(
            (
                "  misplaced",
                number(totals.misplaced),
                f"{percent(totals.misplaced, user)}; outside their shard's range",
            )
        )
        rows.append(
            (
                "Mixed aggregates",
                number(totals.mixed_aggregates),
                "user records of this shard and of others in one",
            )
        )
        if totals.foreign_aggregates:
            rows.append(
                (
                    "Foreign aggregates",
                    number(totals.foreign_aggregates),
                    "no user record of this shard in them",
                )
            )
    if totals.kcl:
        lost = totals.lost_at_kcl
        rows.append(("Lost at the KCL", number(lost), f"{percent(lost, user)} of the user records"))
        if totals.kcl.get("raw"):
            rows.append(
                (
                    "Unopened by the KCL",
                    number(totals.kcl["raw"]),
                    "it hands the whole frame on as one record",
                )
            )
        if totals.kcl.get("altered"):
            rows.append(("Altered by the KCL", number(totals.kcl["altered"]), "delivered under another key"))
    return rows


def _per_second(report: Report) -> str:
    if report.first_arrival is None or report.last_arrival is None:
        return ""
    seconds = (report.last_arrival - report.first_arrival).total_seconds()
    return f"{report.totals.kinesis_records / seconds:,.1f} a second" if seconds >= 1 else ""


def span_text(report: Report) -> str | None:
    """From the first arrival to the last, None where no time is known."""
    if report.first_arrival is None or report.last_arrival is None:
        return None
    first, last = report.first_arrival, report.last_arrival
    form = "%H:%M:%S" if first.date() == last.date() else "%Y-%m-%d %H:%M:%S"
    return f"{first:%Y-%m-%d %H:%M:%S} to {last.strftime(form)} UTC"


def _per_aggregate(report: Report) -> str:
    totals = report.totals
    opened = totals.user_records - totals.plain_records - totals.broken_frames
    return f"{opened / totals.aggregated_records:,.1f} user records each" if totals.aggregated_records else ""


def summary_text(report: Report, color: bool = False) -> str:
    """The summary, ending in a newline. ``color`` adds ANSI escapes (for a terminal only)."""

    def paint(text: str, style: str) -> str:
        return f"\x1b[{_ANSI[style]}m{text}\x1b[0m" if color else text

    def lines() -> Iterator[str]:
        heading = report.title + (f": {report.stream_name}" if report.stream_name else "")
        yield paint(safe(heading), "bold")
        where = ", ".join(filter(None, (report.source, span_text(report))))
        if where:
            yield paint(safe(where), "dim")
        if not report.complete:
            yield "Not complete: this is what has been seen so far."
        yield ""
        style = "good" if report.clean else report.worst or "good"
        for line in textwrap.wrap(verdict(report), WIDTH):
            yield paint(line, style)
        yield ""
        for label, value, note in totals_table(report):
            yield f"{label:<20} {value:>15}  {paint(note, 'dim') if note else ''}".rstrip()
        if report.kcl_losses:
            yield ""
            yield paint("What a KCL consumer would not get", "bold")
            for loss in report.kcl_losses:
                yield from _loss(loss, REASONS.get(loss.reason, loss.reason))
            if report.causes:
                yield paint("Where aggregates of other shards come from", "bold")
            for count in report.causes:
                yield from _loss(count, CAUSES.get(count.cause, count.cause))
        if report.shards:
            yield ""
            yield from _shards(report, paint)
        if report.kinds:
            yield ""
            yield paint("Findings, worst first", "bold")
            yield from _findings(report, paint)

    return "\n".join(lines()) + "\n"


def _loss(count: KclLoss | CauseCount, why: str) -> list[str]:
    lost = f"{plural(count.user_records, 'user record')} in {plural(count.aggregates, 'aggregate')}"
    return textwrap.wrap(f"{lost}: {safe(why)}", WIDTH, initial_indent="  ", subsequent_indent="    ")


def _findings(report: Report, paint: Callable[[str, str], str]) -> Iterator[str]:
    told: dict[str, str] = {}
    for count in report.kinds:
        kind = count.kind
        mark = paint(f"{_MARKS[kind.severity]:<8}", kind.severity)
        yield f"  {mark} {paint(safe(kind.name), 'bold')}: {safe(kind.title)}"
        about = f", {plural(count.user_records, 'user record')}" if count.user_records else ""
        texts = [plural(count.findings, "finding") + about + _evidence(report, kind.name)]
        if kind.severity != "info":
            texts = [texts[0], kind.meaning]
            if told.setdefault(kind.todo, kind.name) == kind.name:
                texts.append(f"What to do: {kind.todo}")
            else:
                texts.append(f"What to do: as for {told[kind.todo]}.")
        for text in texts:
            yield from textwrap.wrap(text, WIDTH, initial_indent=" " * 11, subsequent_indent=" " * 11)


def _evidence(report: Report, kind: str) -> str:
    """Where the first finding of a kind is."""
    finding = next((finding for finding in report.findings if finding.kind == kind), None)
    if finding is None:
        return ""
    parts = []
    if finding.file:
        at = (
            f" line {finding.line}" if finding.line else f" at {finding.position}" if finding.position else ""
        )
        parts.append(finding.file + at)
    parts += [finding.shard_id] if finding.shard_id else []
    if finding.sequence_number:
        sub = (
            f"/{finding.sub_sequence_number}"
            if finding.sub_sequence_number is not None and finding.sub_sequence_number >= 0
            else ""
        )
        parts.append(finding.sequence_number + sub)
    parts += [f"byte {finding.offset}"] if finding.offset is not None else []
    parts += [finding.detail] if finding.detail else []
    return f"; e.g. {safe(', '.join(parts))}" if parts else ""


def _shards(report: Report, paint: Callable[[str, str], str]) -> Iterator[str]:
    """One line a shard, with a bar of its user records: skew at a glance."""
    skew = f"; the fullest open shard has {report.skew:.2f} times the mean" if report.skew is not None else ""
    yield paint("Shards" + skew, "bold")
    most = max((shard.user_records for shard in report.shards), default=0)
    shown = sorted(report.shards, key=lambda s: (-s.dropped, -s.user_records))[:_SHARDS]
    wide = max(len(safe(shard.shard_id)) for shard in shown)
    wide = min(max(wide, len(NO_SHARD)), 30)
    heads = f"{'state':<7} {'user records':>14} {'bytes':>11} {'misplaced':>10} {'KCL loses':>10}"
    yield f"  {'':<{wide}}  {heads}"
    chosen = {id(shard) for shard in shown}
    for shard in (shard for shard in report.shards if id(shard) in chosen):
        bar = "#" * round(16 * shard.user_records / most) if most else ""
        yield (
            f"  {safe(shard.shard_id)[:wide]:<{wide}}  {state(shard):<7} {number(shard.user_records):>14} "
            f"{size(shard.bytes):>11} {number(shard.misplaced):>10} {number(shard.dropped):>10}  {bar}"
        ).rstrip()
    left = len(report.shards) - len(shown) + report.omitted.get("shards", 0)
    if left:
        yield f"  and {plural(left, 'more shard')}, with less on them"


def state(shard: ShardFacts) -> str:
    """open, closed, or unknown to the shard map."""
    return "unknown" if shard.open is None else "open" if shard.open else "closed"
