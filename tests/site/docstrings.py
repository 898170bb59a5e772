"""Docstrings as Markdown: each paragraph's explanations of parameters become a list."""

from __future__ import annotations

import re
from typing import Any

import griffe

#: A line that begins to explain parameters or fields: "``name``: what it is" or "``one``, ``two``: ...".
_EXPLAINED = re.compile(r"^(?=``\w[^`]*``(?:(?:,| and) ``\w[^`]*``)*(?: \([^)]*\))?: )", re.MULTILINE)


class Lists(griffe.Extension):
    """Called by mkdocstrings for everything that it reads."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXPLAINED.sub("\n* ", obj.docstring.value)
