"""Docstrings as Markdown: a paragraph's explanations of parameters become a list, full names become links."""

from __future__ import annotations

import re
from copy import copy
from importlib import import_module
from pkgutil import resolve_name
from typing import Any

import griffe

from kpl_codec.errors import KplError

#: A line that begins to explain parameters or fields: "``name``: what it is" or "``one``, ``two``: ...".
_EXPLAINED = re.compile(r"^(?=``\w[^`]*``(?:(?:,| and) ``\w[^`]*``)*(?: \([^)]*\))?: )", re.MULTILINE)
#: How a plain function is made of an asynchronous one.
_MADE = re.compile(r"sync_(?:function|generator)\((\w+)\)")
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

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """What is made of an asynchronous function of the module has its signature and its docstring."""
        for name, made in [*mod.members.items()]:
            of = _MADE.fullmatch(str(made.value)) if not made.is_alias and made.is_attribute else None
            if of is not None:
                plain = copy(mod.members[of[1]])
                plain.name, plain.labels = name, plain.labels - {"async"}
                plain.returns = re.sub(r"AsyncGenerator\[(\w+), None\]", r"Iterator[\1]", str(plain.returns))
                mod.members[name] = plain

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Makes the fields of a class one table: its attributes and properties, with anchors."""
        fields = [
            one
            for name, one in cls.members.items()
            if not one.is_alias and one.is_attribute and name[0] != "_"
        ]
        thing = getattr(import_module(cls.module.path), cls.name, object)
        if not fields or issubclass(thing, KplError):  # the fields of errors stand beside their codes
            return
        for field in fields:
            del cls.members[field.name]
        fields = [field for field in fields if field.annotation or field.docstring]
        rows = ["", "", "| field | type | |", "|---|---|---|"]
        if not any(field.docstring for field in fields):
            rows = ["", "", "| field | type |", "|---|---|"]
        for field in fields:
            text = " ".join(field.docstring.value.split()) if field.docstring else ""
            kind = f"`{field.annotation}`" if field.annotation else ""
            text = re.sub(r"`[^`]*`|\|", lambda found: found[0].replace("|", "&#124;", found[0] == "|"), text)
            rows.append(f'| <a id="{field.path}"></a>`{field.name}` | {kind} | {text} |')
        if not fields:
            return
        if cls.docstring is None:
            cls.docstring = griffe.Docstring("", parent=cls)
        cls.docstring.value += "\n".join(rows)

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _EXPLAINED.sub("\n* ", obj.docstring.value)
            obj.docstring.value = _FULL_NAME.sub(_link, text)
