"""Writes into the pages what the code knows: `python -m tests.guides.made`.

A page has a line `<!-- made: NAME -->`. What stands between it and `<!-- made -->` is what `MADE[NAME]` says.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kpl_codec.cli.main import COMMANDS, _parser

from ..cli.commands import parsers

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "spec").rglob("*.md"))]
_REGION = re.compile(r"(?ms)^<!-- made: ([\w-]+) -->\n.*?^<!-- made -->$")
#: The guide of a command, where it has one.
GUIDES = {
    "validate": "check-a-stream", "findings": "check-a-stream", "audit": "was-everything-handled",
    "watch": "watch", "explain": "by-symptom", "demo": "how-records-get-lost",
}  # fmt: skip
#: Of an option that so many commands have, each with the same help, the page says once what it does.
_SHARED = 3


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command, or each action of one that has several, and its parser."""
    for command in COMMANDS:
        for parser in parsers(_parser([command])):
            name = parser.prog.removeprefix("kpl-codec ")
            with_actions = any(isinstance(one, argparse._SubParsersAction) for one in parser._actions)
            if name.split()[0] == command and not with_actions:
                yield name, parser


def arguments(parser: argparse.ArgumentParser) -> dict[str, str]:
    """What a command takes: how it is written, and its help text."""
    formatter = parser._get_formatter()
    found = {}
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction):
            value = formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
            value = re.sub(r"^\[(.*)\]$", r"\1", value)
            written = f"`{' '.join(filter(None, [*action.option_strings, value]))}`"
            required = " (required)" if action.required and action.option_strings else ""
            found[written] = formatter._expand_help(action) + required
    return found


def options() -> str:
    """The options of several commands, then each command with its own, in one table."""
    counts = Counter(one for _, parser in commands() for one in arguments(parser).items())
    shared = [one for one, count in counts.items() if count >= _SHARED]
    rows = [("**several commands**", ""), *shared]
    for name, parser in commands():
        given = arguments(parser)
        also = ", ".join(re.sub(" .*`", "`", one) for one, text in shared if given.get(one) == text)
        guide = f" ([guide]({GUIDES[name]}.md))" if name in GUIDES else ""
        what = " ".join((parser.description or "").split()) + guide
        rows.append((f"**kpl-codec {name}**", what + (f" Of the above: {also}" if also else "")))
        rows += [one for one in given.items() if one not in shared]
    return "\n".join(["| | |", "|---|---|", *(f"| {option} | {text} |" for option, text in rows)])


MADE = {"options": options}


def made(page: str) -> str:
    """The page with what the code says now."""

    def region(found: re.Match[str]) -> str:
        return f"<!-- made: {found[1]} -->\n{MADE[found[1]]().strip()}\n<!-- made -->"

    return _REGION.sub(region, page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(made(path.read_text()))
