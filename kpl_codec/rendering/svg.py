"""Makes SVG elements, which escape their texts. The report's charts consist of them.

element("rect", {"x": 1.5, "class": "shard"}, element("title", {}, shard_id))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from html import escape
from math import ceil

from .labels import safe


class Svg(str):
    """Text that is SVG already. Made by `element` and `join`, never of data.

    Has ``__html__``, so that templates with autoescape insert it as it is.
    """

    __slots__ = ()

    def __html__(self) -> str:
        return self


Child = Svg | str | None | Iterable["Child"]


def _children(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, Svg):
            yield child
        elif isinstance(child, str):
            yield escape(safe(child))
        elif child is not None:
            yield from _children(child)


def join(*children: Child) -> Svg:
    """Children one after the other. Other text is escaped, None is left out."""
    return Svg("".join(_children(children)))


def element(name: str, attributes: Mapping[str, object], *children: Child) -> Svg:
    """One element. Attributes that are None are left out, numbers are written with two decimals at most."""
    opening = name
    for key, value in attributes.items():
        if isinstance(value, float):
            value = f"{value:.2f}".rstrip("0").rstrip(".")
        if value is not None:
            opening += f' {key}="{escape(safe(value))}"'
    inner = join(*children)
    return Svg(f"<{opening}>{inner}</{name}>" if inner else f"<{opening}/>")


def rect(x: float, y: float, width: float, height: float, css: str | None, tip: str | None = None) -> Svg:
    """A box. ``css``: its class; ``tip``: its tooltip."""
    where = {"x": float(x), "y": float(y), "width": float(max(width, 0)), "height": float(max(height, 0))}
    return element("rect", {**where, "class": css}, element("title", {}, tip) if tip is not None else None)


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> Svg:
    return element("line", {"x1": float(x1), "y1": float(y1), "x2": float(x2), "y2": float(y2), "class": css})


def label(x: float, y: float, value: str, anchor: str = "start", css: str | None = "axis") -> Svg:
    """A text. ``anchor``: start, middle or end of it is at ``x``."""
    return element("text", {"x": float(x), "y": float(y), "text-anchor": anchor, "class": css}, value)


_STEPS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
)  # fmt: skip


def time_ticks(first: datetime, last: datetime) -> list[tuple[datetime, str]]:
    """About six round times from ``first`` to ``last``, and how to write each. All are in UTC."""
    count = 6
    span = max((last - first).total_seconds(), 1)
    step = next((s for s in _STEPS if span / s <= count), 604800 * ceil(span / 604800 / count))
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 43200 else "%m-%d"
    at = ceil(first.timestamp() / step) * step
    ticks: list[tuple[datetime, str]] = []
    while at <= last.timestamp() and len(ticks) < 2 * count:
        time = datetime.fromtimestamp(at, timezone.utc)
        ticks.append((time, time.strftime(form)))
        at += step
    return ticks
