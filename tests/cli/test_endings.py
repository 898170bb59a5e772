"""How commands end: after Ctrl-C, on a full disk, without extras."""

from __future__ import annotations

import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.captures import Location
from kpl_codec.cli.main import COMMANDS, EXAMPLES, _parser, main

from ..benchmarks.captures import Recipe, write_generated
from .commands import parsers


def process(line: str, **settings: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kpl_codec.cli.main", *line.split()]
    # Bytecode that a full disk cuts short would break the programs that run later.
    settings["env"] = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)


@pytest.mark.server
@pytest.mark.requirement("SPK-19")
@pytest.mark.parametrize("line", ["cat --follow --since TRIM_HORIZON", "watch --all --since 1h --json-lines"])
def test_ctrl_c_ends_what_goes_on_with_130(line: str, connection: list[str], kinesis_local: Any) -> None:
    """Whatever was found: here a broken record, whose line says that it began."""
    data = b"\xf3\x89\x9a\xc2" + bytes(40)
    kinesis_local.client().put_record(StreamName=connection[1], Data=data, PartitionKey="a")
    with process(" ".join([line, *connection])) as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert "Traceback" not in running.stderr.read()


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
def test_a_job_leaves_nothing_after_a_signal(ends: signal.Signals, tmp_path: Path) -> None:
    made, output = tmp_path / "made", tmp_path / "out" / "checked"
    write_generated(Recipe(50_000), Location(made).make_folder())
    for number in range(200):  # a minute of work
        os.link(made / "capture" / "part-00000.parquet", made / "capture" / f"{number}.parquet")
    output.parent.mkdir()
    with process(
        f"validate {made}/capture --shards {made}/shards.json --output {output} --quiet --cores 1"
    ) as running:
        while not list(output.parent.glob(".checked.*")):
            assert running.poll() is None
        running.send_signal(ends)
        assert running.wait(60) == {signal.SIGINT: 130, signal.SIGTERM: 143}[ends]
    assert list(output.parent.iterdir()) == []


@pytest.mark.requirement("SPK-42")
@pytest.mark.parametrize(
    "line",
    [
        "validate in --shards shards.json --quiet --cores 1",
        "audit --produced put.jsonl --handled handled.parquet --quiet",
    ],
)
def test_whenever_ctrl_c_comes_the_results_are_whole_or_not_there(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at the first file that is written or moved, at the second ..."""
    output = folder / "out"
    calls = Counter[str]()

    def interrupted(method: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            calls["made"] += 1
            if calls["made"] == calls["stop"]:
                raise KeyboardInterrupt
            return method(*args, **options)

        return call

    for name in ("write", "write_table", "move_to", "sweep"):
        monkeypatch.setattr(Location, name, interrupted(getattr(Location, name)))
    status = 130
    while status == 130:
        assert not output.exists(), calls["stop"]
        calls = Counter(stop=calls["stop"] + 1)
        status = main([*line.split(), "--output", "out"])
    assert status in (0, 1)
    assert output.exists()
    assert calls["stop"] > 2


def test_a_full_disk_names_the_folder(tmp_path: Path) -> None:
    """Here no file may have more than a few bytes."""
    made, results = tmp_path / "made", tmp_path / "results"
    write_generated(Recipe(20_000, mixed_every=2), Location(made).make_folder())
    line = f"validate {made}/capture --shards {made}/shards.json --output {results} --quiet --cores 1"

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    with process(line, preexec_fn=no_room) as running:
        assert running.wait(60) == 2
        reason = running.stderr.read().splitlines()[-1]
    assert str(results) in reason
    assert "the file is too large" in reason


@pytest.mark.parametrize("pure", ["", "1"])
def test_the_version_says_what_a_bug_report_needs(pure: str) -> None:
    command = [sys.executable, "-m", "kpl_codec.cli.main", "--version"]
    environment = {**os.environ, "KPL_CODEC_PURE": pure}
    lines = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout.splitlines()
    assert re.fullmatch(r"kpl-codec \S+ \((compiled|pure Python)\)", lines[0])
    assert "pure" in lines[0] or not pure
    assert [text.split()[0] for text in lines[1:]] == ["Python", "boto3", "pyarrow", "pyspark"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_two_examples_and_fits_a_page(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (own,) = (one for one in parsers(_parser([command])) if one.prog == f"kpl-codec {command}")
    for parser in parsers(own):
        text = parser.format_help()
        assert max(map(len, text.splitlines())) <= 88
        assert parser is not own or text.count(f"  kpl-codec {command}") >= 2
    for example in EXAMPLES[command]:
        parsed = _parser([command]).parse_args([command, *example.split()])
        assert parsed.run is not None


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
            for line in (
                "shards list --shards shards.json",
                "findings results",
                "validate capture.json --shards shards.json --output $RANDOM",
            )
        ),
    ],
)
def test_streams_that_take_nothing_give_no_traceback(
    line: str, streams: str, status: int, folder: Path
) -> None:
    started = f"{shlex.quote(sys.executable)} -m kpl_codec.cli.main {line} {streams}"
    done = subprocess.run(
        ["bash", "-c", started], cwd=folder, capture_output=True, text=True, errors="replace", check=False
    )
    assert done.returncode == (1 if not line.startswith("shards") and status == 0 else status)
    if streams == ">/dev/full":
        assert done.stderr.endswith("kpl-codec: standard output: no space is left on the disk\n")
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
