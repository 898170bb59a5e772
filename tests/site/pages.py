"""The pages of the site that are made: the API, the command line, error codes, findings.

Every public name of `tests.test_surface.PUBLIC` gets an entry, from its docstring and annotations.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from html import escape
from importlib import import_module
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import kpl_codec
import kpl_codec.errors
from kpl_codec.cli.explain import error_classes
from kpl_codec.cli.main import COMMANDS, _parser
from kpl_codec.findings import KINDS, SEVERITIES
from kpl_codec.rendering.svg import element

from ..test_surface import names_of

ROOT = Path(__file__).parents[2]
#: What a page of the API is called in the navigation, in this order; its module's name after kpl_codec.
TITLES = {
    "": "kpl_codec: bytes, records, shard maps and errors",
    ".aws": "kpl_codec.aws: streams, shard maps, records by sequence number",
    ".producer": "kpl_codec.producer: producers, settings and results",
    ".schema_registry": "kpl_codec.schema_registry: Glue Schema Registry",
    ".aws_lambda": "kpl_codec.aws_lambda: handlers of Kinesis and Firehose events",
    ".aws.aio": "kpl_codec.aws.aio: readers for asyncio",
    ".aws_lambda.aio": "kpl_codec.aws_lambda.aio: asyncio",
    ".aws_lambda.powertools": "kpl_codec.aws_lambda.powertools",
    ".aws_lambda.parser": "kpl_codec.aws_lambda.parser: pydantic",
    ".kcl": "kpl_codec.kcl: record processors with a ledger",
    ".audit": "kpl_codec.audit: ledgers of what was put and handled",
    ".adapters": "kpl_codec.adapters: answers and events",
    ".arrow": "kpl_codec.arrow: tables and batches",
    ".spark": "kpl_codec.spark",
    ".validate": "kpl_codec.validate",
    ".testing.strategies": "kpl_codec.testing.strategies",
    ".testing.faults": "kpl_codec.testing.faults",
    ".testing.local_kinesis": "kpl_codec.testing.local_kinesis",
}
#: The guides that a page of the API links.
GUIDES = {
    "": ("read",),
    ".aws": ("read", "s3-and-accounts"),
    ".producer": ("write", "services", "dead-letters"),
    ".schema_registry": ("schema-registry",),
    ".aws_lambda": ("lambda", "test-a-handler"),
    ".aws.aio": ("local-kinesis",),
    ".aws_lambda.aio": ("lambda",),
    ".aws_lambda.powertools": ("lambda",),
    ".aws_lambda.parser": ("lambda",),
    ".kcl": ("kcl",),
    ".audit": ("was-everything-handled",),
    ".adapters": ("read", "check-captures", "forward"),
    ".arrow": ("notebooks",),
    ".spark": ("spark",),
    ".validate": ("check-captures", "notebooks"),
    ".testing.strategies": ("fuzz-your-consumer",),
    ".testing.faults": ("local-kinesis",),
    ".testing.local_kinesis": ("local-kinesis", "ci"),
}
#: The keyword options that functions and classes of a page share, as ``**options``.
OPTIONS = {
    ".producer": ("kpl_codec.producer.config.ProducerOptions",),
    ".aws_lambda": ("kpl_codec.aws_lambda.events.HandlerOptions", "kpl_codec.aws_lambda.events.OpenOptions"),
    ".arrow": ("kpl_codec.arrow.Options",),
}


def file_of(module: str) -> str:
    """The page of a public module, in ``api/``."""
    return f"{module.removeprefix('.') or 'kpl_codec'}.md"


def _home(name: str, thing: Any) -> str:
    """Where ``thing`` is defined, which its docstring can be read from."""
    if inspect.isclass(thing) or inspect.isfunction(thing):
        return f"{thing.__module__}.{thing.__name__}"
    return name


def _rank(thing: Any) -> int:
    """Functions come first, then classes, constants, errors."""
    if inspect.isclass(thing):
        return 3 if issubclass(thing, kpl_codec.errors.KplError) else 1
    return 0 if inspect.isfunction(thing) else 2


def _link(guide: str) -> str:
    """A link to a guide, by its title, from a page of the API."""
    title = (ROOT / f"spec/guides/{guide}.md").read_text().partition("\n")[0].removeprefix("# ")
    return f"[{title}](../spec/guides/{guide}.md)"


def examples_of(module: str) -> list[tuple[list[str], str]]:
    """The sections of ``spec/api/``'s page for a public module: names, and examples that the tests run."""
    page = (ROOT / f"spec/api/kpl_codec{module}.md").read_text()
    sections = [section.partition("\n") for section in page.split("\n## ")[1:]]
    return [(heading.split(", "), text.strip()) for heading, _, text in sections]


def api_pages() -> Iterator[tuple[str, str]]:
    """(file, Markdown) of each public module. What several modules offer has its entry in the first."""
    places: dict[int, str] = {}
    for module in TITLES:
        text = inspect.getdoc(import_module(f"kpl_codec{module}")) or ""
        # Which module does what is for contributors.
        text = text.partition("\n\nModules")[0]
        name, colon, what = TITLES[module].partition(":")  # a name may break at its dots
        title = name.replace(".", ".<wbr>") + colon + what
        lines = [f"# {title} {{#kpl_codec{module}}}", "", text, ""]
        lines += [f"Guides: {', '.join(map(_link, GUIDES[module]))}.", ""]
        # The examples of a page are one program: each goes on where the one before it ended.
        sections = examples_of(module)
        names = [names[0] for names, _ in sections]
        before = ["", *(f", after [that of {name}][kpl_codec{module}.{name}]" for name in names)]
        examples = {
            name: f"**Example**{after}\n\n{text}"
            for after, (names, text) in zip(before, sections, strict=False)
            for name in names
        }
        shown: dict[str, str] = {}
        # Of a kind, what the page of examples begins with comes first.
        names_there = sorted(names_of(module).items(), key=lambda one: [*examples].index(one[0]))
        for name, thing in sorted(names_there, key=lambda one: _rank(one[1])):
            public = f"kpl_codec{module}.{name}"
            if (inspect.isclass(thing) or inspect.isfunction(thing)) and id(thing) in places:
                lines += [f"## {name} {{#{public}}}", "", f"The same as [{places[id(thing)]}][].", ""]
                continue
            places[id(thing)] = public
            lines += [f"[](){{#{public}}}", "", f"::: {_home(public, thing)}", "    options:"]
            lines += [f"      heading: {name}"]
            if _rank(thing) == 3:  # its fields are beside its codes
                lines += ["      members: false", "      show_bases: true", ""]
                lines += [f"[Its codes](../errors.md#{name})."]
            example = examples[name]
            lines += ["", f"Example: [{shown[example]}][]." if example in shown else example, ""]
            shown.setdefault(example, public)
        for name in OPTIONS.get(module, ()):
            lines += [f"::: {name}", ""]
        yield file_of(module), "\n".join(lines)


def plain_fences(page: str) -> str:
    """The page with code blocks as the site's Markdown knows them: ``file=x.py`` becomes the block's title;
    the other options are for `tests.guides`."""

    def plain(found: re.Match[str]) -> str:
        named = re.search(r"\bfile=(\S+)", found["options"])
        return f'{found["fence"]} title="{named[1]}"' if named else found["fence"]

    return re.sub(r"^(?P<fence> *```\w+)(?P<options>( \w+=\S+)+)$", plain, page, flags=re.MULTILINE)


def home_page() -> str:
    """`home.md` with README's doors: a tab for each of its sections that begin with "I"."""
    readme = (ROOT / "README.md").read_text()
    doors = [section.partition("\n") for section in readme.split("\n## ")[1:] if section.startswith("I ")]
    tabs = [
        f'=== "{heading}"\n\n{indent(text.strip(), "    ")}\n' for heading, _, text in doors
    ]  # a tab's content is indented
    picture = " ".join(readme.partition("![")[2].partition("]")[0].split())
    parts = {"doors": "\n".join(tabs), "picture": picture, "version": kpl_codec.__version__}
    page = (Path(__file__).parent / "home.md").read_text()
    for name, text in parts.items():
        page = page.replace(f"{{{{{name}}}}}", text)
    return page


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """The section of a command: what it does, a table of its arguments, each with an anchor, what its help
    ends with; then the sections of its own commands."""
    place = name.replace(" ", "-")
    yield f"{'###' if ' ' in name else '##'} kpl-codec {name} {{#{place}}}\n\n{parser.description}\n"
    formatter = parser._get_formatter()
    rows = []
    for action in parser._actions:
        if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
            continue
        value = formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
        names = ", ".join(action.option_strings)
        anchor = f"{place}-{action.dest}"
        link = element("a", {"href": f"#{anchor}"}, element("code", {}, names or value))
        shown = [link, " ", element("code", {}, value)] if names and value else [link]
        if action.required and names:
            shown.append(" (required)")
        parts = formatter._expand_help(action).split("`")
        text = [element("code", {}, part) if at % 2 else part for at, part in enumerate(parts)]
        rows.append(element("tr", {"id": anchor}, element("td", {}, *shown), element("td", {}, *text)))
    if rows:
        yield element("table", {}, element("tbody", {}, rows)) + "\n"
    said, _, examples = (parser.epilog or "").rpartition("Examples:\n")
    for part in filter(None, said.strip().split("\n\n")):
        yield f"```text\n{part}\n```\n" if re.search("^ ", part, re.MULTILINE) else f"{escape(part)}\n"
    if examples:
        yield f"```sh\n{dedent(examples)}\n```\n"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below, inner in action.choices.items():
                yield from _command(f"{name} {below}", inner)


def command_page() -> str:
    """Every command and its own commands."""
    common = "[The command line](spec/guides/command-line.md) says what all commands have in common."
    lines = ["# Commands", "", common, ""]
    for name in COMMANDS:
        (commands,) = (a for a in _parser([name])._actions if isinstance(a, argparse._SubParsersAction))
        lines += _command(name, commands.choices[name])
    return "\n".join(lines)


def errors() -> Iterator[type[kpl_codec.errors.KplError]]:
    """Every error class of the library, those of all its modules."""
    for _ in error_classes():  # imports them all
        pass

    def below(parent: type[kpl_codec.errors.KplError]) -> Iterator[type[kpl_codec.errors.KplError]]:
        for child in parent.__subclasses__():
            yield child
            yield from below(child)

    yield from {
        f"{error.__module__}.{error.__name__}": error for error in below(kpl_codec.errors.KplError)
    }.values()


def error_page() -> str:
    """Every error class with its codes: what each says, whom it concerns."""
    lines = ["# Error codes", "", "`kpl-codec explain CODE` prints the same in a terminal.", ""]
    for error in sorted(errors(), key=lambda error: error.__name__):
        own = vars(error)
        codes = own.get("codes") or ((error.code,) if "code" in own else ())
        meaning = (inspect.getdoc(error) or "").split("\n\n")[0].replace("\n", " ")
        lines += [f"## {error.__name__} {{#{error.__name__}}}", "", meaning, ""]
        requirement = f" Requirement: {error.requirement}." if error.requirement else ""
        if codes:
            lines += [f"Codes: {', '.join(f'`{code}`' for code in codes)}.{requirement}", ""]
        lines += [f"**Who is affected:** {error.concerns}", ""]
        if hasattr(error, "todo"):
            lines += [f"**What to do:** {error.todo}", ""]
    return "\n".join(lines)


def finding_page() -> str:
    """Every kind of finding, worst first."""
    lines = [
        "# Findings",
        "",
        "What `validate`, `watch`, `audit` and the Lambda helpers report, worst first.",
        "",
    ]
    for severity in SEVERITIES:
        lines += [f"## {severity.capitalize()}", ""]
        for kind in KINDS.values():
            if kind.severity == severity:
                requirement = f" ({kind.requirement})" if kind.requirement else ""
                lines += [
                    f"### {kind.name} {{#{kind.name}}}", "",
                    f"**{kind.title}**{requirement}. {kind.meaning}", "",
                    f"*Who is affected:* {kind.concerns}", "", f"*What to do:* {kind.todo}", "",
                ]  # fmt: skip
    return "\n".join(lines)
