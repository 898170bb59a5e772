"""``kpl-codec explain NAME``: what a code, an error, a finding or a requirement means, and what to do."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from importlib import import_module
from importlib.resources import files
from inspect import cleandoc
from typing import NamedTuple, get_args

from ..aws_errors import AWS_CODES, OWN_CODES, Advice, advice_of
from ..deaggregation.fingerprints import SIGNS, WRITERS
from ..errors import KplError
from ..findings import KINDS, FindingType
from ..rendering.terminal import Line, line, note, show, table, width
from ..shards.placement import CAUSES
from .options import UsageError, add

#: The modules with classes of errors: those that need no extra; those that need one, and a second to import.
_MODULES = (
    "errors", "aws_lambda.batch", "cli.options", "validate.validate_command",
    "format.compression", "producer.config", "producer.mailbox", "producer.record", "producer.results",
    "schema_registry",
    "shards.live_shard_map", "shards.sequence_numbers", "shards.stream_name",
    "testing.local_kinesis", "testing.serving",
)  # fmt: skip
_OF_EXTRAS = (
    "producer.future", "aws.s3",
    "aws.subscription", "captures.files", "validate.results",
    "arrow.object_columns", "audit.audit_run", "validate.validate_job", "validate.local",
    "spark.session", "spark.source", "spark.source.offsets", "spark.source.positions",
    "spark.source.write",
)  # fmt: skip
#: Of more entries than so many only the titles are printed.
_MOST_WHOLE = 3
#: Names that commands print: of writers (watch, inspect) and of causes (validate).
_NAMES = {
    **{sign.name: f"A kind of writer: {sign}." for sign in SIGNS},
    **{name: f"A kind of writer: {text}." for name, text in WRITERS.items()},
    **{name: f"A cause of misplaced user records: {text}." for name, text in CAUSES.items()},
}
#: Exceptions of the KCL and the KPL: whose each is, what it means, and what to do.
_OF_OTHERS = {
    "ShutdownException": (
        "the KCL: a checkpoint was not stored, because another worker has the lease of the shard",
        "stop handling this shard; the other worker handles again what came after the last checkpoint",
    ),
    "InvalidStateException": (
        "the KCL: its lease table cannot be read or written",
        "check that the DynamoDB table exists, and what the role may do with it",
    ),
    "BlockedOnParentShardException": (
        "the KCL: a parent of the shard is not read to its end yet",
        "nothing; if it stays, look for a worker that has not checkpointed at the end of the parent",
    ),
    "UserRecordFailedException": (
        "the KPL: a user record was not delivered",
        "read the error of the attempt before the last one, which says why; then put the user record again",
    ),
    "DaemonException": (
        "the KPL: its native process has ended, and what it had not sent is not delivered",
        "read the lines of the log before, which say why it ended; then put those user records again",
    ),
}


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


class Name(NamedTuple):
    """A kind of writer, a cause, or an exception of somebody else."""

    name: str
    text: str


Entry = FindingType | Error | Name


def configure(parser: argparse.ArgumentParser) -> None:
    text = "a code, error, finding or requirement: truncated, ProducerFull, FRM-3; without NAME it lists all"
    add(parser, "name NAME", text, nargs="*")


def run(args: argparse.Namespace) -> None:
    name, rules = " ".join(args.name), requirements()
    if not name:
        _list(rules)
        return
    rule = rules.get(name.upper())
    entries = _of_requirement(rule) if rule is not None else _called(name)
    if rule is None and not entries:
        names = {*KINDS, *rules, *_NAMES, *(code for error in error_classes() for code in error.codes)}
        near = get_close_matches(name, names, 3) or get_close_matches(name.upper(), names, 3)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        page = "spec/guides/by-symptom.md has what people see; without a name all are listed"
        raise UsageError(reason=f"nothing is called {name[:200]!r}; {hint}{page}")
    if rule is not None:
        show(line((rule.id, "bold"), f"  spec/{rule.chapter}"), _paragraph(rule.sentence))
    for entry in entries:
        _show(entry, rules, brief=rule is None and len(entries) > _MOST_WHOLE)


def _of_requirement(rule: Requirement) -> list[Entry]:
    """The findings and errors that rest on a requirement."""
    rests: list[Entry] = [*KINDS.values(), *error_classes(say_missing=False)]
    return [entry for entry in rests if getattr(entry, "requirement", None) == rule.id]


def _called(name: str) -> list[Entry]:
    """The findings and errors with this name or code, and what else is called so. Case does not matter."""
    folded = name.lower().replace(" ", "-")
    found: list[Entry] = [
        one for one in KINDS.values() if folded in (one.name, one.name.removeprefix("capture-"))
    ]
    # Most errors are of modules that are imported at once.
    errors = [error for error in error_classes(_MODULES) if error.is_called(name)]
    errors = errors or [error for error in error_classes(say_missing=False) if error.is_called(name)]
    # Error classes give some codes of AWS as examples: what a code means everywhere comes first.
    code = next((code for code in AWS_CODES if code.lower() == name.lower()), name)
    if code in AWS_CODES:
        found.append(_of_code(code, advice_of(code)))
    found += errors
    if folded in _NAMES:
        found.append(Name(folded, _NAMES[folded]))
    if not found and name in _OF_OTHERS:
        means, todo = _OF_OTHERS[name]
        found.append(Name(name, f"An exception of {means}.\nWhat to do: {todo}."))
    elif not found and (advice := advice_of(name)) != advice_of("") and not name.isdigit():
        found.append(_of_code(name, advice))
    return found


def _of_code(code: str, advice: Advice) -> Name:
    origin = "A code of kpl_codec" if code in OWN_CODES else "An error code of AWS, or of boto3"
    return Name(code, f"{origin}: {advice.means}.\nWhat to do: {advice.todo}.")


def _show(entry: Entry, rules: dict[str, Requirement], *, brief: bool) -> None:
    """An entry, or with ``brief`` its title."""
    if isinstance(entry, Name):
        show(line((entry.name, "bold")), *map(_paragraph, entry.text.split("\n")), line(""))
        return
    if isinstance(entry, Error):
        what = f"error, code {' | '.join(entry.codes)}"
    else:
        what = f"finding, {entry.severity}: {entry.title}"
    show(line((entry.name, "bold"), f"  {what}", hang=2))
    if brief:
        return
    for text in (entry.meaning, f"Who is affected: {entry.concerns}", f"What to do: {entry.todo}"):
        for paragraph in text.split("\n"):
            show(_paragraph(paragraph))
    rule = rules.get(entry.requirement or "")
    if rule is not None:
        show(_paragraph(f"{rule.id}: {rule.sentence}", "dim"))
    show(line(""))


def _paragraph(text: str, style: str = "") -> Line:
    return line("  ", (" ".join(text.split()), style))


def _list(rules: dict[str, Requirement]) -> None:
    rows = [(kind.name, f"finding, {kind.severity}", kind.title) for kind in KINDS.values()]
    for error in error_classes():
        rows += [(code, f"error, {error.name}", error.meaning.split("\n")[0]) for code in error.codes]
    rows += [(rule.id, "requirement", rule.sentence) for rule in rules.values()]
    before = sum(max(len(row[column]) for row in rows) + 2 for column in (0, 1))
    room = max(20, width() - before)
    cut = [[c, w, text if len(text) <= room else text[: room - 1] + "…"] for c, w, text in rows]
    show(table(["code", "what", "meaning"], cut))
    show(line("What people see: spec/guides/by-symptom.md"))


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
