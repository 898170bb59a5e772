"""What a project can publish of its result: a badge, to stand beside the JSON of `--json`."""

from __future__ import annotations

from html import escape

from .judging import LOSSES
from .running import Result

_GREEN, _YELLOW, _RED = "#3c8527", "#a8730a", "#b3261e"
_LABEL = "KPL vectors"
#: Width of a character, and the room around a text, in pixels.
_CHARACTER, _ROOM = 7, 12


def badge(result: Result) -> str:
    """An SVG image: how many vectors pass, of how many that were asked.

    Green: all. Yellow: no user record was lost or delivered wrong. Red: some were.
    """
    colour = _GREEN if result.conforms else _RED if LOSSES & result.grades.keys() else _YELLOW
    said = f"{result.grades['pass']} of {len(result.judgements)}"
    left, right = (len(text) * _CHARACTER + _ROOM for text in (_LABEL, said))
    title = escape(f"{result.name} {result.version}: {said} {_LABEL} pass")
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">
<title>{title}</title>
<rect width="{left}" height="20" fill="#444"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle">
<text x="{left / 2}" y="14">{_LABEL}</text><text x="{left + right / 2}" y="14">{said}</text>
</g>
</svg>
"""
