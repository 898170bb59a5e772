"""The summary of a report's facts: its sentences and counts, which the page shows too, and the text for
terminals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ...findings import DAMAGE_KINDS, HIDDEN_AGGREGATE_KINDS, Finding, is_unread_input, kind_of
from ...rendering.labels import number, percent, plural, size
from ...rendering.terminal import line, render, table
from ...shards.placement import CAUSES

if TYPE_CHECKING:
    from rich.console import RenderableType

    from .schema import Facts, ReadFacts, ShardFacts

_HEADLINES = {"critical": "Misplaced aggregates", "error": "Broken records", "warning": "Needs a look"}
_STYLES = {"critical": "bold red", "error": "red", "warning": "yellow", "info": "cyan"}
#: How many shards are shown; the others are only counted.
_SHARDS = 24
_INDENT = 11
#: Where a sentence ends and the next begins.
_SENTENCES = re.compile(r"(?<=\.) (?=[A-Z])")
_PLACES = ("file, line or item", "files, lines or items")


class Count(NamedTuple):
    """One count of the summary. ``how``: "part": a part of the count before it; "bad": marked on the page if
    above 0; "rare": not shown if it is 0."""

    label: str
    value: int
    note: str = ""
    how: str = ""


def outcome(facts: Facts) -> tuple[str, str]:
    """The headline of the report, and the sentences below it. They account for all user records that
    were read: those that the KCL drops, those of which this is not known, and inputs that could not be
    read."""
    headline, first = _kcl_outcome(facts)
    if headline == "Records may be lost" and any(_unread(facts)):
        headline = "Records may be lost, some cannot be read"
    return headline, " ".join([first, *_not_known(facts)])


def _kcl_outcome(facts: Facts) -> tuple[str, str]:
    """The headline, and what a KCL consumer gets of the user records that were read."""
    totals, dropped = facts["totals"], facts["totals"]["lostAtKcl"]
    read = plural(totals["userRecords"], "user record")
    if not totals["kinesisRecords"]:
        return "Nothing was read", "No Kinesis record was read, so nothing is known about the stream."
    if dropped:
        part = f"{number(totals['userRecords'])} ({percent(dropped, totals['userRecords'])})"
        text = f"A KCL consumer drops {plural(dropped, 'user record')} of {part}, without a log line."
        # A producer that notices a reshard sends them again, so they may be on the stream twice, and
        # delivered once.
        overtaken = sum(count["dropped"] for count in facts["causes"] if count["cause"] == "reshard")
        if overtaken:
            some = "All of them were" if overtaken == dropped else plural(overtaken, "was", "were")
            text += f" {some} in flight during a split or merge; the producer may have retried them."
        return "Records are lost" if dropped > overtaken else "Records may be lost", text
    clean = "Clean" if facts["distribution"] else "Readable"
    headline = clean if facts["clean"] else _HEADLINES[facts["worst"] or "warning"]
    if facts["worst"] == "error" and all(
        is_unread_input(kind["name"]) for kind in facts["kinds"] if kind["severity"] == "error"
    ):
        headline = "Not everything was read"
    if facts["distribution"] is None:
        return headline, f"{read} read. Placement was not checked: there is no shard map."
    if totals["kcl"].get("unknown", 0) or any(_unread(facts)):
        # User records of a frame that the KCL delivers unopened reach no consumer as user records.
        checked = totals["userRecords"] - totals["kcl"].get("unknown", 0) - totals["kcl"].get("raw", 0)
        text = f"A KCL consumer drops none of the {plural(checked, 'user record')} that could be checked."
        return headline, text if checked else "No user record could be checked."
    if not facts["clean"]:
        text = f"Every user record ({number(totals['userRecords'])}) can be read and reaches a KCL consumer"
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


def _unread(facts: Facts) -> _Unread:
    counts = [(kind["name"], kind["findings"]) for kind in facts["kinds"]]
    places = sum(findings for name, findings in counts if is_unread_input(name))
    broken = facts["totals"]["brokenFrames"]
    # Each broken frame is a finding of one of these kinds, too.
    damaged = sum(findings for name, findings in counts if name in DAMAGE_KINDS)
    hidden = sum(findings for name, findings in counts if name in HIDDEN_AGGREGATE_KINDS)
    return _Unread(places, broken, max(damaged - broken, 0), hidden)


def _not_known(facts: Facts) -> Iterator[str]:
    unknown = facts["totals"]["kcl"].get("unknown", 0)
    if unknown and facts["distribution"] is not None:
        expired = sum(kind["userRecords"] for kind in facts["kinds"] if kind["name"] == "unknown-shard")
        why = "the shard map does not have their shards" if expired == unknown else "the findings say why"
        yield f"Whether a KCL consumer drops {plural(unknown, 'user record')} is not known: {why}."
    places, broken, damaged, hidden = _unread(facts)
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


def counts(facts: Facts) -> list[Count]:
    totals = facts["totals"]
    user = totals["userRecords"]
    unread = _unread(facts).places
    mean = (user - totals["plainRecords"] - totals["brokenFrames"]) / (totals["aggregatedRecords"] or 1)
    each = f"{mean:,.1f} user records each" if totals["aggregatedRecords"] else ""
    broken = "cannot be opened; each counts as one user record"
    rows = [
        Count("Kinesis records", totals["kinesisRecords"], _per_second(facts)),
        Count("plain", totals["plainRecords"], "", "part"),
        Count("aggregated", totals["aggregatedRecords"], each, "part"),
        Count("broken frames", totals["brokenFrames"], broken, "part bad rare"),
        Count("Not read", unread, f"{_PLACES[unread != 1]} of the input; not counted", "bad rare"),
        Count("User records", user, size(totals["bytes"]) + " of data"),
    ]
    if facts["distribution"] is not None:
        outside = f"{percent(totals['misplaced'], user)}; outside their shard's range"
        mixed = "user records of this shard and of others in one"
        foreign = "user records of other shards only"
        rows += [
            Count("misplaced", totals["misplaced"], outside, "part bad"),
            Count("Mixed aggregates", totals["mixedAggregates"], mixed, "bad"),
            Count("Foreign aggregates", totals["foreignAggregates"], foreign, "bad rare"),
        ]
    if kcl := totals["kcl"]:
        loss = percent(totals["lostAtKcl"], user)
        if totals["lostAtKcl"] and totals["misplaced"]:
            loss += "; one misplaced user record loses its whole aggregate"
        delivered = kcl.get("delivered", 0)
        rows += [
            Count("Delivered by the KCL", delivered, percent(delivered, user)),
            Count("Lost at the KCL", totals["lostAtKcl"], loss, "bad"),
            Count("Unopened by the KCL", kcl.get("raw", 0), "it hands the frame on as one record", "rare"),
            Count("Altered by the KCL", kcl.get("altered", 0), "delivered under another key", "rare"),
            Count("Not known", totals["kcl"].get("unknown", 0), "whether the KCL drops them", "rare"),
        ]
    return [row for row in rows if row.value or "rare" not in row.how]


def _span(facts: Facts) -> tuple[datetime, datetime] | None:
    """The times of the first and last arrival."""
    first, last = facts["firstArrival"], facts["lastArrival"]
    return (
        None
        if first is None or last is None
        else (datetime.fromisoformat(first), datetime.fromisoformat(last))
    )


def _per_second(facts: Facts) -> str:
    if (span := _span(facts)) is None:
        return ""
    seconds = (span[1] - span[0]).total_seconds() + 1  # both are whole seconds
    # A few seconds do not show the rate.
    rate = facts["totals"]["kinesisRecords"] / seconds if seconds >= 10 else 0
    return f"{rate:,.{0 if rate >= 10 else 1}f} a second" if rate >= 0.1 else ""


def span_text(facts: Facts) -> str | None:
    """The times of the first and last arrival, as text; None if no time is known."""
    if (span := _span(facts)) is None:
        return None
    first, last = span
    form = "%H:%M:%S" if first.date() == last.date() else "%Y-%m-%d %H:%M:%S"
    return f"{first:%Y-%m-%d %H:%M:%S} to {last.strftime(form)} UTC"


def read_text(read: ReadFacts | None) -> str | None:
    """What was read, in a sentence; None where no account was kept."""
    from ...captures.account import AccountFacts

    # (Its members are in the order of these fields, under these names but in camel case.)
    return None if read is None else AccountFacts(*read.values()).sentence()  # type: ignore[arg-type]


def worst_first(shards: Iterable[ShardFacts]) -> list[ShardFacts]:
    """The shards in the order of dropped user records, then misplaced ones, then all user records; most
    first."""
    return sorted(shards, key=lambda s: (-s["dropped"], -s["misplaced"], -s["userRecords"]))


def summary_text(facts: Facts, findings: Sequence[Finding] = ()) -> str:
    """The summary as text without colours, ending in a newline."""
    return render(*summary(facts, findings))


def summary(facts: Facts, findings: Sequence[Finding] = ()) -> list[RenderableType]:
    """The summary, as parts for `kpl_codec.rendering.terminal.show`. ``findings``: examples."""
    heading = facts["title"] + (f": {facts['streamName']}" if facts["streamName"] else "")
    where = ", ".join(filter(None, (facts["source"], span_text(facts))))
    style = "green" if facts["clean"] else _STYLES[facts["worst"] or "info"]
    parts: list[RenderableType] = [line((heading, "bold"))]
    parts += [line((where, "dim"))] if where else []
    parts += [line((read, "dim"))] if (read := read_text(facts["read"])) else []
    parts += [line(""), line((facts["verdict"], style)), line("")]
    for count in counts(facts):
        label = f"{'  ' if 'part' in count.how else ''}{count.label}".ljust(20)
        value = f"{count.value:>16,}  "
        parts.append(line(label, value, (count.note, "dim"), hang=len(label + value)))
    if facts["causes"]:
        parts += [line(""), line(("Causes of misplaced aggregates", "bold"))]
    for cause in facts["causes"]:
        user_records = plural(cause["userRecords"], "user record")
        extent = f"{user_records} in {plural(cause['aggregates'], 'aggregate')}"
        parts.append(line(f"  {extent}: {CAUSES.get(cause['cause'], cause['cause'])}"))
    if facts["shards"]:
        parts += [line(""), *_shards(facts)]
    if facts["kinds"]:
        title = line(("Findings, worst first", "bold"), "; one user record may be in several")
        parts += [line(""), title, *_findings(facts, findings)]
    return parts


def _findings(facts: Facts, findings: Sequence[Finding]) -> Iterator[RenderableType]:
    said: dict[str, str] = {}  # the first finding with a text
    for count in facts["kinds"]:
        kind = kind_of(count["name"])
        mark = (f"  {kind.severity.upper():<8} ", _STYLES[kind.severity])
        yield line(mark, (kind.name, "bold"), f": {kind.title}")
        about = f", {plural(count['userRecords'], 'user record')}" if count["userRecords"] else ""
        place = next((finding.place for finding in findings if finding.kind == kind.name), "")
        texts = [plural(count["findings"], "finding") + about + (f"; e.g. {place}" if place else "")]
        if kind.severity != "info":
            texts.append(kind.meaning)
            for head, text in (("Who is affected", kind.concerns), ("What to do", kind.todo)):
                first, parts = said.setdefault(text, kind.name), steps(text)
                if first != kind.name:
                    texts.append(f"{head}: as for {first}.")
                elif head == "Who is affected" or len(parts) == 1:
                    texts.append(f"{head}: {text}")
                else:
                    texts += [f"{head}:", *(f"{number}. {step}" for number, step in enumerate(parts, 1))]
        for text in texts:
            yield line(" " * _INDENT, text)


def steps(todo: str) -> list[str]:
    """What to do, step by step: the sentences of a finding's ``todo``."""
    found: list[str] = []
    for sentence in _SENTENCES.split(todo):
        if found and found[-1].count("(") > found[-1].count(")"):  # it goes on within brackets
            found[-1] += f" {sentence}"
        else:
            found.append(sentence)
    return found


def _shards(facts: Facts) -> Iterator[RenderableType]:
    head = "Shards"
    if facts["skew"] is not None:
        head += f"; the busiest open shard holds {facts['skew']:.2f} times the average"
    yield line((head, "bold"))
    shards = worst_first(facts["shards"])[:_SHARDS]
    heads = ["shard", "state", "user records", "data", "misplaced", "KCL loses"]
    rows = []
    for shard in shards:
        name = shard["shardId"] if len(shard["shardId"]) <= 30 else shard["shardId"][:29] + "…"
        counted = map(number, (shard["misplaced"], shard["dropped"]))
        held = [number(shard["userRecords"]), size(shard["bytes"])]
        rows.append([name, shard["state"], *held, *counted])
    yield table(heads, rows, (2, 3, 4, 5), indent=2)
    omitted = len(facts["shards"]) - len(shards) + facts["omitted"].get("shards", 0)
    if omitted:
        yield line(f"  and {plural(omitted, 'more shard')}, with less on them")
