"""The parts of the page, one function each; a part that has nothing to show is None."""

from __future__ import annotations

from ..shards.misplacement_causes import CAUSES
from . import charts
from .evidence import findings_section
from .markup import Child, Markup, join, tag
from .model import Report, ShardFacts
from .summary import REASONS, number, percent, plural, size, state, totals_table


def sections_of(report: Report) -> list[tuple[str, str, str, Markup | None]]:
    """Id, short name for the navigation, title, content (None: nothing to show)."""
    return [
        ("counts", "Counts", "What was read", _counts(report)),
        ("kcl", "KCL", "What a KCL consumer would lose", _kcl(report)),
        ("map", "Shard map", "The shard map over time", _map(report)),
        ("findings", "Findings", "Findings and what to do", findings_section(report)),
        ("rate", "Rate", "Rate", _rate(report)),
        ("landed", "Landing", "Where records landed", _landed(report)),
        ("shards", "Shards", "Shards and skew", _shards(report)),
        ("method", "About", "About this report", _method(report)),
    ]


def _counts(report: Report) -> Markup:
    def tile(label: str, value: str, note: str) -> Markup:
        bad = value != "0" and label.strip() in (
            "Lost at the KCL",
            "Mixed aggregates",
            "broken frames",
            "misplaced",
            "Not read",
        )
        return tag(
            "div",
            {"class": "tile bad" if bad else "tile"},
            tag("dt", {}, label.strip().capitalize() if label.startswith(" ") else label),
            tag("dd", {}, tag("b", {}, value), tag("small", {}, note) if note else None),
        )

    return tag("dl", {"class": "tiles"}, [tile(*row) for row in totals_table(report)])


# -- tables ----------------------------------------------------------------------------------------


def table(caption: str, columns: list[tuple[str, str]], rows: list[list[Child]], css: str = "") -> Markup:
    """A table that becomes a list of cards on a narrow screen. ``columns``: name and class; the first
    column names the row."""
    return tag(
        "div",
        {"class": "scroll"},
        tag(
            "table",
            {"class": f"cards {css}".strip()},
            tag("caption", {}, caption),
            tag(
                "thead",
                {},
                tag("tr", {}, [tag("th", {"scope": "col", "class": kind}, name) for name, kind in columns]),
            ),
            tag(
                "tbody",
                {},
                [
                    tag(
                        "tr",
                        {},
                        [
                            tag(
                                "td" if index else "th",
                                {"class": kind, "data-label": name, "scope": None if index else "row"},
                                value,
                            )
                            for index, ((name, kind), value) in enumerate(zip(columns, row, strict=True))
                        ],
                    )
                    for row in rows
                ],
            ),
        ),
    )


def _paragraph(*children: Child) -> Markup:
    return tag("p", {}, *children)


def _kcl(report: Report) -> Markup | None:
    totals = report.totals
    if not totals.kcl:
        return None
    words = (
        ("delivered", "delivered as they are", "fill"),
        ("dropped", "lost: on the stream, never delivered, no log line", "lost"),
        ("altered", "delivered under another key than the bytes say", "altered"),
        ("raw", "not opened: the frame is handed on as one record", "raw"),
    )
    whole = sum(totals.kcl.values())
    drawn: list[Child] = []
    at = 0.0
    for name, _, css in words:
        wide = 960 * totals.kcl.get(name, 0) / whole
        if totals.kcl.get(name):
            drawn.append(charts.rect(at, 0, max(wide, 2), 34, css, tag("title", {}, name)))
        at += wide
    said = "; ".join(f"{percent(totals.kcl[n], whole)} {n}" for n, _, _ in words if totals.kcl.get(n))
    losses: list[list[Child]] = [
        [
            REASONS.get(loss.reason, loss.reason),
            tag("code", {}, loss.reason),
            number(loss.aggregates),
            number(loss.user_records),
        ]
        for loss in report.kcl_losses
    ]
    causes: list[list[Child]] = [
        [
            CAUSES.get(count.cause, count.cause),
            tag("code", {}, count.cause),
            number(count.aggregates),
            number(count.user_records),
        ]
        for count in report.causes
    ]
    return join(
        _paragraph(
            "The Kinesis Client Library compares every user record of an aggregate with the hash key range "
            "of the shard it reads. If one is outside, it drops the whole aggregate and says nothing."
        ),
        tag(
            "div",
            {"class": "split"},
            charts.picture(34, f"User records at a KCL consumer: {said}", drawn, fit="none"),
        ),
        tag(
            "ul",
            {"class": "legend"},
            [
                tag(
                    "li",
                    {},
                    _swatch(css),
                    tag("b", {}, f"{number(totals.kcl[name])} {name}"),
                    f" ({percent(totals.kcl[name], whole)}), {text}",
                )
                for name, text, css in words
                if totals.kcl.get(name)
            ],
        ),
        table(
            "Why it drops them",
            [("Reason", "wide"), ("Name", "id"), ("Aggregates", "number"), ("User records", "number")],
            losses,
        )
        if losses
        else _paragraph("It drops nothing."),
        table(
            "Where the aggregates come from that hold user records of other shards",
            [("Cause", "wide"), ("Name", "id"), ("Aggregates", "number"), ("User records", "number")],
            causes,
        )
        if causes
        else None,
    )


def _swatch(css: str) -> Markup:
    return tag(
        "svg",
        {"class": "swatch", "viewBox": "0 0 16 16", "aria-hidden": "true"},
        charts.rect(0.5, 0.5, 15, 15, css),
    )


def _chart(drawn: Markup, label: str) -> Markup:
    return tag("div", {"class": "chart", "tabindex": "0", "role": "region", "aria-label": label}, drawn)


def _map(report: Report) -> Markup | None:
    drawn = charts.shard_map(report)
    if drawn is None:
        return None
    return join(
        _paragraph(
            "Hash keys run from top to bottom, time from left to right. A box is a shard while it was open: "
            "a split ends one box and begins two. The stronger a cell, the more user records arrived."
        ),
        _chart(drawn, "The shard map over time"),
        _scale_legend(),
        _left_out(report, "shards", "shard"),
    )


def _scale_legend() -> Markup:
    return tag(
        "ul",
        {"class": "legend"},
        tag("li", {}, [_swatch(f"q{level}") for level in (1, 3, 5, 8)], "few to many user records"),
        tag("li", {}, _swatch("lost"), "share that the KCL loses"),
    )


def _rate(report: Report) -> Markup | None:
    drawn = charts.rate(report)
    if drawn is None:
        return None
    return join(
        _chart(drawn, "User records a second over time"),
        tag(
            "ul",
            {"class": "legend"},
            tag("li", {}, _swatch("fill"), "user records a second"),
            tag("li", {}, _swatch("lost"), "of them lost at the KCL"),
        ),
    )


def _landed(report: Report) -> Markup | None:
    drawn = charts.key_space(report)
    if drawn is None and not report.landings:
        return None
    whole = sum(report.totals.verdicts.values())
    rows: list[list[Child]] = [
        [
            pair.shard_id or "(no shard)",
            pair.expected_shard_id or "not known",
            tag("code", {}, pair.verdict),
            number(pair.user_records),
            join(
                charts.bar(pair.user_records, whole, pair.user_records if pair.verdict == "stray" else 0),
                percent(pair.user_records, whole),
            ),
        ]
        for pair in report.landings
    ]
    return join(
        join(
            _paragraph(
                "User records by hash key, in 256 equal parts of the hash key space. A part that stands out "
                "alone is a hot key."
            ),
            _chart(drawn, "User records over the hash key space"),
            tag(
                "ul",
                {"class": "legend"},
                tag("li", {}, _swatch("fill"), "user records"),
                tag("li", {}, _swatch("lost"), "of them misplaced"),
            ),
        )
        if drawn is not None
        else None,
        tag(
            "details",
            {"open": len(rows) <= 12},
            tag(
                "summary",
                {},
                f"Which shard they lie on and which they belong to now ({plural(len(rows), 'pair')})",
            ),
            table(
                "User records by shard, expected shard and verdict; misplaced ones first",
                [
                    ("Lies on", "id"),
                    ("Belongs to", "id"),
                    ("Verdict", "id"),
                    ("User records", "number"),
                    ("Share", "share"),
                ],
                rows,
            ),
            _left_out(report, "landings", "pair"),
        )
        if rows
        else None,
    )


def _range_text(shard: ShardFacts) -> Child:
    if shard.start is None or shard.end is None:
        return "not known"
    first, last = f"{shard.start:032x}", f"{shard.end:032x}"
    return tag("code", {"title": f"{shard.start} to {shard.end}"}, f"{first[:8]}… to {last[:8]}…")


def _shards(report: Report) -> Markup | None:
    if not report.shards:
        return None
    most = max(shard.user_records for shard in report.shards)
    rows: list[list[Child]] = []
    for shard in report.shards:
        parents = f", out of {', '.join(shard.parents)}" if shard.parents else ""
        rows.append(
            [
                shard.shard_id,
                state(shard) + parents,
                _range_text(shard),
                percent(shard.key_space, 1) if shard.key_space is not None else None,
                join(charts.bar(shard.user_records, most, shard.dropped), number(shard.user_records)),
                size(shard.bytes),
                number(shard.misplaced),
                number(shard.dropped),
                percent(shard.share, 1) if shard.share is not None else None,
            ]
        )
    opened = sum(1 for shard in report.shards if shard.open)
    said = None
    if report.skew is not None:
        said = _paragraph(
            f"Of {plural(opened, 'open shard')} the fullest has ",
            tag("b", {}, f"{report.skew:.2f} times"),
            " the mean of the user records whose hash keys belong to it now (1.00 is even).",
        )
    return join(
        said,
        table(
            "Every shard: what lies on it, and what would go there now",
            [
                ("Shard", "id"),
                ("State", ""),
                ("Hash keys", "id"),
                ("Key space", "number"),
                ("User records", "share"),
                ("Data", "number"),
                ("Misplaced", "number"),
                ("KCL loses", "number"),
                ("Share now", "number"),
            ],
            rows,
            "shards",
        ),
        _left_out(report, "shards", "shard"),
    )


def _left_out(report: Report, name: str, one: str) -> Markup | None:
    left = report.omitted.get(name, 0)
    if not left:
        return None
    return tag("p", {"class": "omitted"}, f"{plural(left, 'more ' + one)} left out, to keep this page small.")


def _method(report: Report) -> Markup:
    words = (
        ("Kinesis record", "what GetRecords returns: one plain record, or one aggregated record."),
        ("User record", "what an application put; an aggregated record holds many."),
        ("Aggregate", "an aggregated record in the format of the KPL."),
        (
            "Hash key",
            "the explicit hash key if there is one, else the MD5 of the partition key; it decides the shard.",
        ),
        ("Misplaced", "a user record on a shard whose range does not hold its hash key."),
        ("Mixed aggregate", "one with user records inside and outside its shard's range."),
        (
            "Times of shards",
            "hints read from sequence numbers, widened to what arrived; not a promise of the service.",
        ),
        (
            "Examples",
            "where there are more findings than fit, those shown are drawn evenly from all of them.",
        ),
    )
    inputs = None
    if report.inputs:
        more = report.omitted.get("inputs", 0)
        inputs = tag(
            "details",
            {},
            tag("summary", {}, f"Inputs ({number(len(report.inputs) + more)})"),
            tag("ul", {"class": "inputs"}, [tag("li", {}, tag("code", {}, name)) for name in report.inputs]),
            _left_out(report, "inputs", "input"),
        )
    return join(
        tag("dl", {"class": "words"}, [(tag("dt", {}, word), tag("dd", {}, text)) for word, text in words]),
        _paragraph(f"Record distribution of the stream: {report.distribution}.")
        if report.distribution
        else _paragraph("There was no shard map, so nothing is said about placement."),
        inputs,
    )
