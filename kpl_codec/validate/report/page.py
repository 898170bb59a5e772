"""The report as one HTML file that loads and runs nothing: the template ``page.html`` over the facts, by
Jinja2 with autoescape. The style is inside the file, and allowed by its hash; a content security policy
forbids everything else, so nothing in the data can load or run anything."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from ...findings import Finding, kind_of
from ...rendering.labels import number, percent, plural, safe, size
from ...rendering.svg import Svg
from ...shards.placement import CAUSES
from .shard_chart import shard_chart
from .summary import Count, counts, read_text, span_text, steps, worst_first

if TYPE_CHECKING:
    from jinja2 import Environment

    from .schema import Facts, ShardFacts

#: What a KCL consumer does with user records: name, class of the colour, meaning.
KCL_OUTCOMES = (
    ("delivered", "fill", "as they are"),
    ("dropped", "lost", "lost to KCL consumers: they are on the stream, but the KCL drops them"),
    ("altered", "altered", "delivered under another key than their own"),
    ("raw", "raw", "not opened: the aggregate is handed on as one record"),
    ("unknown", "track", "whether the KCL drops them cannot be said"),
)
#: The columns of the findings' tables: heading and the member of `Finding` in it; numbers come last.
_TEXTS = (
    ("Shard", "shard_id"),
    ("Sequence number", "sequence_number"),
    ("Captured in", "captured_in"),
    ("What", "detail"),
    ("Belongs to", "expected_shard_id"),
    ("Cause", "cause"),
    ("KCL", "kcl"),
    ("Arrived (UTC)", "approximate_arrival_timestamp"),
    ("Rule", "requirement"),
)
_NUMBERS = (
    ("At byte", "offset"),
    ("User record", "record_index"),
    ("Aggregates", "aggregates"),
    ("User records", "user_records"),
    ("KCL loses", "dropped"),
)
_OF_CAUSES = ("Cause", "Name in findings", "Aggregates", "User records")


class Sheet(NamedTuple):
    """A table: its caption, the heads of its columns, and its rows. The first ``texts`` columns are text, the
    others stand at the right."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    texts: int = 1


def evidence(findings: Sequence[Finding]) -> Sheet:
    """The table of findings of one kind: the columns in which one of them has a value. User records that the
    KCL drops stand in one column."""
    lost = all(finding.user_records == finding.dropped for finding in findings)

    def shown(columns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        used = [(head, field) for head, field in columns if any(getattr(one, field) for one in findings)]
        return [(head, field) for head, field in used if not (lost and field == "user_records")]

    texts, numbers = shown(_TEXTS), shown(_NUMBERS)
    columns = texts + numbers
    rows = [[_cell(finding, field) for _, field in columns] for finding in findings]
    return Sheet("", [head for head, _ in columns], rows, len(texts))


def _cell(finding: Finding, field: str) -> object:
    value = getattr(finding, field)
    if field == "sequence_number" and (finding.sub_sequence_number or -1) >= 0:
        return f"{value} / {finding.sub_sequence_number}"
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else value


@lru_cache
def _style() -> str:
    return files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def _harmless(value: object) -> object:
    """Called for every value in a template: "" for None, else the text without characters that reverse a
    line."""
    return "" if value is None else value if hasattr(value, "__html__") else safe(value)


@lru_cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, ""),
        autoescape=True,
        finalize=_harmless,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, size=size)
    environment.globals.update(
        percent=percent, plural=plural, evidence=evidence, steps=steps, kind_of=kind_of
    )
    return environment


def render_page(
    facts: Mapping[str, Any],
    findings: Sequence[Finding],
    *,
    tiles: Sequence[Count],
    span: str | None = None,
    chart: Svg | None = None,
    causes: Sheet | None = None,
    shards: Sheet | None = None,
) -> str:
    """The page as text (UTF-8 when written). ``facts``: as `Facts`; an audit has those of the title, the
    verdict and the kinds of findings only. ``findings``: examples of each kind. Needs Jinja2."""
    hashed = b64encode(sha256(_style().encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{hashed}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return _environment().get_template("page.html").render(
        facts=facts,
        findings=findings,
        tiles=tiles,
        span=span,
        chart=chart,
        causes=causes,
        shards=shards,
        kcl=[(name, css, text, facts["totals"]["kcl"][name]) for name, css, text in KCL_OUTCOMES
             if facts["totals"]["kcl"].get(name)] if "totals" in facts else [],
        read=read_text(facts["read"]),
        policy=Svg(policy),
        # Our own text: escaped, its hash would be another, and the browser would drop it without a word.
        style=Svg(_style()),
    )  # fmt: skip


def report_page(facts: Facts, findings: Sequence[Finding]) -> str:
    """The page of a validation."""
    shards = worst_first(facts["shards"])
    heads = ("Shard", "State", "KCL loses", "Misplaced", "User records", "Data", "Share now", "Key space")
    rows = [
        (
            shard["shardId"],
            shard["state"] + (f", child of {' and '.join(shard['parents'])}" if shard["parents"] else ""),
            shard["dropped"],
            shard["misplaced"],
            shard["userRecords"],
            size(shard["bytes"]),
            percent(shard["share"], 1) if shard["share"] is not None else None,
            percent(int(shard["end"]) - int(shard["start"]) + 1, 2**128)
            if shard["start"] and shard["end"]
            else None,
            _range(shard),
        )
        for shard in shards
    ]
    sheet = Sheet(
        "What each shard holds, worst first, and what would go there now", (*heads, "Hash keys"), rows, 2
    )
    causes = [
        (CAUSES.get(one["cause"], one["cause"]), one["cause"], one["aggregates"], one["userRecords"])
        for one in facts["causes"]
    ]
    return render_page(
        facts,
        findings,
        tiles=counts(facts),
        span=span_text(facts),
        chart=shard_chart(facts),
        causes=Sheet("Causes of misplaced aggregates", _OF_CAUSES, causes, 2) if causes else None,
        shards=sheet if rows else None,
    )


def _range(shard: ShardFacts) -> str:
    if shard["start"] is None or shard["end"] is None:
        return "not known"
    return " to ".join(f"{int(key):032x}"[:8] + "…" for key in (shard["start"], shard["end"]))
