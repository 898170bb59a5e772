"""``kpl-codec explain``: what a code, a requirement or a symptom means, and what to do."""

from __future__ import annotations

import argparse
import base64
import posixpath
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from importlib import import_module
from importlib.resources import files
from inspect import cleandoc
from textwrap import indent
from typing import NamedTuple, get_args

from ..aws_errors import advice_of
from ..deaggregation.fingerprints import SIGNS, WRITERS
from ..errors import KplError
from ..findings import KINDS, FindingType
from ..rendering.terminal import Line, line, note, show, table, width
from ..shards.placement import CAUSES
from .options import UsageError, add

#: The modules with classes of errors: those that need no extra; those that need one, and a second to import.
_MODULES = (
    "errors", "aws_lambda.batch", "cli.options", "validate.validate_command",
    "format.compression", "producer.config", "producer.outcomes", "producer.pending", "schema_registry",
    "shards.live_shard_map", "shards.sequence_numbers", "shards.stream_name",
    "testing.local_kinesis", "testing.serving",
)  # fmt: skip
_OF_EXTRAS = (
    "producer.delivery_future", "aws.s3",
    "aws.subscription", "captures.files", "captures.results",
    "arrow.object_columns", "audit.audit_run", "validate.validate_job", "validate.local",
    "spark.session", "spark.source", "spark.source.offsets", "spark.source.positions",
    "spark.source.write",
)  # fmt: skip
#: How many entries are printed whole; the others by their titles.
_MOST_WHOLE = 3
#: How many headings are printed where nothing is about a text.
_FEW = 4
#: Characters that the text of an error must have between its fields to be a sign of that error.
_LEAST_OF_MESSAGE = 16
_CODE = "    "
#: A sign that is the name of a class of errors.
_CLASS = re.compile(r"\w+(?:Error|Exception)")
#: Names that commands print: of writers (watch, inspect) and of causes (validate).
_NAMES = {
    **{sign.name: f"A kind of writer: {sign}." for sign in SIGNS},
    **{name: f"A kind of writer: {text}." for name, text in WRITERS.items()},
    **{name: f"A cause of misplaced user records: {text}." for name, text in CAUSES.items()},
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
    messages: tuple[re.Pattern[str], ...] = ()

    def is_called(self, name: str) -> bool:
        return name.lower() in (self.name.lower(), *map(str.lower, self.codes))


class Symptom(NamedTuple):
    """A section of spec/guides/by-symptom.md, or a name. Paragraphs of ``text`` that begin with four spaces
    are code. ``signs`` are looked for anywhere in what was pasted: ``0xf389``, of bytes in any notation (two
    bytes must be the first ones); ``=text``, which must be all; any other text, whatever its case, in which
    `` ... `` is anything. The name of a class is found as a whole: KMSAccessDeniedException is another
    error than AccessDeniedException."""

    title: str
    text: str
    signs: tuple[str, ...] = ()

    def is_about(self, pasted: str) -> bool:
        """Whether it has a sign of the section, or is the title, or two words or more of it."""
        words = pasted.lower().split()
        of_title = len(words) > 1 and " ".join(words) in self.title.lower()
        return of_title or pasted == self.title or self.is_in(pasted)

    def is_in(self, pasted: str) -> bool:
        for sign in self.signs:
            if sign.startswith("0x"):
                wanted = bytes.fromhex(sign[2:])
                for run in _byte_runs(pasted):
                    if run.startswith(wanted) or (len(wanted) > 2 and wanted in run):
                        return True
            elif sign[0] == "=":
                if sign[1:] == pasted:
                    return True
            elif (found := _between(sign.split(" ... ")).search(pasted)) and not (
                _CLASS.fullmatch(sign) and pasted[: found.start()][-1:].isalnum()
            ):
                return True
        return False


Entry = FindingType | Error | Symptom


def configure(parser: argparse.ArgumentParser) -> None:
    text = (
        "a code, requirement or error (truncated, FRM-3, ProducerFull), or anything pasted: a line of a log, "
        "bytes in any notation; without CODE it lists all"
    )
    add(parser, "code CODE", text, nargs="*")


def run(args: argparse.Namespace) -> None:
    words, rules = " ".join(args.code), requirements()
    if not words:
        _list(rules)
        return
    rule, entries = look_up(words, rules)
    if rule is None and not entries:
        names = {*KINDS, *rules, *_NAMES, *(code for error in error_classes() for code in error.codes)}
        near = get_close_matches(words, names, 3) or get_close_matches(words.upper(), names, 3)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        _show_headings(symptoms()[:_FEW], "spec/guides/by-symptom.md, by what people see, begins:")
        every = "kpl-codec explain without a text lists all codes, and all headings of that page"
        raise UsageError(reason=f"nothing is about {words[:200]!r}; {hint}{every}: give one of them")
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
    _show_headings(symptoms(), "What people see, by the headings of spec/guides/by-symptom.md:")


def _show_headings(sections: list[Symptom], above: str) -> None:
    show(line(above), *(line(f"  {section.title}", hang=4) for section in sections))


# -- the search -----------------------------------------------------------------------------------


def look_up(text: str, rules: dict[str, Requirement]) -> tuple[Requirement | None, list[Entry]]:
    """The requirement with the id ``text``, and the entries that refer to it. Else the entries with this name
    or code, the sections with a sign in ``text``, and the entries named in it, in this order; if there are
    none, the word or the codes of AWS."""
    rule = rules.get(text.upper())
    if rule is not None:
        rests: list[Entry] = [*KINDS.values(), *error_classes(say_missing=False)]
        return rule, [entry for entry in rests if getattr(entry, "requirement", None) == rule.id]
    errors = list(error_classes(_MODULES))
    if not (named := _called(text, errors)):
        errors = list(error_classes(say_missing=False))
        named = _called(text, errors)
    about: list[Entry] = [one for one in symptoms() if one.is_about(text)]
    if named:
        # A section on a class says more than the code of an error.
        return None, [*named, *about] if text.islower() else [*about, *named]
    words = set(re.findall(r"[A-Za-z][\w-]*[A-Za-z0-9]", text))
    # A word such as "empty" or "late" names nothing in a sentence; "key-too-long" and "ProducerFull" do.
    # A class of another package ("click.UsageError") is none of ours.
    ours = re.findall(r"(?:\bkpl_codec[\w.]*\.|(?<![\w.]))([A-Z]\w+)", text)
    about += [error for error in errors if error.name in ours or any(m.search(text) for m in error.messages)]
    about += [kind for kind in KINDS.values() if "-" in kind.name and kind.name in words]
    about += [Symptom(name, text) for name, text in _NAMES.items() if "-" in name and name in words]
    if not about:
        codes = re.findall(r"\((\w+)\) when calling|\bbotocore\.exceptions\.(\w+)|\A([\w.]+)\Z", text)
        about = [*_in_glossary(text), *(one for found in codes for one in _of_aws("".join(found)))]
    in_brackets = next(
        (rules[name] for name in re.findall(r"\[([A-Z]{3}-\d+)]", text) if name in rules), None
    )
    return (None, about) if about else (in_brackets, [])


def _called(text: str, errors: list[Error]) -> list[Entry]:
    """The entries that have this name or code: findings, errors, and names that commands print."""
    name = text.lower().replace(" ", "-")
    named: list[Entry] = [
        kind for kind in KINDS.values() if name in (kind.name, kind.name.removeprefix("capture-"))
    ]
    named += [error for error in errors if error.is_called(text)]
    named += [Symptom(name, _NAMES[name])] if name in _NAMES else []
    return named


def _in_glossary(text: str) -> Iterator[Symptom]:
    """The row of spec/words.md on the word ``text``."""
    glossary = files(__package__).joinpath("spec", "words.md").read_text(encoding="utf-8")
    for words, meaning in re.findall(r"^\| ([^|]+) \| ([^|]+) \|", glossary, re.MULTILINE):
        if text.lower() in re.split("[,;:] ", words.lower()):
            yield Symptom(text, _plain(meaning))


def _of_aws(code: str) -> Iterator[Symptom]:
    """What an error code of AWS means, and what to do; nothing for a code that is not known."""
    advice = advice_of(code)
    if advice != advice_of("") and not code.isdigit():
        yield Symptom(code, f"An error code of AWS: {advice.means}.\n\nWhat to do: {advice.todo}.")


def _between(texts: Iterable[str]) -> re.Pattern[str]:
    """``texts`` in this order, with at most 300 characters between two of them."""
    return re.compile(".{0,300}?".join(map(re.escape, texts)), re.DOTALL | re.IGNORECASE)


def _byte_runs(text: str) -> Iterator[bytes]:
    """The bytes that ``text`` may show: as escapes, characters, numbers (hexadecimal, or decimal from -128),
    or base64."""
    for shown in re.findall(r"\\(?:x|u00|[0-3][0-7]{2}).*", text, re.DOTALL)[:1]:
        unescaped = re.sub(r"(?<!\\)\\+(?:x|u00)([0-9a-fA-F]{2})", lambda two: chr(int(two[1], 16)), shown)
        unescaped = re.sub(r"(?<!\\)\\+([0-3][0-7]{2})", lambda three: chr(int(three[1], 8)), unescaped)
        yield unescaped.encode("latin-1", "replace")
    for encoding in ("latin-1", "cp1252"):
        yield text.encode(encoding, "replace")
    text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "", text, flags=re.IGNORECASE)  # UUIDs
    for digits in re.findall(r"(?:\b0x)?[0-9a-fA-F]{2}(?:[\s:,-]{0,2}(?:0x)?[0-9a-fA-F]{2}){2,}", text):
        if re.search("[a-fA-F]", digits.replace("0x", "")):  # else it is a time or a number
            yield bytes.fromhex(re.sub(r"0x|[\s:,-]", "", digits))
    for listed in re.findall(r"(?<!\d)-?\d{1,3}(?:(?:,\s*| )-?\d{1,3}){3,}(?!\d)", text):
        numbers = [int(number) for number in re.findall(r"-?\d+", listed)]
        # Not counts, versions or thousands: bytes of a frame are not all below 128.
        if all(-128 <= one < 256 for one in numbers) and not all(0 <= one < 128 for one in numbers):
            yield bytes(one % 256 for one in numbers)
    for encoded in re.findall(r"(?!84mawg)\b[A-Za-z0-9+/]{12,}", text):
        yield base64.b64decode(encoded[: len(encoded) // 4 * 4])


# -- the entries --------------------------------------------------------------------------------


def symptoms() -> list[Symptom]:
    """The sections of spec/guides/by-symptom.md."""
    guide = files(__package__).joinpath("spec", "by-symptom.md").read_text(encoding="utf-8")
    sections = [section.partition("\n") for section in guide.split("\n## ")[1:]]
    found = []
    for title, _, text in sections:
        marked = re.search("<!-- signs\n(.*?)\n-->\n", text, re.DOTALL)
        signs = tuple(marked[1].splitlines()) if marked else ()
        found.append(
            Symptom(_plain(title), _with_code(text.replace(marked[0], "") if marked else text), signs)
        )
    return found


def _pattern(template: str) -> re.Pattern[str] | None:
    """Where an error has said its text ``template``; None for one with too few words of its own."""
    parts = re.split(r"\{[^}]*\}", template)
    if len("".join(parts)) < _LEAST_OF_MESSAGE:
        return None
    return _between(parts)


def _with_code(text: str) -> str:
    """Markdown without its marks; code is indented."""
    parts = re.split(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    plain = [_plain(parts[0].strip())]
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
            messages = tuple(filter(None, map(_pattern, (kind.text, *kind.texts.values()))))
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
