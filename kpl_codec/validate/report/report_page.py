"""The report as one HTML file that loads nothing else: ``templates/``, by Jinja2 with autoescape.

Style and script are inside the file and allowed by their hashes. A content security policy forbids everything
else, so nothing in the data can load or run anything. Without scripts only filters and sorting are missing.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from ...findings import SEVERITIES, Finding
from ...rendering.labels import number, percent, plural, safe, size
from ...rendering.svg import Svg
from ...shards.placement import CAUSES
from . import charts, summary
from .model import Report

if TYPE_CHECKING:
    from jinja2 import Environment

#: Id (and template), name in the navigation, title. A section without content is left out.
SECTIONS = (
    ("audit", "Audit", "What was handled, by shard and by the time it was put"),
    ("counts", "Counts", "What was read"),
    ("kcl", "KCL", "What a KCL consumer would lose"),
    ("map", "Shard map", "The shard map over time"),
    ("findings", "Findings", "Findings and what to do"),
    ("rate", "Rate", "User records a second"),
    ("landed", "Landing", "Where records landed"),
    ("shards", "Shards", "Shards and skew"),
    ("method", "About", "About this report"),
)


#: What words mean, by the text on the page that they explain: those that are not on it are left out.
_GLOSSARY = (
    (
        "Kinesis record",
        "kinesis record",
        "what GetRecords returns: one plain record, or one aggregated record",
    ),
    ("User record", "user record", "what an application put; an aggregated record holds many"),
    ("Aggregate", "aggregate", "an aggregated record in the format of the KPL"),
)
_OF_CHECK = (
    (
        "Hash key",
        "hash key",
        "the explicit hash key if there is one, else the MD5 of the partition key; it decides the shard",
    ),
    ("Misplaced", "misplaced", "a user record on a shard whose range does not hold its hash key"),
    ("Mixed aggregate", "mixed aggregate", "one with user records inside and outside its shard's range"),
    (
        "Times of shards",
        "shard map over time",
        "hints read from sequence numbers, widened to what arrived; the service does not promise them",
    ),
    (
        "Examples",
        " shown)</summary>",
        "where there are more findings than fit, those shown are an even sample",
    ),
)
_OF_AUDIT = (
    ("Delivered", "delivered", "the service has stored it, as a producer's ledger says"),
    ("Handled", "handled", "a consumer says that it is done with it"),
    ("Aside", "aside", "the consumer failed on it, and its poison hook took it"),
    ("Missing", "missing", "never handled, though later ones of its shard were, or it was due"),
    ("Unknown", "unknown", "perhaps handled: what could say so is lost or cannot be read"),
    ("Too early", "too early", "the consumer may still come to it"),
    _OF_CHECK[-1],
)  # fmt: skip


#: The columns of the findings' tables: heading, class, and the field of `Finding` in it.
COLUMNS = (
    ("Shard", "id", "shard_id"),
    ("Sequence number", "", "sequence_number"),
    ("Captured in", "file", "file"),
    ("What", "wide", "detail"),
    ("Belongs to", "id", "expected_shard_id"),
    ("Aggregates", "number", "aggregates"),
    ("User records", "number", "user_records"),
    ("Cause", "id", "cause"),
    ("At byte", "number", "offset"),
    ("User record", "number", "record_index"),
    ("KCL", "", "kcl"),
    ("KCL loses", "number", "dropped"),
    ("Arrived (UTC)", "", "approximate_arrival_timestamp"),
    ("Rule", "tight", "requirement"),
)


def columns_of(findings: Sequence[Finding]) -> list[tuple[str, str, str]]:
    """The columns in which some finding has a value. User records that the KCL drops stand in one column."""
    lost = all(finding.user_records == finding.dropped for finding in findings)
    return [
        column
        for column in COLUMNS
        if any(getattr(finding, column[2]) not in (None, 0) for finding in findings)
        and not (lost and column[2] == "user_records")
    ]


@lru_cache
def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _harmless(value: object) -> object:
    """Called for every value in a template: "" for None, else the text without characters that reverse a
    line."""
    return "" if value is None else value if hasattr(value, "__html__") else safe(value)


@lru_cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        finalize=_harmless,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, size=size)
    environment.globals.update(
        percent=percent,
        plural=plural,
        charts=charts,
        columns_of=columns_of,
        summary=summary,
        severities=SEVERITIES,
        causes=CAUSES,
        # Only our own texts, which are not escaped and are allowed by their hashes.
        style=Svg(_asset("page.css")),
        script=Svg(_asset("page.js")),
    )
    return environment


def render_page(report: Report) -> str:
    """The whole page as text (UTF-8 when written). Needs Jinja2."""
    environment = _environment()
    glossary = (*_GLOSSARY, *(_OF_CHECK if report.about.audit_outcome is None else _OF_AUDIT))
    rendered, there = [], ""
    for name, short, title in SECTIONS:
        words = [(word, meaning) for word, sign, meaning in glossary if sign in there]
        text = environment.get_template(f"{name}.html").render(report=report, words=words).strip()
        if text:
            # What a template has rendered is escaped already.
            rendered.append((name, short, title, Svg(text)))
            there += f"{title}{text}".lower()
    policy = (
        f"default-src 'none'; style-src {_hash(_asset('page.css'))}; script-src {_hash(_asset('page.js'))}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return environment.get_template("page.html").render(
        report=report,
        policy=Svg(policy),
        name=report.about.title + (f": {report.about.stream_name}" if report.about.stream_name else ""),
        sections=rendered,
    )
