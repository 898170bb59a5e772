"""Every command, in what is the same for all: names in JSON, the width of lines, what is imported, no raw
text of others, no option that changes nothing."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import kpl_codec as kpl
from kpl_codec.cli import main as main_module
from kpl_codec.cli.main import COMMANDS, EXAMPLES, _parser, main

from ..every import every
from .commands import (
    HOSTILE,
    LINES,
    STREAM_LINES,
    UNSAFE,
    parser_of,
    parsers,
    run,
    with_json,
    words,
    write_inputs,
    write_results,
)


def test_every_command_has_a_line() -> None:
    """The demo's own test walks all of it."""
    assert {line.words.split()[0] for line in (*LINES, *STREAM_LINES)} == COMMANDS.keys() - {"demo"}


def values_in(text: str) -> list[Any]:
    """A JSON value, or one in each line."""
    try:
        return [json.loads(text)]
    except ValueError:
        return list(map(json.loads, text.splitlines()))


def names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from names(inner)


@every("line", [*with_json(LINES[:-1]), "cat AT/in"])
def test_names_in_json_are_in_camel_case(line: str, folder: Path) -> None:
    ended = run(line)
    assert ended.status in (0, 1)
    found = values_in(ended.out)
    wrong = {name for name in names(found) if not re.fullmatch("[a-z][a-zA-Z0-9]*", name)}
    assert found
    assert wrong <= {"not-judged", "explicit-hash-key-implied"}  # these are values


@every(
    ("line", "status", "why"),
    [
        ("cat none.json", 1, "there is no Kinesis record in none.json"),
        ("cat shards.json", 1, "there is no Kinesis record in shards.json"),
        ("cat none.json --since 1h", 1, "there is no Kinesis record in none.json with --since"),
        (
            "cat capture.json --key x --until 5m",
            1,
            "nothing to print: of 3 user records in capture.json, none is let through by --key and --until",
        ),
        ("findings clean", 0, "there is no finding in clean"),
        ("findings clean --json-lines", 0, "there is no finding in clean"),
        (
            "findings results --kind hot-key",
            0,
            "nothing to print: of 4 findings in results, none is let through by --kind",
        ),
    ],
)
def test_who_prints_nothing_says_of_how_many(line: str, status: int, why: str, folder: Path) -> None:
    ended = run(line)
    assert (ended.status, ended.out) == (status, "")
    assert ended.err.startswith(f"kpl-codec: {why}\n")  # then what was left out, if anything was


def test_paths_stand_before_behind_and_between_options(folder: Path) -> None:
    for line in ("cat A --limit 4 B", "cat --limit 4 A B", "cat A B --limit 4"):
        ended = run(line.replace("A", "frame.json").replace("B", "capture.json"))
        assert (ended.status, len(ended.out.splitlines())) == (0, 4), line


@every("command", COMMANDS)
def test_help_has_two_examples_and_fits_a_page(command: str) -> None:
    with mock.patch.dict(os.environ, COLUMNS="200"):
        (own,) = (one for one in parsers(_parser([command])) if one.prog == f"kpl-codec {command}")
        for parser in parsers(own):
            text = parser.format_help()
            assert max(map(len, text.splitlines())) <= 88
            assert parser is not own or text.count(f"  kpl-codec {command}") >= 2
    for example in EXAMPLES[command]:
        assert _parser([command]).parse_args([command, *example.split()]).run is not None


def test_the_version_says_what_a_bug_report_needs() -> None:
    lines = run("--version").out.splitlines()
    assert re.fullmatch(r"kpl-codec \S+ \((compiled|pure Python)\)", lines[0])
    assert [text.split()[0] for text in lines[1:]] == ["Python", "boto3", "pyarrow", "pyspark"]


#: HOSTILE stands for the text. These have it as an argument; `LINES` have it in what they read.
HOSTILE_LINES = [
    "HOSTILE",
    "--HOSTILE",
    "cat HOSTILE",
    "cat HOSTILE.json",
    "explain HOSTILE",
    "findings HOSTILE",
    "inspect HOSTILE",
    "keys hash HOSTILE",
    "keys hash HOSTILE --json",
    "shards list --shards HOSTILE",
    "shards predict --shards shards.json HOSTILE",
    "validate HOSTILE.json --shards shards.json --output other --quiet --json",
    "validate HOSTILE --shards shards.json --output third",
]


@pytest.mark.slow
def test_no_command_writes_foreign_text_raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_inputs(tmp_path, HOSTILE)
    (tmp_path / f"{HOSTILE}.json").write_text((tmp_path / "capture.json").read_text() + "{")
    monkeypatch.chdir(tmp_path)
    write_results(tmp_path)
    lines = [words(line) for line in (*(one.words for one in LINES), *with_json(LINES))]
    for line in HOSTILE_LINES:
        lines.append([w.replace("HOSTILE", HOSTILE) for w in line.split()])
    raw, shown = [], 0
    for line in lines:
        _, out, err = run(line, COLUMNS="120")
        assert out + err, line
        shown += "31m" in out  # a part of the text that does no harm
        raw += [(line, found[0]) for found in (UNSAFE.search(out), UNSAFE.search(err)) if found]
        if "--json" in line and out:
            values_in(out)
    assert not raw
    assert shown >= 19


# -- options --------------------------------------------------------------------------------------

#: What commands ask for only where they call AWS: `main` reads them in every case.
IDENTITY = ("--region", "--endpoint-url", "--profile", "--role-arn")
#: A value for each metavar, and for options that ask for more.
VALUES = {
    "N": "3",
    "DURATION": "30s",
    "WHEN": "2026-01-01",
    "FILE": "keys.txt",
    "DIR": "other",
    "RATE": "5%",
    "PATH": "put.jsonl",
    "URL": "http://127.0.0.1:1",
    "[ADDRESS:]PORT": "8080",
    "ARN": "arn:aws:iam::123456789012:role/reader",
    "--kind": "hash-key",
    "--only": "keys.txt",
}


class Read(argparse.Namespace):
    """Arguments that know which of them were read."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            super().__getattribute__("_names").add(name)
        return super().__getattribute__(name)


def read_by(line: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, set[str]]:
    """The exit status of a command, and the names of the arguments that it has read."""
    read: set[str] = set()

    class Parsed:
        def __init__(self, arguments: list[str]) -> None:
            self.parser = _parser(arguments)

        def parse_args(self, arguments: list[str]) -> Read:
            return Read(**vars(self.parser.parse_args(arguments)), _names=read)

    monkeypatch.setattr(main_module, "_parser", Parsed)
    try:
        return main(line), read
    except SystemExit as refused:
        return int(refused.code or 0), read


def others(line: str) -> list[tuple[argparse.Action, list[str]]]:
    """The options that a line has not, each with a value."""
    found = []
    for action in parser_of(line)._actions:
        option = action.option_strings[-1] if action.option_strings else "--help"
        if option == "--help" or option in line.split():
            continue
        value = VALUES.get(option) or VALUES.get(str(action.metavar)) or next(iter(action.choices or ["x"]))
        found.append((action, [option, *([] if action.nargs == 0 else [str(value)])]))
    return found


@pytest.mark.requirement("ARG-4")
@pytest.mark.parametrize("line", [line.words for line in LINES])
def test_every_option_is_read_or_refused(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a command has not read cannot have changed anything."""
    _, read = read_by(words(line), monkeypatch)
    ignored = []
    for action, option in others(line):
        if action.dest in read and option[0] not in IDENTITY:
            continue
        for made in ("new", "other", "audit"):
            shutil.rmtree(made, ignore_errors=True)
        status, then = read_by([*words(line), *option], monkeypatch)
        if status != 2 and (action.dest not in then or option[0] in IDENTITY):
            ignored.append(option[0])
    assert ignored == []


#: Numbers and times at the edge of what Python can count.
EDGES = (
    "9" * 20,
    f"{'9' * 20}d",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "9" * 5000,
    "nan",
)


@every("name", COMMANDS)
def test_no_option_takes_an_empty_text_or_a_number_without_end_or_can_be_abbreviated(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty text comes from a variable of the shell that is not set: it is no missing option. A newer
    option with the same beginning would give an abbreviation another meaning."""
    for parser in parsers(_parser([name])):
        for action in parser._actions:
            option = [*action.option_strings[-1:]]
            if not action.metavar or action.metavar == "COMMAND" or action.nargs == argparse.PARSER:
                continue
            with pytest.raises(SystemExit):
                parser.parse_args([*option, ""])
            assert f"argument {option[0] if option else action.metavar}: " in capsys.readouterr().err
            for text in EDGES:
                with contextlib.suppress(argparse.ArgumentError):
                    value = parser._get_value(action, text)
                    assert not isinstance(value, int) or 0 <= value <= sys.maxsize
        options = [option for option in parser._option_string_actions if option.startswith("--")]
        for short in {option[:-1] for option in options}.difference(options):
            with pytest.raises(SystemExit):
                parser.parse_args([short])
            assert f"unknown option {short}; did you mean --" in capsys.readouterr().err


#: What a person may write for a value that is wrong somewhere: as a number, a name, a path, a URL.
WRONG_VALUES = ("abc", "-5", "0", "9" * 5000, "a\nb", "\udcff", "\u00b2", "http://[", "~nobody")


def check_wrong_values(lines: list[list[str]]) -> None:
    """Each option and argument of the lines' commands, with each wrong value: an exit status, and the refusal
    is one line."""
    seen, bad = set(), []
    for line in lines:
        parser = parser_of(" ".join(line))
        for action in parser._actions:
            name = action.option_strings[-1] if action.option_strings else ""
            # One function adds these to all commands.
            of = "" if name in (*IDENTITY, "--stream") else parser.prog
            if action.nargs == 0 or (of, action.dest) in seen:
                continue
            seen.add((of, action.dest))
            at = line.index(name) + 1 if name in line else None
            for value in WRONG_VALUES:
                wrong = [*line, f"{name}={value}" if name else value]
                if at is not None:
                    wrong = [*line[:at], value, *line[at + 1 :]]
                try:
                    ended = run(wrong)
                except Exception as error:  # noqa: BLE001 - `entry` prints a traceback for any
                    bad.append((parser.prog, name, value[:20], repr(error)))
                    continue
                refused = ended.status != 2 or re.fullmatch(r"kpl-codec: [^\n]+\n", ended.err)
                if ended.status not in (0, 1, 2) or not refused:
                    bad.append((parser.prog, name, value[:20], ended.err[:200]))
    assert bad == []


def test_no_wrong_value_ends_with_a_traceback(folder: Path) -> None:
    check_wrong_values([words(line.words) for line in LINES])


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.requirement("SPK-19")
def test_no_wrong_value_for_a_stream_ends_with_a_traceback(
    kinesis_local: Any, stream: str, connection: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = kpl.encode([kpl.UserRecord("a", b"1")])
    put = {"StreamName": stream, "Data": frame, "PartitionKey": "a", "ExplicitHashKey": "0"}
    number = kinesis_local.client().put_record(**put)["SequenceNumber"]
    lines = [line.words.replace("NUMBER", number) for line in STREAM_LINES if "follow" not in line.words]
    check_wrong_values([[*words(line), *connection] for line in lines])


# -- what is imported, and completed --------------------------------------------------------------

#: What packages a command may import before its first answer, and how many modules of this one. Time goes
#: with it: 0.06 s of CPU for the first line, 0.22 s for the last.
FIRST_ANSWERS: dict[str, tuple[set[str], int]] = {
    "--help": (set(), 40),
    **{f"{name} --help": (set(), 85) for name in COMMANDS},
    "explain gap": ({"rich"}, 90),
    "keys hash a": ({"rich"}, 65),
    "shards list --shards shards.json": ({"rich"}, 65),
    "cat capture.json": ({"numpy", "pyarrow"}, 85),
}
#: Runs each of its arguments in a process that has imported no more than the parser.
_IMPORTED = """
import json, os, sys
from kpl_codec.cli.main import main
for line in sys.argv[1:]:
    if os.fork():
        assert os.wait()[1] == 0
        continue
    try:
        main(line.split())
    except SystemExit:
        pass
    print()
    print(json.dumps(sorted(name for name, module in sys.modules.items() if module is not None)), flush=True)
    os._exit(0)
"""


def test_little_is_imported_for_a_first_answer(folder: Path) -> None:
    command = [sys.executable, "-c", _IMPORTED, *FIRST_ANSWERS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    ours, too_much = {"kpl_codec", "cython_runtime"}, []
    for (line, (packages, own)), modules in zip(FIRST_ANSWERS.items(), imported, strict=True):
        tops = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - ours - packages
        foreign = {top for top in tops if not top.startswith("_")}
        count = sum(name.startswith("kpl_codec") for name in modules)
        too_much += [(line, foreign, count)] if foreign or count > own else []
    assert not too_much


def completed(typed: str) -> set[str]:
    """What a shell would offer after ``typed``."""
    environment = {
        **os.environ, "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "bash",
        "COMP_LINE": typed, "COMP_POINT": str(len(typed)), "COMP_TYPE": "9",
    }  # fmt: skip
    code = "import os; os.dup2(1, 8); from kpl_codec.cli.main import main; main()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return {word.strip() for word in done.stdout.split("\n")} - {""}


def test_commands_options_and_choices_are_completed() -> None:
    assert completed("kpl-codec ") >= COMMANDS.keys()
    assert {"--fail-on", "--shards"} <= completed("kpl-codec validate --")
    assert completed("kpl-codec validate --fail-on ") == {"critical", "error", "warning", "info"}
