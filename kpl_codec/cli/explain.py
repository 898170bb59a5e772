"""``kpl-codec explain``: what an error code, a kind of finding or a requirement means, and what to do."""

from __future__ import annotations

import argparse
import ast
import re
from collections import ChainMap
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import kpl_codec

from ..findings import KINDS, Kind
from ..pictures.terminal import line, show, show_json, table, width, wrapped
from .options import add, add_shared
from .source import UsageError

#: Modules with a class that may be an error.
_ERROR_CLASS = re.compile(r"^class \w+\(\w*(Error|Full)\b", re.MULTILINE)


class Requirement(NamedTuple):
    id: str
    sentence: str
    chapter: str


class Error(NamedTuple):
    name: str
    codes: tuple[str, ...]
    meaning: str
    concerns: str
    todo: str
    requirement: str | None


def configure(parser: argparse.ArgumentParser) -> None:
    text = "such as truncated, gap, naive-aggregator, FRM-3; without it all are listed"
    add(parser, "code CODE", text, nargs="?")
    add_shared(parser, "--json")


def run(args: argparse.Namespace) -> int:
    kinds, errors, found = list(KINDS.values()), list(error_classes()), requirements()
    if args.code is None:
        _list(kinds, errors, found, args.json)
        return 0
    wanted = args.code.lower()
    told = [kind for kind in kinds if wanted in (kind.name, kind.name.removeprefix("capture-"))]
    raised = [error for error in errors if wanted in (error.name.lower(), *map(str.lower, error.codes))]
    required = found.get(args.code.upper())
    if not told and not raised and required is None:
        names = [*KINDS, *found, *(code for error in errors for code in error.codes)]
        near = get_close_matches(args.code, names, 3) or get_close_matches(args.code.upper(), names, 3)
        what = f"nearest: {', '.join(near)}" if near else "kpl-codec explain lists what there is"
        raise UsageError(reason=f"nothing here is called {args.code}; {what}")
    if required is not None:
        told += [kind for kind in kinds if kind.requirement == required.id]
        raised += [error for error in errors if error.requirement == required.id]
    if args.json:
        show_json(
            {
                "requirement": required._asdict() if required else None,
                "findings": [kind._asdict() for kind in told],
                "errors": [error._asdict() for error in raised],
            }
        )
        return 0
    if required is not None:
        show(
            line((required.id, "bold"), f"  spec/{required.chapter}"),
            *wrapped(line(required.sentence), width(), 2),
        )
    for kind in told:
        _show(kind.name, f"finding, {kind.severity}: {kind.title}", kind.meaning, kind, found)
    for error in raised:
        _show(error.name, f"error, code {' | '.join(error.codes)}", error.meaning, error, found)
    return 0


def _show(name: str, what: str, meaning: str, told: Kind | Error, found: dict[str, Requirement]) -> None:
    show(line(""), line((name, "bold"), f"  {what}"))
    for text in (meaning, f"Whom it concerns: {told.concerns}", f"What to do: {told.todo}"):
        for paragraph in text.split("\n"):
            show(*wrapped(line(paragraph), width(), 2))
    rule = found.get(told.requirement or "")
    if rule is not None:
        show(*wrapped(line((f"{rule.id}: {rule.sentence}", "dim")), width(), 2))


def _list(kinds: list[Kind], errors: list[Error], found: dict[str, Requirement], as_json: bool) -> None:
    rows = [(kind.name, f"finding, {kind.severity}", kind.title) for kind in kinds]
    rows += [(code, f"error, {e.name}", e.meaning.split("\n")[0]) for e in errors for code in e.codes]
    rows += [(rule.id, "requirement", rule.sentence) for rule in found.values()]
    if as_json:
        show_json([dict(zip(("code", "what", "text"), row, strict=True)) for row in rows])
    else:
        room = max(20, width() - 60)
        shown = [[c, w, text if len(text) <= room else text[: room - 1] + "…"] for c, w, text in rows]
        show(table(["code", "what", "meaning"], shown))


def requirements() -> dict[str, Requirement]:
    found = {}
    for chapter in sorted(files(__package__).joinpath("spec").iterdir(), key=lambda path: path.name):
        text = chapter.read_text(encoding="utf-8")
        for name, sentence in re.findall(r"^\*\*([A-Z]{3}-\d+)\*\* (.+)$", text, re.MULTILINE):
            found[name] = Requirement(name, sentence.replace("`", ""), chapter.name)
    return found


def error_classes() -> Iterator[Error]:
    """Every class of errors, with its codes. Read from the source: to import it all takes seconds, and every
    extra."""
    classes: dict[str, dict[str, Any]] = {}
    for path in Path(kpl_codec.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if _ERROR_CLASS.search(source):
            body = ast.parse(source).body
            aliases = dict(_assigned(body))
            classes |= {node.name: _members(node, aliases) for node in body if isinstance(node, ast.ClassDef)}
    for name, own in sorted(classes.items()):
        values = _with_inherited(classes, name)
        codes = tuple(dict.fromkeys([*own["code"], *own.get("codes", ())]))
        if codes and "todo" in values:  # the others are no errors, or never raised
            facts = values["concerns"], values["todo"], values["requirement"]
            yield Error(name, codes, own["meaning"], *facts)


def _members(node: ast.ClassDef, aliases: dict[str, ast.expr]) -> dict[str, Any]:
    """The literals that a class assigns; ``code``: those that it assigns or its annotation lists."""
    doc = (ast.get_docstring(node) or "").replace("`", "")
    # One line for each paragraph or entry of a list.
    meaning = "\n".join(" ".join(part.split()) for part in doc.split("\n\n"))
    members: dict[str, Any] = {"bases": list(map(ast.unparse, node.bases)), "meaning": meaning, "code": ()}
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "code":
            kind = aliases.get(ast.unparse(statement.annotation), statement.annotation)
            members["code"] = re.findall(r"'([^']+)'", ast.unparse(kind))
    for name, value in _assigned(node.body):
        with suppress(ValueError):  # not a literal
            found = ast.literal_eval(value)
            members[name] = (found,) if name == "code" else found
    return members


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for statement in body:
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield ast.unparse(statement.target), statement.value
        elif isinstance(statement, ast.Assign):
            yield ast.unparse(statement.targets[0]), statement.value


def _with_inherited(classes: dict[str, dict[str, Any]], name: str) -> ChainMap[str, Any]:
    own = classes.get(name, {})
    return ChainMap(own, *(_with_inherited(classes, base) for base in own.get("bases", ())))
