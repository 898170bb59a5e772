"""The report as one HTML file: no network, nothing but itself.

Style and script stand inside the file and are allowed by their hashes; a content security policy forbids
everything else, so that nothing in the data can load or run anything. Without a script the page shows
all it has, only the filters are missing.
"""

from __future__ import annotations

import os
from base64 import b64encode
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from . import charts
from .markup import Markup, join, tag
from .model import Report
from .sections import sections_of
from .summary import span_text, verdict

_TITLES = {"critical": "Misplaced aggregates", "error": "Broken records", "warning": "Needs a look"}


@lru_cache
def _asset(name: str) -> Markup:
    return Markup(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def render_page(report: Report) -> str:
    """The whole page as text (UTF-8 when written)."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    name = report.title + (f": {report.stream_name}" if report.stream_name else "")
    sections = [section for section in sections_of(report) if section[3] is not None]
    head = tag(
        "head",
        {},
        tag("meta", {"charset": "utf-8"}),
        tag("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        tag("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        tag("meta", {"name": "color-scheme", "content": "light dark"}),
        tag("meta", {"name": "generator", "content": f"kpl_codec {report.version}"}),
        tag("title", {}, name),
        tag("link", {"rel": "icon", "href": "data:,"}),
        tag("style", {}, style),
    )
    body = tag(
        "body",
        {},
        tag("a", {"class": "skip", "href": "#main"}, "Skip to the report"),
        charts.patterns(),
        _header(report),
        tag(
            "nav",
            {"aria-label": "Parts of the report"},
            tag(
                "ul",
                {},
                [tag("li", {}, tag("a", {"href": f"#{key}"}, title)) for key, title, _, _ in sections],
            ),
        ),
        tag(
            "main",
            {"id": "main"},
            [
                tag(
                    "section",
                    {"id": key, "aria-labelledby": f"{key}-title"},
                    tag("h2", {"id": f"{key}-title"}, title),
                    content,
                )
                for key, _, title, content in sections
            ],
        ),
        tag(
            "footer",
            {},
            tag("p", {}, f"Made by kpl_codec {report.version}. This file holds no record data and no keys."),
        ),
        tag("script", {}, script),
    )
    return "<!DOCTYPE html>\n" + tag("html", {"lang": "en"}, head, body) + "\n"


def write_page(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write the page to ``path``, whole or not at all (a reader never sees half of it). Raises OSError."""
    target = Path(path)
    part = target.with_name(f".{target.name}.part")
    part.write_text(render_page(report), encoding="utf-8")
    part.replace(target)
    return target


def stamp(time: datetime | None) -> Markup | None:
    """A time for people and machines."""
    if time is None:
        return None
    shown = f"{time:%Y-%m-%d %H:%M:%S}" + (
        " UTC" if time.utcoffset() is not None and not time.utcoffset() else ""
    )
    return tag("time", {"datetime": time.isoformat()}, shown)


def _header(report: Report) -> Markup:
    worst = "clean" if report.clean else report.worst or "clean"
    if not report.totals.kinesis_records:
        title = "Nothing was read"
    else:
        lost = report.totals.lost_at_kcl
        if lost > report.caught_by_reshard:
            title = "Records are lost"
        elif lost:
            title = "Records may be lost"
        else:
            title = _TITLES.get(worst, "Clean" if report.distribution else "Readable")
    return tag(
        "header",
        {},
        tag("p", {"class": "kicker"}, report.title),
        tag("h1", {}, report.stream_name or report.source or "Captured records"),
        tag(
            "p",
            {"class": "facts"},
            join(
                tag("span", {}, report.source) if report.source and report.stream_name else None,
                tag("span", {}, "made ", stamp(report.generated)),
                tag("span", {}, f"records from {span_text(report)}") if report.first_arrival else None,
            ),
        ),
        None
        if report.complete
        else tag("p", {"class": "partial"}, "Not complete: the job is still running or ended early."),
        tag(
            "div",
            {"class": f"verdict {worst}"},
            tag("strong", {}, title),
            tag("p", {}, verdict(report)),
        ),
    )
