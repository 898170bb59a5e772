"""The findings on the page: every kind with what it means and what to do, and its findings with their
evidence, to be filtered by severity, kind, shard and text."""

from __future__ import annotations

from collections.abc import Callable

from ..shards.misplacement_causes import CAUSES
from .kinds import SEVERITIES
from .markup import Child, Markup, join, tag
from .model import Finding, KindCount, Report
from .summary import number, plural

_SEVERITY_NAMES = {"critical": "Critical", "error": "Error", "warning": "Warning", "info": "Info"}


def _captured(finding: Finding) -> Child:
    if finding.file is None:
        return None
    at = (
        f", line {finding.line}"
        if finding.line is not None
        else f", at {number(finding.position)}"
        if finding.position is not None
        else ""
    )
    return join(tag("code", {}, finding.file), at)


def _sequence(finding: Finding) -> Child:
    if finding.sequence_number is None:
        return None
    sub = finding.sub_sequence_number
    return join(
        tag("code", {"class": "sequence"}, finding.sequence_number),
        tag("span", {"class": "sub"}, f" / {sub}") if sub is not None and sub >= 0 else None,
    )


def _count(name: str) -> Callable[[Finding], Child]:
    def shown(finding: Finding) -> Child:
        value = getattr(finding, name)
        return number(value) if value is not None else None

    return shown


def _plain(name: str) -> Callable[[Finding], Child]:
    def shown(finding: Finding) -> Child:
        value: str | None = getattr(finding, name)
        return value

    return shown


def _cause(finding: Finding) -> Child:
    return tag("span", {"title": CAUSES.get(finding.cause)}, finding.cause) if finding.cause else None


def _arrived(finding: Finding) -> Child:
    time = finding.approximate_arrival_timestamp
    return tag("time", {"datetime": time.isoformat()}, f"{time:%Y-%m-%d %H:%M:%S}") if time else None


#: Name, class of the cells, and what is in them. A column that says nothing for a whole kind is left out.
_COLUMNS: tuple[tuple[str, str, Callable[[Finding], Child]], ...] = (
    ("Shard", "id", _plain("shard_id")),
    ("Sequence number", "", _sequence),
    ("Captured in", "file", _captured),
    ("What", "wide", _plain("detail")),
    ("Belongs to", "id", _plain("expected_shard_id")),
    ("Aggregates", "number", _count("aggregates")),
    ("User records", "number", _count("user_records")),
    ("Cause", "id", _cause),
    ("At byte", "number", _count("offset")),
    ("User record", "number", _count("record_index")),
    ("KCL", "", _plain("kcl")),
    ("KCL loses", "number", _count("dropped")),
    ("Arrived (UTC)", "", _arrived),
    ("Rule", "id", _plain("requirement")),
)


def badge(severity: str) -> Markup:
    """The severity as a word; its colour and shape only repeat it."""
    return tag("span", {"class": f"badge {severity}"}, _SEVERITY_NAMES[severity])


def findings_section(report: Report) -> Markup:
    """Filters, a line that says how many are shown, and one part for each kind."""
    if not report.kinds:
        return tag("p", {"class": "none"}, "There are no findings.")
    of_kind: dict[str, list[Finding]] = {}
    for finding in report.findings:
        of_kind.setdefault(finding.kind, []).append(finding)
    left = report.omitted.get("findings", 0)
    found = plural(sum(count.findings for count in report.kinds), "finding")
    shown = number(len(report.findings))
    more = (
        f" {shown} are on this page, {number(left)} more in the findings that the job wrote."
        if left
        else None
    )
    return join(
        tag("p", {}, f"{found} of {plural(len(report.kinds), 'kind')}, worst first.", more),
        _filters(report),
        [_kind(count, of_kind.get(count.kind.name, [])) for count in report.kinds],
        tag("p", {"id": "no-match", "class": "none", "hidden": True}, "No finding matches these filters."),
    )


def _filters(report: Report) -> Markup:
    """Hidden until the script runs: without it they would do nothing."""
    there = {count.kind.severity for count in report.kinds}
    shards = sorted({finding.shard_id for finding in report.findings if finding.shard_id})

    def choice(name: str, title: str, values: list[tuple[str, str]]) -> Markup:
        return tag(
            "label",
            {},
            tag("span", {}, title),
            tag(
                "select",
                {"id": f"filter-{name}"},
                tag("option", {"value": ""}, "all"),
                [tag("option", {"value": value}, shown) for value, shown in values],
            ),
        )

    return tag(
        "form",
        {"id": "filters", "hidden": True, "role": "search", "aria-label": "Filter the findings"},
        tag(
            "fieldset",
            {},
            tag("legend", {}, "Severity"),
            [
                tag(
                    "label",
                    {"class": "check"},
                    tag(
                        "input",
                        {"type": "checkbox", "name": "severity", "value": severity, "checked": True},
                    ),
                    badge(severity),
                )
                for severity in SEVERITIES
                if severity in there
            ],
        ),
        choice("kind", "Kind", [(count.kind.name, count.kind.name) for count in report.kinds]),
        choice("shard", "Shard", [(shard, shard) for shard in shards]) if shards else None,
        tag(
            "label",
            {"class": "grow"},
            tag("span", {}, "Text"),
            tag(
                "input",
                {"type": "search", "id": "filter-text", "placeholder": "file, sequence number, cause…",
                 "autocomplete": "off", "spellcheck": "false"},
            ),
        ),
        tag("button", {"type": "reset", "id": "filter-reset"}, "Clear"),
        tag("p", {"id": "shown", "role": "status", "aria-live": "polite"}),
    )  # fmt: skip


def _kind(count: KindCount, findings: list[Finding]) -> Markup:
    kind = count.kind
    about = f", {plural(count.user_records, 'user record')}" if count.user_records else ""
    shown = f" ({number(len(findings))} shown)" if len(findings) < count.findings else ""
    columns = [
        (name, css, value)
        for name, css, value in _COLUMNS
        if any(value(finding) not in (None, "0") for finding in findings)
    ]
    table = tag(
        "div",
        {"class": "scroll"},
        tag(
            "table",
            {"class": "cards evidence"},
            tag("caption", {"class": "hidden"}, f"Findings: {kind.title}"),
            tag(
                "thead",
                {},
                tag("tr", {}, [tag("th", {"scope": "col", "class": css}, n) for n, css, _ in columns]),
            ),
            tag("tbody", {}, [_row(finding, columns) for finding in findings]),
        ),
    )
    return tag(
        "article",
        {
            "class": f"kind {kind.severity}",
            "data-kind": kind.name,
            "data-severity": kind.severity,
            "aria-labelledby": f"kind-{kind.name}",
        },
        tag(
            "h3",
            {"id": f"kind-{kind.name}"},
            badge(kind.severity),
            " ",
            kind.title,
            " ",
            tag("code", {"class": "kind-name"}, kind.name),
        ),
        tag("p", {"class": "meaning"}, _with_code(kind.meaning)),
        tag("p", {"class": "todo"}, tag("b", {}, "What to do: "), _with_code(kind.todo)),
        tag(
            "details",
            {"open": kind.severity == "critical" and len(findings) <= 5},
            tag("summary", {}, f"{plural(count.findings, 'finding')}{about}{shown}"),
            table,
        )
        if findings
        else tag("p", {}, plural(count.findings, "finding") + about),
    )


def _with_code(sentence: str) -> Markup:
    """Our own sentences: what stands between backticks is code."""
    return join(
        tag("code", {}, part) if index % 2 else part for index, part in enumerate(sentence.split("`"))
    )


def _row(finding: Finding, columns: list[tuple[str, str, Callable[[Finding], Child]]]) -> Markup:
    cells = []
    for name, css, value in columns:
        shown = value(finding)
        cells.append(
            tag("td", {"class": css or None, "data-label": name if shown is not None else None}, shown)
        )
    return tag("tr", {"data-shard": finding.shard_id}, cells)
