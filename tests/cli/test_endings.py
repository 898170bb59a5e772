"""How commands end: after a signal, on a full disk."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.captures import Location

from .commands import run


def process(line: str, **settings: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kpl_codec", *line.split()]
    # Bytecode that a full disk cuts short would break the programs that run later.
    settings["env"] = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)


@pytest.mark.server
@pytest.mark.requirement("SPK-19")
@pytest.mark.parametrize(
    ("line", "ends", "status"),
    [
        ("cat --follow --since TRIM_HORIZON", signal.SIGINT, 130),
        ("cat --follow --since TRIM_HORIZON", signal.SIGTERM, 143),
        pytest.param("watch --all --since 1h --json-lines", signal.SIGINT, 130, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_what_goes_on(
    line: str, ends: signal.Signals, status: int, connection: list[str], kinesis_local: Any
) -> None:
    """Whatever was found: here a broken record, whose line says that it began."""
    data = b"\xf3\x89\x9a\xc2" + bytes(40)
    kinesis_local.client().put_record(StreamName=connection[1], Data=data, PartitionKey="a")
    with process(" ".join([line, *connection])) as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        running.send_signal(ends)
        assert running.wait(60) == status
        assert "Traceback" not in running.stderr.read()


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
    """Ctrl-C, which SIGTERM becomes, at the first file that is written or moved, at the second ..."""
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
        assert not [*folder.glob("*out*")], calls["stop"]
        calls = Counter(stop=calls["stop"] + 1)
        status = run(f"{line} --output out").status
    assert status in (0, 1)
    assert output.exists()
    assert calls["stop"] > 2


def test_a_full_disk_names_the_folder(folder: Path) -> None:
    """Here no file may have more than a few bytes."""

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    line = "validate in --shards shards.json --output full --quiet --cores 1"
    with process(line, preexec_fn=no_room) as running:
        assert running.wait(60) == 2
        reason = running.stderr.read().splitlines()[-1]
    assert "cannot write to full: the file is too large" in reason
