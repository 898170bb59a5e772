"""``kpl-codec explain``: what an error code, a kind of finding or a requirement means, and what to do."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from importlib import import_module
from importlib.resources import files
from inspect import cleandoc
from typing import NamedTuple, get_args

from ..errors import KplError
from ..findings import KINDS, FindingType
from ..rendering.terminal import line, note, show, show_json, table, width, wrapped
from .inputs import UsageError
from .options import add, add_shared

#: The modules with classes of errors; and those that need an extra, and a second more.
_MODULES = (
    *(
        "errors",
        "aws_lambda.batch",
        "cli.inputs",
        "validate.validate_command",
        "conformance.subject",
        "format.compression",
    ),
    *("producer.config", "producer.outcomes", "producer.pending", "schema_registry", "serving"),
    *(
        "shards.refresh",
        "shards.sequence_numbers",
        "shards.stream_name",
        "testing.local_kinesis",
    ),
)
_OF_EXTRAS = (
    *("producer.lock", "queues.queue_calls", "aws.s3", "aws.glue_schema_registry", "aws.subscription"),
    *("captures.files", "arrow.object_columns", "audit.audit_run"),
    *("validate.validate_job", "validate.local", "validate.repair"),
    *(
        "spark.session",
        "spark.source",
        "spark.source.offsets",
        "spark.source.positions",
        "spark.source.write",
    ),
)


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

    def answers(self, wanted: str) -> bool:
        """Whether it is called so, or has such a code, in lower case."""
        return wanted in (self.name.lower(), *map(str.lower, self.codes))


def configure(parser: argparse.ArgumentParser) -> None:
    text = "such as truncated, gap, naive-aggregator, FRM-3; without it all are listed"
    add(parser, "code CODE", text, nargs="?")
    add_shared(parser, "--json")


def run(args: argparse.Namespace) -> int:
    kinds, found = list(KINDS.values()), requirements()
    if args.code is None:
        _list(kinds, list(error_classes()), found, args.json)
        return 0
    wanted = args.code.lower()
    told = [kind for kind in kinds if wanted in (kind.name, kind.name.removeprefix("capture-"))]
    required = found.get(args.code.upper())
    errors = list(error_classes(_MODULES))
    raised = [error for error in errors if error.answers(wanted)]
    if required or not (told or raised):
        errors = list(error_classes())
        raised = [error for error in errors if error.answers(wanted)]
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


def _show(
    name: str, what: str, meaning: str, told: FindingType | Error, found: dict[str, Requirement]
) -> None:
    show(line(""), line((name, "bold"), f"  {what}"))
    for text in (meaning, f"Whom it concerns: {told.concerns}", f"What to do: {told.todo}"):
        for paragraph in text.split("\n"):
            show(*wrapped(line(paragraph), width(), 2))
    rule = found.get(told.requirement or "")
    if rule is not None:
        show(*wrapped(line((f"{rule.id}: {rule.sentence}", "dim")), width(), 2))


def _list(
    kinds: list[FindingType], errors: list[Error], found: dict[str, Requirement], as_json: bool
) -> None:
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


def error_classes(modules: Iterable[str] = (*_MODULES, *_OF_EXTRAS)) -> Iterator[Error]:
    """Every class of errors, with its codes, of those modules that can be imported here."""
    for name in modules:
        try:
            import_module(f"kpl_codec.{name}")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("kpl_codec"):
                raise
            note(f"without {error.name}, the errors of kpl_codec.{name} are left out")
    for kind in sorted(set(_below(KplError)), key=lambda kind: kind.__name__):
        codes = tuple(dict.fromkeys([*_own_codes(kind), *vars(kind).get("codes", ())]))
        if codes and hasattr(kind, "todo") and kind.__module__.startswith("kpl_codec."):
            doc = cleandoc(vars(kind).get("__doc__") or "").replace("`", "")
            # One line for each paragraph or entry of a list.
            meaning = "\n".join(" ".join(part.split()) for part in doc.split("\n\n"))
            yield Error(kind.__name__, codes, meaning, kind.concerns, kind.todo, kind.requirement)


def _below(kind: type[KplError]) -> Iterator[type[KplError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _own_codes(kind: type[KplError]) -> tuple[str, ...]:
    """The code that a class assigns, or those that its annotation lists."""
    if "code" in vars(kind):
        return (kind.code,)
    annotation = vars(kind).get("__annotations__", {}).get("code")
    if isinstance(annotation, str):
        annotation = eval(annotation, vars(import_module(kind.__module__)))
    return get_args(annotation)
