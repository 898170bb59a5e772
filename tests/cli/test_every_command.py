"""What holds for every command: the names in its JSON, and no traceback, whatever its streams are."""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kpl_codec import ShardMap, UserRecord, encode
from kpl_codec.cli.main import COMMANDS, _parser, main
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.ledger.ledger import Ledger
from kpl_codec.shards.shard import Shard
from tests.widths import COLUMNS, too_wide

pytestmark = pytest.mark.timeout(120)
SHARD = "shardId-000000000000"
JSON = [
    "audit --produced put.jsonl --handled handled.csv --json",
    "cat capture.json",
    "conformance --kind hash-key --json",
    "findings results --json",
    "inspect frame.bin --json",
    "inspect broken.bin --json",
    "keys hash a --json",
    "keys hot results --json",
    "keys allocate 2 --json",
    "shards history --shards shards.json --json",
    "shards list --shards shards.json --json",
    "shards predict --shards shards.json a --json",
    "validate capture.json --shards shards.json --output new --quiet --json",
]
#: What commands print for people, or why a command is not here.
TEXTS = [
    "audit --produced put.jsonl --handled handled.csv",
    "cat capture.json",
    "conformance --failures --lines --kind decode -- python unopened.py",
    "explain",
    "explain UnicodeDecodeError mixed-aggregate",
    "explain mixed-aggregate",
    "explain FRM-3",
    "explain 84mawgoB",
    "findings results",
    "generate --output made --user-records 20 --per-aggregate 5",
    "inspect broken.bin",
    "inspect joined.bin --raw",
    "keys allocate 3",
    "keys hash a",
    "keys hot results",
    "repair results",
    "shards history --shards shards.json",
    "shards list --shards shards.json",
    "shards predict --shards shards.json a",
    "validate capture.json --shards shards.json --output new --quiet",
]
#: A decoder that takes every frame for a plain record.
UNOPENED = """\
import sys
for line in sys.stdin:
    print("name unopened\\nops decode" if line.startswith("hello") else "plain")
    print("end", flush=True)
"""
NOT_TEXTS = {"demo": "test_demo.py", "watch": "tests/watch: it writes to standard error"}


def ledger_of(records: dict[str, bytes]) -> str:
    """The lines of a producer's ledger, by sequence number."""
    lines: list[str] = []
    writer = Ledger(lines.append).writer("orders")
    for number, data in records.items():
        writer.put(SHARD, number, "a", data)
    writer.close()
    return "\n".join((*lines, ""))


def write_inputs(folder: Path, foreign: str = "") -> None:
    """A capture of one shard with a broken frame in it, its listing, and other files that commands read.
    ``foreign``: more text in the keys, names, sequence numbers and shard ids."""
    shard, stream, key = SHARD + foreign, f"orders{foreign}", f"a{foreign}"
    shards = ShardMap([Shard(shard, ALL_HASH_KEYS, starting_sequence_number="1")])
    (folder / "shards.json").write_text(shards.to_json())
    frame = encode([UserRecord(key, b"1"), UserRecord("b", b"2" + foreign.encode(), "7")])
    (folder / "frame.bin").write_bytes(frame)
    (folder / "broken.bin").write_bytes(frame[:-1] + bytes([frame[-1] ^ 1]))
    (folder / "joined.bin").write_bytes(frame + frame)
    (folder / "unopened.py").write_text(UNOPENED)
    records = [
        {"SequenceNumber": number + foreign, "PartitionKey": key, "Data": base64.b64encode(data).decode()}
        for number, data in (("7", frame), ("8", frame[:-1] + bytes([frame[-1] ^ 1])))
    ]
    (folder / "capture.json").write_text(json.dumps({"StreamName": stream, "Records": records}))
    text = json.dumps({"StreamName": stream, "ShardId": shard, "Records": records[:1]})
    (folder / "frame.json").write_text(text)
    (folder / "none.json").write_text('{"Records": []}')
    (folder / "folder").mkdir()
    (folder / "put.jsonl").write_text(ledger_of({"7": frame, "8": b"plain"}))
    (folder / "handled.csv").write_text(
        f"shard,sequence_number,sub_sequence_number\n{SHARD},7,0\n{SHARD},8,0\n"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs, and the results of validate and audit."""
    folder = tmp_path_factory.mktemp("every-command")
    write_inputs(folder)
    here = os.getcwd()
    os.chdir(folder)
    try:
        for capture, output, status in (
            ("capture.json", "results", 1),
            ("frame.json", "clean", 0),
            ("none.json", "nothing", 1),
        ):
            line = f"validate {capture} --shards shards.json --output {output} --quiet"
            assert main(words(line)) == status
        line = "audit --produced put.jsonl --handled handled.csv --output audited --json"
        assert main(words(line)) == 1
    finally:
        os.chdir(here)
    return folder


def command(line: str, folder: Path, streams: str = "") -> subprocess.CompletedProcess[str]:
    started = f"{shlex.quote(sys.executable)} -m kpl_codec.cli.main {line} {streams}"
    return subprocess.run(["bash", "-c", started], cwd=folder, capture_output=True, text=True, check=False)


def words(line: str) -> list[str]:
    """A line as bash hands it over, bytes that are no UTF-8 included."""
    return [word.removeprefix("$").replace("\\xff", "\udcff") for word in shlex.split(line)]


def names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from names(inner)


@pytest.mark.parametrize("line", JSON)
def test_names_in_json_are_in_camel_case(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(line.split()) in (0, 1)
    text = capsys.readouterr().out
    try:
        found = [json.loads(text)]
    except ValueError:
        found = list(map(json.loads, text.splitlines()))
    wrong = {name for name in names(found) if not re.fullmatch("[a-z][a-zA-Z0-9]*", name)}
    assert found
    assert wrong <= {"not-judged"}  # a value of the column kcl


@pytest.mark.parametrize("columns", [None, COLUMNS])
@pytest.mark.parametrize("line", TEXTS)
def test_no_line_is_wider_than_the_page(
    line: str,
    columns: int | None,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a pipe, and on a terminal of 100 columns."""
    monkeypatch.chdir(folder)
    if columns:
        monkeypatch.setenv("COLUMNS", str(columns))
    arguments = [str(tmp_path / word) if word in ("made", "new") else word for word in line.split()]
    if arguments[0] == "repair":  # it writes a plan, once
        shutil.copytree("results", tmp_path / "results")
        arguments[1] = str(tmp_path / "results")
    assert main(arguments) in (0, 1)
    text = capsys.readouterr().out
    assert text
    assert not too_wide(text)


def test_every_command_has_its_lines_measured() -> None:
    assert COMMANDS.keys() - NOT_TEXTS.keys() == {line.partition(" ")[0] for line in TEXTS}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("cat none.json", "there is no Kinesis record in none.json"),
        ("cat shards.json", "there is no Kinesis record in shards.json"),
        ("cat none.json --since 1h", "there is no Kinesis record in none.json with --since"),
        (
            "cat capture.json --key x --until 5m",
            "nothing to print: of 3 user records in capture.json, none is let through by --key and --until",
        ),
        ("findings clean", "there is no finding in clean"),
        ("findings clean --json", "there is no finding in clean"),
        (
            "findings results --kind hot-key",
            "nothing to print: of 1 finding in results, none is let through by --kind",
        ),
        ("keys hot nothing", "there is no user record with a partition key in nothing"),
        ("keys hot audited", "there is no user record with a partition key in audited"),
        ("conformance --failures --kind placement", "all of 19 vectors passed: there is no failure to list"),
    ],
)
def test_who_prints_nothing_says_of_how_many(
    line: str, why: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    status = main(line.split())
    assert status == 1 if "there is no Kinesis record" in why else status in (0, 1)
    output = capsys.readouterr()
    assert output.err.startswith(f"kpl-codec: {why}\n")  # then what was left out, if anything was
    assert line.startswith("conformance") or output.out == ""


def test_shards_take_the_json_of_shards_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shards", "list", "--shards", str(folder / "shards.json"), "--json"]) == 0
    listed = capsys.readouterr().out
    text = (folder / "shards.json").read_text()
    assert ShardMap.from_json(listed) == ShardMap.from_json(text) == ShardMap.from_json(text.encode("utf-16"))


@pytest.mark.parametrize(
    ("streams", "status"),
    [(">&-", 2), ("2>&-", 0), ("<&- >&- 2>&-", 2), (">/dev/full", 2), ("2>/dev/full", 0)],
)
@pytest.mark.parametrize(
    "line",
    [
        "cat -- capture.json",
        *(
            pytest.param(line, marks=pytest.mark.slow)
            for line in ("shards list --shards shards.json", "findings results")
        ),
    ],
)
def test_streams_that_take_nothing_give_no_traceback(
    line: str, streams: str, status: int, folder: Path
) -> None:
    done = command(line, folder, streams)
    assert done.returncode == (1 if not line.startswith("shards") and status == 0 else status)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


#: What a command refuses, too.
WRONG = [
    "cat x --stream s",
    "cat x --follow",
    "cat folder/nothing.json",
    "cat $'not\\xffutf8'",
    "cat --stream orders --endpoint-url nonsense --region x",
    "cat --stream orders --profile nobody",
    "cat frame.bin --decode --profile nobody",
    "conformance -- ./nosuch",
    "conformance -- ./capture.json",
    "conformance -- false",
    "conformance --kind nothing",
    "cat capture.json --since tomorrow",
    "findings capture.json",
    "generate --output capture.json",
    "inspect",
    "inspect abcd --raw",
    "inspect xyz!",
    "inspect abc",
    "inspect --stream s",
    "keys allocate 0",
    "keys allocate 2 --existing folder",
    "keys hash",
    "keys hash $'\\xff'",
    "keys hash --keys-from frame.bin",
    "keys hot capture.json",
    "keys allocate 1 --existing capture.json",
    "repair folder",
    "repair capture.json",
    "shards list --shards capture.json",
    "shards list --shards folder",
    "shards predict --shards shards.json",
    "validate capture.json --shards folder --output new2",
    "validate capture.json --shards shards.json --output capture.json",
    "validate capture.json --shards shards.json --output frame.bin/below",
    "validate --stream orders --output new2 --engine local --region x --endpoint-url http://127.0.0.1:1",
    "generate --output new2 --data-size 2000000",
    "generate --output new2 --data-size 0 --per-aggregate 10000000 --user-records 10000000",
    "generate --output new2 --mixed-every -1",
    "generate --output new2 --mixed-every 2 --shard-count 1",
    "cat capture.json --limit -1",
    "findings results --limit 0",
    "keys hot results --limit many",
    "validate --stream orders --output new2 --follow --interval 0",
    "conformance --timeout soon",
    "demo --output new2 --user-records 0",
    "",
    "nonsense",
    "demo nonsense",
    "keys",
    "validate x",
    "watch",
]
MISSING = "cannot read nosuch: no such file or folder"
RESULTS = "; give the --output of kpl-codec validate"
#: What a command refuses, and a part of what it says.
REFUSED = [
    ("audit --produced nosuch --handled nosuch", MISSING),
    (
        "audit --produced capture.json --handled capture.json --repaired nosuch",
        "cannot read HERE/nosuch: no such file or folder",
    ),
    ("cat nosuch", MISSING),
    ("cat --stream orders --only nosuch", MISSING),
    ("explain --nothing", "unknown option --nothing (see kpl-codec explain --help)"),
    ("findings nosuch", MISSING + RESULTS),
    ("inspect nosuch", MISSING),
    ("keys allocate --existing nosuch", MISSING),
    ("keys hash --keys-from nosuch", MISSING),
    ("keys hot nosuch", MISSING + RESULTS),
    ("repair nosuch", MISSING + RESULTS),
    ("shards list --shards nosuch", MISSING),
    ("validate nosuch --shards shards.json --output new2", MISSING),
    ("validate capture.json --shards nosuch --output new2", MISSING),
    ("findings folder", "cannot read folder: it has no findings" + RESULTS),
    ("keys hot frame.bin", "cannot read frame.bin: it is a file, not a folder" + RESULTS),
    ("inspect folder", "cannot read folder: it is a folder, not a file"),
    (
        "inspect joined.bin",
        "joined.bin holds several aggregated records: the first ends at byte 45; kpl-codec cat and "
        "validate read each (--raw takes it as one record)",
    ),
    ("demo --output frame.bin", "HERE/frame.bin: it is a file (name a new or empty folder)"),
    ("generate --output frame.bin", "HERE/frame.bin: it is a file (name a new or empty folder)"),
    ("generate --output frame.bin/x", "cannot write to HERE/frame.bin/x: a part of the path is a file, not"),
    ("generate --output /proc/x", "cannot write to /proc/x: no such file or folder"),
    ("demo --output /proc/x", "cannot write to /proc/x: no such file or folder"),
    ("shards list --shards frame.bin", "`kpl-codec shards list --json` prints"),
    ("cat", "give either PATH (- for standard input), or --stream NAME, or --queue NAME"),
    ("validate --output c", "give either PATH (- for standard input), or --stream NAME"),
    ("watch --stream orders --since 5m", "--since needs --all"),
    ("cat --dead-letters", "--dead-letters goes with --queue, and --restore with --dead-letters"),
    ("validate a --shard-map b --output c", "did you mean --shards? (see kpl-codec validate --help)"),
    ("shards predict --key a --stream s", "unknown option --key; did you mean --keys-from?"),
    ("keys hash a --nothing", "unknown option --nothing (see kpl-codec keys hash --help)"),
    ("cat a --json", "unknown option --json (see kpl-codec cat --help)"),  # not --only
    ("-x", "unknown option -x (see kpl-codec --help)"),
    ("generate --frobnicate", "unknown option --frobnicate (see kpl-codec generate --help)"),
    ("validat a", "unknown command validat; did you mean validate? (see kpl-codec --help)"),
    ("keys hasch", "unknown action hasch; did you mean hash? (see kpl-codec keys --help)"),
    (
        "cat a --since yesterday",
        "argument --since: 'yesterday' is not a time such as 2026-01-31T12:00:00Z, or 5m for five "
        "minutes ago; or beginning, or latest (see kpl-codec cat --help)",
    ),
    ("watch --stream s --all --since 9999-01-01", "argument --since: '9999-01-01' is in the future"),
    (
        "shards list --stream orders --role-arn reader",
        "argument --role-arn: 'reader' is not a role such as arn:aws:iam::123456789012:role/NAME",
    ),
    (
        "cat --stream s --region x --endpoint-url y",
        "Invalid endpoint: y; give a URL such as http://local",
    ),
    ("keys allocate --shards - --existing -", "standard input (-) can be read only once"),
    ("cat - --limit 1 -", "standard input (-) can be read only once"),
    ("cat capture.json --limit 1 ''", "argument PATH: it is empty"),
    ("inspect frame.bin --shard-id x", "--shard-id goes with --stream"),
    ("conformance --export new2 -- ./nosuch", "--export only writes the vectors: nothing is tested"),
    ("conformance --export results", "cannot write to results: name a new or empty folder"),
    ("conformance --export frame.bin", "cannot write to frame.bin: name a new or empty folder"),
    ("conformance --lines", "--lines goes with COMMAND"),
    *((line, "") for line in WRONG),
]
#: Numbers and times at the edge of what Python can count.
EDGES = (
    "9" * 20,
    f"{'9' * 20}d",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "9" * 5000,
    "nan",
)


def test_every_command_has_a_line_here() -> None:
    missing = COMMANDS.keys() - {line.partition(" ")[0] for line in (*JSON, *dict(REFUSED))}
    assert missing == set(), "each needs a line of JSON, or one of REFUSED"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_takes_an_empty_text_or_a_number_without_end(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty text comes from a variable of the shell that is not set: it is no missing option."""
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


@pytest.mark.parametrize(
    "line",
    [
        "validate data --shards shards.json --output OUT --quiet --json",
        "audit --produced put.jsonl --handled data/h.csv handled.csv data --output OUT --quiet --json",
    ],
)
def test_results_in_the_input_change_no_count(
    line: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """User records of a report would count twice, and missing ones as handled."""
    shutil.copytree(folder, tmp_path / "f")
    monkeypatch.chdir(tmp_path / "f")
    Path("data").mkdir()
    shutil.copy("handled.csv" if line.startswith("audit") else "capture.json", "data/h.csv")
    counts: list[Any] = []
    for output in ("data/out", "after"):
        assert main(line.replace("OUT", output).split()) in (0, 1)
        counts.append(json.loads(capsys.readouterr().out)["shards"])
    assert counts[0] == counts[1]


def refusal(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that cannot do what ``line`` asks prints on standard error."""
    try:
        status = main(words(line))
    except SystemExit as error:  # of argparse
        status = int(error.code or 0)
    assert status == 2
    output = capsys.readouterr()
    assert output.out == ""
    return output.err


@pytest.mark.parametrize(("line", "part"), REFUSED)
def test_an_error_is_one_line_in_a_pipe_and_at_most_three_on_a_terminal(
    line: str, part: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what, why and what mends it, and nothing was written."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("COLUMNS", raising=False)
    files = set(folder.rglob("*"))
    text = refusal(line, capsys)
    assert part.replace("HERE", str(folder)) in text
    assert set(folder.rglob("*")) == files
    assert re.fullmatch(r"kpl-codec: [^\n]+\n", text)
    assert not re.search(r"[A-Z]\w+Error\b", text), "a class of Python or botocore"
    monkeypatch.setenv("COLUMNS", "100")
    lines = refusal(line, capsys).splitlines()
    assert " ".join(map(str.strip, lines)) == text.strip()
    assert all(len(row) <= 100 or len(row.split()) == 1 for row in lines)  # (or a path)
    assert len(text.replace(str(folder), "/tmp/folder")) <= 290, "more than three lines"


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_shown_by_a_guide(name: str) -> None:
    pages = [path.read_text() for path in (Path("README.md"), *Path("spec/guides").glob("*.md"))]
    text = "\n".join(page for page in pages if f"kpl-codec {name}" in page)
    options = {option for parser in parsers(_parser([name])) for option in parser._option_string_actions}
    shown = {*re.findall(r"--[a-z-]+", text), "--help"}
    assert sorted({option for option in options if option.startswith("--")} - shown) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_can_be_abbreviated(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A newer option with the same beginning would give the command line another meaning."""
    for parser in parsers(_parser([name])):
        options = [option for option in parser._option_string_actions if option.startswith("--")]
        for short in {option[:-1] for option in options}.difference(options):
            with pytest.raises(SystemExit):
                parser.parse_args([short])
            assert f"unknown option {short}; did you mean --" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["cat A --limit 4 B", "cat --limit 4 A B", "cat A B --limit 4"])
def test_paths_stand_before_behind_and_between_options(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.replace("A", f"{folder}/frame.bin").replace("B", f"{folder}/capture.json").split()) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


#: What packages a command may import before its first answer, and how many modules of this one. Time goes
#: with it: 0.06 s of CPU for the first line, 0.22 s for the last.
FIRST_ANSWERS = [
    ("--help", set(), 40),
    *((f"{name} --help", set(), 85) for name in COMMANDS),
    ("explain gap", {"rich"}, 90),
    ("keys hash a", {"rich"}, 65),
    ("shards list --shards shards.json", {"rich"}, 65),
    ("cat capture.json", {"numpy", "pyarrow"}, 85),
]
_IMPORTED = """
import json, sys
from kpl_codec.cli.main import COMMANDS, main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print()
print(json.dumps(sorted(name for name, module in sys.modules.items() if module is not None)))
"""


@pytest.mark.parametrize(("line", "packages", "own"), FIRST_ANSWERS)
def test_little_is_imported_for_a_first_answer(line: str, packages: set[str], own: int, folder: Path) -> None:
    command = [sys.executable, "-c", _IMPORTED, *line.split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    imported = json.loads(done.stdout.splitlines()[-1])
    tops = {name.partition(".")[0] for name in imported}
    ours = {"kpl_codec", "cython_runtime"}
    assert {top for top in tops - sys.stdlib_module_names - ours if not top.startswith("_")} <= packages
    assert sum(name.startswith("kpl_codec") for name in imported) <= own


def completed(typed: str) -> set[str]:
    """What a shell would offer after ``typed``."""
    environment = {
        **os.environ, "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "bash",
        "COMP_LINE": typed, "COMP_POINT": str(len(typed)), "COMP_TYPE": "9",
    }  # fmt: skip
    code = "import os; os.dup2(1, 8); from kpl_codec.cli.main import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return {word.strip() for word in run.stdout.split("\n")} - {""}


def test_commands_options_and_choices() -> None:
    assert completed("kpl-codec ") >= COMMANDS.keys()
    assert completed("kpl-codec va") == {"validate"}
    assert "--fail-on" in completed("kpl-codec validate --")
    assert completed("kpl-codec validate --fail-on ") == {"critical", "error", "warning", "info"}
    assert {"hash", "hot"} <= completed("kpl-codec keys h")
