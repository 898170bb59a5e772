"""Options: what is refused when the command line is read, before anything is done."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kpl_codec import ALL_HASH_KEYS, Shard, ShardMap
from kpl_codec.cli import main as main_module
from kpl_codec.cli.main import _parser, main

from ..test_arguments import PLACES
from .test_every_command import folder, parsers, words

__all__ = ["folder"]

#: Commands that write to a folder, without the folder.
WRITERS = {
    "validate": "validate capture.json --shards shards.json --output",
    "audit": "audit --produced put.csv --handled handled.csv --output",
    "generate": "generate --output",
    "demo": "demo --output",
    "publish": "conformance --publish",
    "export": "conformance --export",
}


@pytest.mark.requirement("ARG-1")
@pytest.mark.parametrize("place", [name for name in PLACES if name not in ("empty", "home")])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_that_is_none_is_refused_at_the_option(
    writer: str,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main([*words(WRITERS[writer]), PLACES[place]])
    assert caught.value.code == 2
    assert "is no folder to write to: give s3://BUCKET/PREFIX, or a folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["new", "./s3:/new", "~/new", "file:{}/new"])
def test_a_folder_of_this_machine_is_taken(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bash leaves the ~ of --output=~/new; the command replaces it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["generate", "--user-records", "10", f"--output={place.format(tmp_path)}"]) == 0
    assert (tmp_path / place.rpartition("./")[2].removeprefix("~/").replace("file:{}/", "")).is_dir()


def test_the_package_is_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """``python -m kpl_codec``, with the exit status of the command."""
    hashing = [sys.executable, "-m", "kpl_codec", "keys", "hash", "customer-1", "--json"]
    run = subprocess.run(hashing, capture_output=True, text=True, check=False)
    assert main(["keys", "hash", "customer-1", "--json"]) == 0
    assert (run.returncode, run.stdout, run.stderr) == (0, capsys.readouterr().out, "")
    assert subprocess.run([*hashing, "--no"], capture_output=True, check=False).returncode == 2


#: Commands that work without a network, as short as can be.
LINES = [
    "audit --produced put.jsonl --handled handled.csv",
    "cat capture.json",
    "conformance --kind hash-key",
    "findings results",
    "generate --output made --user-records 10",
    "inspect frame.bin",
    "inspect frame.json",
    "keys allocate 2",
    "keys allocate 2 --shards shards.json",
    "keys hash a",
    "keys hot results",
    "repair results",
    "shards history --shards shards.json",
    "shards list --shards split.json",
    "shards predict --shards shards.json a",
    "validate capture.json --shards shards.json --output new",
    "watch --print cloudformation",
]
#: What these commands ask for only where they call AWS: `main` reads them in every case.
IDENTITY = ("--region", "--endpoint-url", "--profile", "--role-arn")
#: A value for each metavar, and for options that ask for more.
VALUES = {
    "N": "3",
    "DURATION": "30s",
    "SIZE": "800m",
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
    names: set[str] = set()

    class Parsed:
        def __init__(self, arguments: list[str]) -> None:
            self.parser = _parser(arguments)

        def parse_args(self, arguments: list[str]) -> Read:
            return Read(**vars(self.parser.parse_args(arguments)), _names=names)

    monkeypatch.setattr(main_module, "_parser", Parsed)
    try:
        return main(line), names
    except SystemExit as refused:
        return int(refused.code or 0), names


def others(line: str) -> list[tuple[argparse.Action, list[str]]]:
    """The options that a line has not, each with a value."""
    given = words(line)
    (parser,) = (
        one
        for one in parsers(_parser(given))
        if one.prog == f"kpl-codec {' '.join(given[: 1 + (given[0] in TWO)])}"
    )
    found = []
    for action in parser._actions:
        option = action.option_strings[-1] if action.option_strings else "--help"
        if option == "--help" or option in given:
            continue
        value = VALUES.get(option) or VALUES.get(str(action.metavar)) or next(iter(action.choices or ["x"]))
        found.append((action, [option, *([] if action.nargs == 0 else [str(value)])]))
    return found


TWO = ("keys", "shards")


@pytest.mark.requirement("ARG-4")
@pytest.mark.parametrize("line", LINES)
def test_every_option_is_read_or_refused(
    line: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What a command has not read cannot have changed anything."""
    here = tmp_path / "here"
    shutil.copytree(folder, here)
    monkeypatch.chdir(here)
    (here / "keys.txt").write_text("17\n")
    low, high = ALL_HASH_KEYS.split(2)
    parent = Shard("shardId-000000000000", ALL_HASH_KEYS, ending_sequence_number="9")
    children = [Shard("shardId-000000000001", low), Shard("shardId-000000000002", high)]
    (here / "split.json").write_text(ShardMap([parent, *children]).to_json())
    _, read = read_by(words(line), monkeypatch)
    ignored = []
    for action, option in others(line):
        if action.dest in read and option[0] not in IDENTITY:
            continue
        for made in ("made", "new", "other"):
            shutil.rmtree(here / made, ignore_errors=True)
        status, then = read_by([*words(line), *option], monkeypatch)
        if status != 2 and (action.dest not in then or option[0] in IDENTITY):
            ignored.append(option[0])
    assert ignored == []


#: Options that one beside them makes useless, or that contradict each other; and what is said.
REFUSED = {
    "cat capture.json --region x": "--region goes with --stream or --queue or --decode",
    "cat capture.json --decode --endpoint-url http://x": "--endpoint-url goes with --stream or --queue",
    "keys hash a --profile x": "--profile goes with a path in S3",
    "shards list --shards shards.json --role-arn arn:aws:iam::123456789012:role/r": "--role-arn goes with ",
    "validate a --shards b --output c --interval 5": "--interval goes with --follow",
    "validate --stream a --output c --distribution AUTO": "--distribution goes with --shards",
    "watch --print terraform --since 5m": "--since does nothing with --print",
    "watch --print terraform --stream a --page 8080 --otel": "--page does nothing with --print",
    "watch --stream a --all --sampling-rate 5%": "--sampling-rate does nothing with --all",
    "generate --output a --output b": "--output is given twice",
    "cat capture.json --limit 1 --limit=2": "--limit is given twice",
    "cat capture.json --since 2026-01-01 --until 2025-01-01": "--until is not after --since",
    "inspect frame.bin --sequence-number 7": "--sequence-number goes with --stream, or with a capture",
    "inspect frame.bin --raw --sequence-number 7": "--raw does nothing with --sequence-number",
    "audit --produced put.jsonl --handled handled.csv --until 2999-01-01": "--until is in the future",
    "repair results --other-stream": "--other-stream goes with --apply",
    "conformance --export new2 --timeout 5": "--timeout does nothing with --export",
}


@pytest.mark.requirement("ARG-4")
@pytest.mark.parametrize("line", REFUSED, ids=map(str, range(len(REFUSED))))
def test_what_changes_nothing_is_refused(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    with contextlib.suppress(SystemExit):
        assert main(words(line)) == 2
    assert REFUSED[line] in capsys.readouterr().err


def test_what_is_read_beside_it_is_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for line in (
        "cat capture.json --key a --key b",
        "findings results --kind hot-key --kind mixed-aggregate --json --json",
        "watch --print terraform --stream orders",
        "inspect capture.json --sequence-number 7",
    ):
        assert main(words(line)) != 2, line
