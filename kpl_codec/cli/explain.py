"""``kpl-codec explain``: what an error code, a kind of finding or a requirement means, and what to do."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from importlib.resources import files
from inspect import cleandoc
from pkgutil import walk_packages
from typing import Any, NamedTuple, get_args, get_type_hints

import kpl_codec

from ..errors import KplError
from ..pictures.terminal import line, show, show_json, table, width, wrapped
from ..report.kinds import KINDS, Kind
from .error_help import HELP
from .source import UsageError

#: Modules that only run as programs, or that need pytest.
_NOT_IMPORTED = ("__main__", "worker", "testing", "job")


class Requirement(NamedTuple):
    """A requirement of spec/: its id, its sentence with its source, and its chapter."""

    id: str
    sentence: str
    chapter: str


class Error(NamedTuple):
    """A class of errors: the codes it can have, what it means, whom it concerns and what to do."""

    name: str
    codes: tuple[str, ...]
    meaning: str
    concerns: str
    todo: str
    requirement: str | None


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "code",
        nargs="?",
        metavar="CODE",
        help="such as truncated, gap, naive-aggregator, FRM-3; default: all",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of text")


def run(args: argparse.Namespace) -> int:
    """0. Raises UsageError for an unknown code."""
    kinds, errors, found = list(KINDS.values()), list(error_classes()), requirements()
    if args.code is None:
        _list(kinds, errors, found, args.json)
        return 0
    wanted = args.code.lower()
    told = [kind for kind in kinds if wanted in (kind.name, kind.name.removeprefix("capture-"))]
    raised = [error for error in errors if wanted in (error.name.lower(), *map(str.lower, error.codes))]
    required = found.get(args.code.upper())
    if not told and not raised and required is None:
        raise _unknown(args.code, [*KINDS, *found, *(code for error in errors for code in error.codes)])
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


def _unknown(code: str, names: list[str]) -> UsageError:
    near = get_close_matches(code, names, 3) or get_close_matches(code.upper(), names, 3)
    what = f"nearest: {', '.join(near)}" if near else "kpl-codec explain lists what there is"
    return UsageError(reason=f"nothing here is called {code}; {what}")


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
    """Every requirement of spec/ by its id."""
    found = {}
    for chapter in sorted(files(__package__).joinpath("spec").iterdir(), key=lambda path: path.name):
        text = chapter.read_text(encoding="utf-8")
        for name, sentence in re.findall(r"^\*\*([A-Z]{3}-\d+)\*\* (.+)$", text, re.MULTILINE):
            found[name] = Requirement(name, sentence.replace("`", ""), chapter.name)
    return found


def error_classes() -> Iterator[Error]:
    """Every class of errors, with its codes. Parts whose extra is not installed are left out."""
    for module in walk_packages(kpl_codec.__path__, "kpl_codec."):
        if module.name.rpartition(".")[2] not in _NOT_IMPORTED and ".testing" not in module.name:
            _import(module.name)
    for kind in sorted(_below(KplError), key=lambda kind: kind.__name__):
        told = HELP.get(kind.__name__)
        if told is not None:  # the others are base classes and never raised
            meaning = cleandoc(kind.__doc__ or "").replace("`", "")
            yield Error(
                kind.__name__, _codes(kind), _flowing(meaning), told.concerns, told.todo, kind.requirement
            )


def _import(name: str) -> None:
    try:
        import_module(name)
    except ImportError as error:  # of a package that is missing, or too old
        if (error.name or "").startswith("kpl_codec"):
            raise


def _below(kind: type[KplError]) -> Iterator[type[KplError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _codes(kind: type[Any]) -> tuple[str, ...]:
    own = kind.__dict__.get("code")
    declared = get_args(get_type_hints(kind).get("code"))
    return tuple(dict.fromkeys([*((own,) if own else declared), *HELP[kind.__name__].codes]))


def _flowing(text: str) -> str:
    """A docstring with one line for each paragraph or entry of a list."""
    return "\n".join(" ".join(part.split()) for part in text.split("\n\n"))
