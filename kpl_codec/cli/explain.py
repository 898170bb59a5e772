"""``kpl-codec explain``: what a code, a requirement or a symptom means, and what to do."""

from __future__ import annotations

import argparse
import base64
import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from importlib.resources import files
from inspect import cleandoc
from math import log
from textwrap import indent
from typing import NamedTuple, get_args

from ..deaggregation.fingerprints import SIGNS
from ..errors import KplError
from ..findings import KINDS, FindingType
from ..rendering.terminal import Line, line, note, show, table, width
from .inputs import UsageError
from .options import add

#: The modules with classes of errors: those that need no extra; those that need one, and a second to import.
_MODULES = (
    "errors", "aws_lambda.batch", "cli.inputs", "validate.validate_command", "conformance.program",
    "format.compression", "producer.config", "producer.outcomes", "producer.pending", "schema_registry",
    "serving", "shards.refresh", "shards.sequence_numbers", "shards.stream_name", "testing.local_kinesis",
)  # fmt: skip
_OF_EXTRAS = (
    "producer.delivery_future", "queues.queue_calls", "aws.s3", "aws.glue_schema_registry",
    "aws.subscription", "captures.files", "captures.results",
    "arrow.object_columns", "audit.audit_run", "validate.validate_job", "validate.local",
    "validate.repair", "spark.session", "spark.source", "spark.source.offsets", "spark.source.positions",
    "spark.source.write",
)  # fmt: skip
#: How many entries are printed whole; how many at most, the others by their titles.
_MOST_WHOLE, _MOST = 3, 10
#: The part of a text's words, by their weight, that an entry must contain to be about that text.
_LEAST_SHARE = 0.5
_CODE = "    "


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
    messages: tuple[str, ...] = ()

    def is_called(self, name: str) -> bool:
        return name.lower() in (self.name.lower(), *map(str.lower, self.codes))


class Symptom(NamedTuple):
    """A section of spec/guides/by-symptom.md. Paragraphs of ``text`` that begin with four spaces are code."""

    title: str
    text: str


Entry = FindingType | Error | Symptom


def configure(parser: argparse.ArgumentParser) -> None:
    text = (
        "a code, requirement or error (truncated, FRM-3, ProducerFull), a whole message, the first bytes of "
        "data, or words of a symptom; without CODE it lists all"
    )
    add(parser, "code CODE", text, nargs="*")


def run(args: argparse.Namespace) -> None:
    words, rules = " ".join(args.code), requirements()
    if not words:
        _list(rules)
        return
    rule, entries = look_up(words, rules)
    if rule is None and not entries:
        names = {
            *KINDS,
            *rules,
            *(sign.name for sign in SIGNS),
            *(code for error in error_classes() for code in error.codes),
        }
        near = get_close_matches(words, names, 3) or get_close_matches(words.upper(), names, 3)
        hint = f"did you mean {', '.join(near)}?" if near else "kpl-codec explain lists all codes"
        if " " in words:
            raise UsageError(reason=f"nothing is about {words!r}; try one or two of its words")
        raise UsageError(reason=f"nothing is called {words!r}, or about it; {hint}")
    if rule is not None:
        show(line((rule.id, "bold"), f"  spec/{rule.chapter}"), _paragraph(rule.sentence))
    for number, entry in enumerate(entries):
        _show(entry, rules, brief=rule is None and number >= _MOST_WHOLE)


def _show(entry: Entry, rules: dict[str, Requirement], *, brief: bool) -> None:
    """An entry, or with ``brief`` its title."""
    if isinstance(entry, Symptom):
        show(line((entry.title, "bold")))
        for paragraph in entry.text.split("\n\n") if not brief else ():
            is_code = paragraph.startswith(_CODE)
            rows = [line(row, fold=False) for row in paragraph.split("\n")]
            show(*(rows if is_code else [_paragraph(paragraph)]), line(""))
        if _CODE in entry.text and not brief:
            text = "Code goes on from the sections before: spec/guides/by-symptom.md"
            show(_paragraph(text, "dim"), line(""))
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


# -- the search -----------------------------------------------------------------------------------


def look_up(text: str, rules: dict[str, Requirement]) -> tuple[Requirement | None, list[Entry]]:
    """The requirement with the id ``text``, and the entries that refer to it; else the entries that have this
    name or code, or else those that are about the words of ``text``. The best comes first."""
    rule = rules.get(text.upper())
    if rule is not None:
        rests: list[Entry] = [*KINDS.values(), *error_classes(say_missing=False)]
        return rule, [entry for entry in rests if getattr(entry, "requirement", None) == rule.id]
    named: list[Entry] = [
        kind for kind in KINDS.values() if text.lower() in (kind.name, kind.name.removeprefix("capture-"))
    ]
    named += [error for error in error_classes(_MODULES) if error.is_called(text)]
    # The kinds of writers that inspect and watch name.
    named += [
        Symptom(sign.name, f"{sign.certainty} written by {' or '.join(sign.writers)}: {sign.description}")
        for sign in SIGNS
        if sign.name == text.lower()
    ]
    sections = symptoms()
    if not named:
        named += [error for error in error_classes(say_missing=False) if error.is_called(text)]
    if named:
        about = [section for section in sections if _words(text) <= _words(section.title)]
        # A title that names a class says more than the code of an error.
        return None, [*named, *about] if text.islower() else [*about, *named]
    if begun := [section for section in sections if _begins(text, section)]:
        return None, [*begun]
    return None, _ranked(text, [*sections, *KINDS.values(), *error_classes(say_missing=False)])


def _begins(text: str, section: Symptom) -> bool:
    """Whether ``text`` is the first bytes in the title of ``section``, as Python, hexadecimal digits or
    base64 write them."""
    digits = re.sub(r"0x|[\s:-]", "", text).lower()
    if escapes := re.search(r"(?:\\x[0-9a-f]{2}){2,}", text):
        digits = escapes[0].replace("\\x", "")
    elif not re.fullmatch("([0-9a-f]{2}){2,}", digits):
        with suppress(ValueError):
            decoded = base64.b64decode(text[:8], validate=True)
            text, digits = (text, decoded.hex()) if decoded[:5] != b"84maw" else (decoded.decode(), "")
        if text.startswith("84maw"):
            return "84mawg" in section.title
    titles = [shown.replace("\\x", "") for shown in re.findall(r"(?:\\x[0-9a-f]{2})+", section.title)]
    return len(digits) > 3 and any(digits.startswith(shown) or shown.startswith(digits) for shown in titles)


def _ranked(text: str, entries: list[Entry]) -> list[Entry]:
    """The entries that are about the words of ``text``, best first: rare words weigh most."""
    titles, bodies = [], []
    for entry in entries:
        if isinstance(entry, Symptom):
            title, body = entry.title, re.sub(f"^{_CODE}.*", "", entry.text, flags=re.MULTILINE)
        elif isinstance(entry, Error):
            title, body = f"{entry.name} {' '.join((*entry.codes, *entry.messages))}", entry.meaning
        else:
            title, body = f"{entry.name} {entry.title}", entry.meaning
        titles.append(_with_parts(f"{title} {getattr(entry, 'requirement', None) or ''}"))
        bodies.append(_with_parts(body))
    text = re.sub("kpl.codec", "", text)  # a word that distinguishes no entries
    names = _words(" ".join(word for word in text.split() if re.search("[a-z][A-Z]|[0-9_/-]", word)))
    weights = {}
    for word in _words(text):
        holders = sum(_has(one, word) or _has(other, word) for one, other in zip(titles, bodies, strict=True))
        # Words that no entry has, such as a stream's name, do not matter.
        if holders or word not in names:
            weights[word] = log((len(entries) + 1) / (holders + 0.5)) * (2 if word in names else 1)
    scores = []
    for number, entry in enumerate(entries):
        in_title = [word for word in weights if _has(titles[number], word)]
        found = {*in_title, *(word for word in weights if _has(bodies[number], word))}
        share = sum(weights[word] for word in found) / (sum(weights.values()) or 1)
        is_symptom = isinstance(entry, Symptom)
        if share >= _LEAST_SHARE or names.intersection(found if is_symptom else in_title):
            score = sum(weights[word] for word in [*found, *in_title])
            scores.append((score * (1.5 if is_symptom else 1), number))
    best = max(scores, default=(0, 0))[0]
    scores.sort(key=lambda pair: (-pair[0], pair[1]))
    return [entries[number] for score, number in scores if score >= best / 2][:_MOST]


def _has(words: set[str], word: str) -> bool:
    """Whether one of ``words`` begins with ``word``."""
    return word in words or any(other.startswith(word) for other in words)


def _words(text: str) -> set[str]:
    """The words of a text, in singular and lower case, without numbers."""
    words = re.findall(r"[a-z0-9]+(?:[_-][a-z0-9]+)*", text.lower())
    return {word.removesuffix("s") for word in words if len(word) > 2 and not word.isdigit()}


def _with_parts(text: str) -> set[str]:
    """The words of a text; of words with hyphens also the parts."""
    return _words(text) | _words(re.sub("[_-]", " ", text))


# -- the entries --------------------------------------------------------------------------------


def symptoms() -> list[Symptom]:
    """The sections of spec/guides/by-symptom.md."""
    guide = files(__package__).joinpath("spec", "by-symptom.md").read_text(encoding="utf-8")
    sections = [section.partition("\n") for section in guide.split("\n## ")[1:]]
    return [Symptom(_plain(title), _with_code(text.strip())) for title, _, text in sections]


def _with_code(text: str) -> str:
    """Markdown without its marks; code is indented."""
    parts = re.split(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    plain = [_plain(parts[0])]
    for language, code, after in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        plain += ["It prints:"] if language == "text" else []
        plain += [indent(code, _CODE), _plain(after)]
    return "\n\n".join(part.strip("\n") for part in plain if part.strip())


def _plain(text: str) -> str:
    """Markdown without its marks; a link as its text and the file."""

    def link(match: re.Match[str]) -> str:
        file = posixpath.normpath(posixpath.join("spec/guides", match[2].partition("#")[0]))
        return file if file.endswith(f"/{match[1]}") else f"{match[1]} ({file})"

    return re.sub(r"\[([^]]*)\]\(([^)]*)\)", link, text).replace("`", "").replace("*", "")


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
            messages = (kind.text, *kind.texts.values())
            yield Error(kind.__name__, codes, meaning, kind.concerns, kind.todo, kind.requirement, messages)


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
