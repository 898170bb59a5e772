"""``kpl-codec explain``: what a code, a requirement or a symptom means, and what to do."""

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
from ..rendering.terminal import line, note, show, show_json, table, width, wrap
from .exit_status import CLEAN
from .inputs import UsageError
from .options import add, add_shared

#: The modules with classes of errors; and those that need an extra, and a second more.
_MODULES = (
    "errors", "aws_lambda.batch", "cli.inputs", "validate.validate_command", "conformance.program",
    "format.compression", "producer.config", "producer.outcomes", "producer.pending", "schema_registry",
    "serving", "shards.refresh", "shards.sequence_numbers", "shards.stream_name", "testing.local_kinesis",
)  # fmt: skip
_OF_EXTRAS = (
    "producer.delivery_future", "queues.queue_calls", "aws.s3", "aws.glue_schema_registry",
    "aws.subscription",
    "captures.files", "arrow.object_columns", "audit.audit_run", "validate.validate_job", "validate.local",
    "validate.repair", "spark.session", "spark.source", "spark.source.offsets", "spark.source.positions",
    "spark.source.write",
)  # fmt: skip
#: Symptoms, or findings, that are printed whole; of more only their titles.
_MOST_WHOLE = 3


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

    def is_called(self, name: str) -> bool:
        return name.lower() in (self.name.lower(), *map(str.lower, self.codes))


class Symptom(NamedTuple):
    """A section of spec/guides/by-symptom.md, without its code."""

    title: str
    text: str


def configure(parser: argparse.ArgumentParser) -> None:
    text = (
        "a code, requirement or error (truncated, FRM-3, ProducerFull), or words of a symptom; without CODE "
        "it lists all"
    )
    add(parser, "code CODE", text, nargs="*")
    add_shared(parser, "--json")


def run(args: argparse.Namespace) -> int:
    words = " ".join(args.code)
    kinds, rules = list(KINDS.values()), requirements()
    if not words:
        _list(kinds, list(error_classes()), rules, args.json)
        return CLEAN
    findings = [kind for kind in kinds if words.lower() in (kind.name, kind.name.removeprefix("capture-"))]
    rule = rules.get(words.upper())
    classes = list(error_classes(_MODULES))
    errors = [error for error in classes if error.is_called(words)]
    symptoms: list[Symptom] = []
    if rule is not None or not (findings or errors):
        symptoms = [] if rule is not None else symptoms_of(words)
        classes = list(error_classes(say_missing=not symptoms))
        errors = [error for error in classes if error.is_called(words)]
    if errors:
        symptoms = []
    elif rule is None and not findings:
        findings = [kind for kind in kinds if _mentions(f"{kind.name} {kind.title}", words)]
    if rule is not None:
        findings += [kind for kind in kinds if kind.requirement == rule.id]
        errors += [error for error in classes if error.requirement == rule.id]
    if not (findings or errors or rule or symptoms):
        names = {*KINDS, *rules, *(code for error in classes for code in error.codes)}
        near = get_close_matches(words, names, 3) or get_close_matches(words.upper(), names, 3)
        hint = f"did you mean {', '.join(near)}?" if near else "kpl-codec explain lists all codes"
        if " " in words:
            raise UsageError(reason=f"no symptom has all the words {words!r}; try fewer of them")
        raise UsageError(reason=f"unknown code {words!r}; {hint}")
    if args.json:
        show_json(
            {
                "requirement": rule._asdict() if rule else None,
                "findings": [kind._asdict() for kind in findings],
                "errors": [error._asdict() for error in errors],
                "symptoms": [symptom._asdict() for symptom in symptoms],
            }
        )
        return CLEAN
    if rule is not None:
        show(line((rule.id, "bold"), f"  spec/{rule.chapter}"), *wrap(line(rule.sentence), width(), 2))
    for symptom in symptoms:
        show(line((symptom.title, "bold")))
        for paragraph in symptom.text.split("\n\n") if len(symptoms) <= _MOST_WHOLE else ():
            show(*wrap(line(" ".join(paragraph.split())), width(), 2), line(""))
    for kind in findings:
        brief = rule is None and len(findings) > _MOST_WHOLE
        _show(f"finding, {kind.severity}: {kind.title}", kind, rules, brief=brief)
    for error in errors:
        _show(f"error, code {' | '.join(error.codes)}", error, rules)
    return CLEAN


def _show(
    what: str, entry: FindingType | Error, rules: dict[str, Requirement], *, brief: bool = False
) -> None:
    show(line((entry.name, "bold"), f"  {what}"))
    if brief:
        return
    for text in (entry.meaning, f"Who is affected: {entry.concerns}", f"What to do: {entry.todo}"):
        for paragraph in text.split("\n"):
            show(*wrap(line(paragraph), width(), 2))
    rule = rules.get(entry.requirement or "")
    if rule is not None:
        show(*wrap(line((f"{rule.id}: {rule.sentence}", "dim")), width(), 2))
    show(line(""))


def _list(
    kinds: list[FindingType], errors: list[Error], rules: dict[str, Requirement], as_json: bool
) -> None:
    rows = [(kind.name, f"finding, {kind.severity}", kind.title) for kind in kinds]
    rows += [(code, f"error, {e.name}", e.meaning.split("\n")[0]) for e in errors for code in e.codes]
    rows += [(rule.id, "requirement", rule.sentence) for rule in rules.values()]
    if as_json:
        show_json([dict(zip(("code", "what", "text"), row, strict=True)) for row in rows])
    else:
        room = max(20, width() - 60)
        cut = [[c, w, text if len(text) <= room else text[: room - 1] + "…"] for c, w, text in rows]
        show(table(["code", "what", "meaning"], cut))


def symptoms_of(words: str) -> list[Symptom]:
    """The symptoms in whose section all ``words`` stand: also bytes in any notation, such as F3899AC2."""
    guide = files(__package__).joinpath("spec", "by-symptom.md").read_text(encoding="utf-8")
    without_code = re.sub(r"^```.*?^```\n", "", guide, flags=re.MULTILINE | re.DOTALL)
    sections = [section.partition("\n") for section in without_code.split("\n## ")[1:]]
    symptoms = [Symptom(_plain(title), _plain(text.strip())) for title, _, text in sections]
    return [symptom for symptom in symptoms if _mentions("\n".join(symptom), words)]


def _mentions(text: str, words: str) -> bool:
    """Whether each of ``words`` begins a word of ``text``, in singular or plural."""
    digits = re.sub(r"0x|\\x|[\s:-]", "", words).lower()
    if re.fullmatch("([0-9a-f]{2}){2,}", digits):
        return digits in re.sub(r"\\x|\s", "", text).lower()
    beginnings = [re.escape(word.removesuffix("s")) for word in words.lower().split()]
    return len(words) > 2 and all(re.search(rf"(?<!\w){word}", text.lower()) for word in beginnings)


def _plain(text: str) -> str:
    """Markdown without its marks; a link as its text."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "").replace("*", "")


def requirements() -> dict[str, Requirement]:
    """All requirements of the specification, by id."""
    rules = {}
    for chapter in sorted(files(__package__).joinpath("spec").iterdir(), key=lambda path: path.name):
        text = chapter.read_text(encoding="utf-8")
        for name, sentence in re.findall(r"^\*\*([A-Z]{3}-\d+)\*\* (.+)$", text, re.MULTILINE):
            rules[name] = Requirement(name, sentence.replace("`", ""), chapter.name)
    return rules


def error_classes(
    modules: Iterable[str] = (*_MODULES, *_OF_EXTRAS), *, say_missing: bool = True
) -> Iterator[Error]:
    """Every class of errors, with its codes, of those modules that can be imported here."""
    missing = set()
    for name in modules:
        try:
            import_module(f"kpl_codec.{name}")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("kpl_codec"):
                raise
            missing.add(str(error.name).partition(".")[0])
    if missing and say_missing:
        note(f"errors of what needs {', '.join(sorted(missing))} are left out: not installed")
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
