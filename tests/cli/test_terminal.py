"""Output on every kind of terminal: any encoding, any width, a reader that leaves, no colours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.cli.main import main
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.rendering.terminal import line, note, render, table
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap

TWO = "f3899ac20a01610a01621a0508001a01781a0508011a0179b0031909ae75891ca94acec2ecce3125"


@pytest.fixture
def listing(tmp_path: Path) -> str:
    """Five hundred shards."""
    shards = [Shard(f"shardId-{i:012d}", held) for i, held in enumerate(ALL_HASH_KEYS.split(500))]
    path = tmp_path / "shards.json"
    path.write_text(ShardMap(shards).to_json())
    return str(path)


def run(*argv: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    return subprocess.run(
        [sys.executable, "-m", "kpl_codec.cli.main", *argv],
        env={**clean, **environment},
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize(
    "encoding",
    ["ascii", *(pytest.param(name, marks=pytest.mark.slow) for name in ("utf-8", "cp1252", "latin-1"))],
)
def test_every_encoding_will_do(encoding: str, listing: str) -> None:
    for argv, status in (
        (["shards", "list", "--shards", listing], 0),
        (["keys", "hash", "ключ", "😀"], 0),
        (["keys", "hash", "ключ", "😀", "--json"], 0),
        (["inspect", TWO[:-2] + "00"], 1),
        (["shards", "list", "--shards", "нет"], 2),
    ):
        done = run(*argv, PYTHONIOENCODING=encoding)
        assert done.returncode == status, done.stderr
        assert b"Traceback" not in done.stderr
        shown = done.stdout.decode(encoding)
        assert not re.search(r"\\u25|\\u2026", shown), "drawings have characters for every encoding"
        if "--json" in argv:
            assert [row["key"] for row in json.loads(done.stdout.decode(encoding))] == ["ключ", "😀"]


@pytest.mark.parametrize("columns", [40, 80, 130])
def test_nothing_is_wider_than_the_terminal(
    columns: int, listing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for argv in (
        ["shards", "list", "--shards", listing],
        ["shards", "predict", "--shards", listing, "a", "b" * 100],
        ["keys", "hash", "a", "b" * 100],
    ):
        assert main(argv) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= columns, argv


@pytest.mark.parametrize(
    ("columns", "lines"), [("60", ["kpl-codec: sent", "           again"]), (None, ["kpl-codec: sent again"])]
)
def test_a_text_of_two_lines(
    columns: str | None, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stay two on a terminal, and are one in a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    note("sent\nagain")
    assert capsys.readouterr().err.splitlines() == lines


def test_in_a_pipe_each_row_is_one_line(listing: str) -> None:
    lines = run("shards", "predict", "--shards", listing, "a", "b" * 100).stdout.decode().splitlines()
    assert [len(row.split()) for row in lines[1:]] == [3, 3]


def test_a_reader_that_leaves_is_no_failure(listing: str) -> None:
    for argv in (f"shards list --shards {listing}", "keys allocate 20000", f"inspect {TWO} --json"):
        pipe = f"{sys.executable} -m kpl_codec.cli.main {argv} | head -1; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=False)
        assert done.stdout.splitlines()[-1] == "0", argv
        assert done.stderr == ""


@given(st.text(), st.integers(40, 160))
def test_texts_from_outside_cannot_move_the_cursor(text: str, width: int) -> None:
    for part in (line(text), line((text, "red")), table(["key"], [[text]])):
        shown = render(part, width=width)
        assert not set(shown) & set(map(chr, [*range(10), *range(11, 32), *range(127, 160)]))
        shown.encode()
