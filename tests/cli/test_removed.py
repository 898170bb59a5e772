"""Commands and options that were removed say what to use instead (kpl_codec/cli/removed.py)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kpl_codec import __version__
from kpl_codec.cli.main import COMMANDS, Parser, _parser, main
from kpl_codec.cli.removed import REMOVED
from tests.guides.test_todo import problem_of

from .commands import parsers

ROOT = Path(__file__).parents[2]


def test_each_row_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """By a parser that does not know it."""
    wrong = []
    for words, instead in REMOVED.items():
        *before, name = words.split()
        parser = Parser(prog=" ".join(["kpl-codec", *before]))
        what = "option" if name.startswith("-") else "action" if before else "command"
        if what != "option":
            parser.add_subparsers(metavar=what.upper())
        with pytest.raises(SystemExit) as ended:
            parser.parse_args([name])
        said = capsys.readouterr().err
        if (
            ended.value.code != 2
            or f"{what} {name} was removed: {instead} (see {parser.prog} --help)" not in said
        ):
            wrong.append(f"{words}: {said}")
    assert not wrong, "\n".join(wrong)


def is_known(words: str) -> bool:
    """Whether the command line has this command, action or option."""
    command, _, name = words.partition(" ")
    if not name or command not in COMMANDS:
        return command in COMMANDS
    known = [
        parser for parser in parsers(_parser([command])) if parser.prog.startswith(f"kpl-codec {command}")
    ]
    return any(name in parser._option_string_actions or parser.prog.endswith(f" {name}") for parser in known)


def test_what_each_row_names_is_there() -> None:
    wrong = []
    for words, instead in REMOVED.items():
        files = [file for file in re.findall(r"spec/\S+\.md", instead) if not (ROOT / file).exists()]
        problems = [*files, problem_of(instead), "it is there" if is_known(words) else None]
        wrong += [f"{words}: {problem}" for problem in problems if problem]
    assert not wrong, "\n".join(wrong)


def test_a_hint_is_like_what_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    hints: dict[str, str | None] = {command[:-1]: command for command in COMMANDS}
    hints |= dict.fromkeys(("plan", "lint", "print", "records"))
    for typed, hint in hints.items():
        with pytest.raises(SystemExit):
            main([typed])
        found = re.search(r"did you mean (\w+)\?", capsys.readouterr().err)
        assert (found and found[1]) == hint, typed


def test_the_table_goes_with_1_0() -> None:
    assert re.match(r"0\.|1\.0\.0(a|b|rc)\d", __version__), (
        "kpl_codec/cli/removed.py and its use in main.py go"
    )
