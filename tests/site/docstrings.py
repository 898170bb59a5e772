"""Docstrings as Markdown: a paragraph's explanations of parameters become a list, full names become links."""

from __future__ import annotations

import re
from pkgutil import resolve_name
from typing import Any

import griffe

#: A line that begins to explain parameters or fields: "``name``: what it is" or "``one``, ``two``: ...".
_EXPLAINED = re.compile(r"^(?=``\w[^`]*``(?:(?:,| and) ``\w[^`]*``)*(?: \([^)]*\))?: )", re.MULTILINE)
#: A full name in single backticks.
_FULL_NAME = re.compile(r"(?<!`)`(kpl_codec(?:\.\w+)+)`(?!`)")


def _link(match: re.Match[str]) -> str:
    """A link, if a page shows what is named. Raises ImportError, AttributeError for what does not exist."""
    name = match[1]
    thing = resolve_name(name)
    # mkdocstrings knows things by where they are defined.
    place = f"{thing.__module__}.{thing.__qualname__}" if hasattr(thing, "__qualname__") else name
    return f'<autoref optional identifier="{place}"><code>{name}</code></autoref>'


class Markdown(griffe.Extension):
    """Called by mkdocstrings for everything that it reads."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _EXPLAINED.sub("\n* ", obj.docstring.value)
            obj.docstring.value = _FULL_NAME.sub(_link, text)
