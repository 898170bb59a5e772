"""HTML and SVG that are escaped by construction: a text is a text until it is called `Markup`.

tag("td", {"class": "number", "title": shard_id}, shard_id, tag("b", {}, "!"))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from .summary import safe

_VOID = frozenset({"meta", "link", "br", "hr", "input", "wbr"})


class Markup(str):
    """Text that is HTML already. Made by `tag` and `join`, or of our own constants; never of data."""

    __slots__ = ()


Child = Markup | str | int | None | Iterable["Child"]


def text(value: object) -> Markup:
    """Any value as text: escaped, and without characters that could turn a line around or end it."""
    return value if isinstance(value, Markup) else Markup(escape(safe(value), quote=True))


def _children(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, str | int):
            yield text(child)
        else:
            yield from _children(child)


def join(*children: Child) -> Markup:
    """Children one after the other; what is no `Markup` is escaped. None is nothing."""
    return Markup("".join(_children(children)))


def tag(name: str, attributes: Mapping[str, object] | None = None, *children: Child) -> Markup:
    """An element. An attribute that is None or False is left out, True stands alone.

    ``name`` and the names of attributes are ours, their values are escaped.
    """
    parts = [name]
    for key, value in (attributes or {}).items():
        if value is True:
            parts.append(key)
        elif value is not None and value is not False:
            parts.append(f'{key}="{text(value)}"')
    opening = f"<{' '.join(parts)}>"
    if name in _VOID:
        return Markup(opening)
    return Markup(f"{opening}{join(*children)}</{name}>")
