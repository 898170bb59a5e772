"""Where commands write to: a process of their own, a disk that is full, a stream that the shell has closed, a
reader that leaves, any encoding, any width."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.cli.main import COMMANDS, _parser
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.rendering.terminal import line as text_line
from kpl_codec.rendering.terminal import render, table
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap
from tests.examples import share
from tests.widths import COLUMNS, too_wide

from ..every import every
from .commands import LINES, parsers, run, words

TWO = "f3899ac20a01610a01621a0508001a01781a0508011a0179b0031909ae75891ca94acec2ecce3125"
#: Every help, the versions, and every line of the table.
ALL_LINES = [
    "--help",
    "--version",
    *(
        f"{parser.prog.removeprefix('kpl-codec ')} --help"
        for command in COMMANDS
        for parser in parsers(_parser([command]))
        if parser.prog.split()[1:2] == [command]
    ),
    *(line.words for line in LINES),
]
#: One line of each command, and one that is refused.
OF_EACH = {line.words.split()[0]: line.words for line in reversed(LINES)} | {"no": "keys hash --no"}


@pytest.mark.parametrize(
    "command",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in ("cat", "no"))) for name in OF_EACH],
)
def test_a_process_does_what_is_done_in_this_one(command: str, folder: Path) -> None:
    """All other tests of the table rest on it."""
    line = OF_EACH[command]
    done = subprocess.run([sys.executable, "-m", "kpl_codec", *words(line)], capture_output=True, text=True)
    assert run(line) == (done.returncode, done.stdout, done.stderr)


@pytest.mark.requirement("SPK-19")
@every("line", ALL_LINES[:: share()])
def test_what_cannot_be_printed_is_a_failure_and_said(line: str, folder: Path) -> None:
    """But for errors that cannot be printed, and for a reader that has seen enough."""
    status, out, _ = run(line, encoding="ascii")
    with open("/dev/full", "wb", buffering=0) as file:
        full = io.TextIOWrapper(file, write_through=True)
        assert run(line, stderr=full).status == status
        on_full, closed = run(line, stdout=full), run(line, stdout=None)
    if out:
        assert on_full.err.endswith("kpl-codec: standard output: no space is left on the disk\n")
        assert closed.err.endswith("kpl-codec: standard output is closed\n")
    without_any = run(line, stdout=None, stderr=None)
    assert on_full.status == closed.status == without_any.status == (2 if out else status)
    reads, writes = os.pipe()
    os.close(reads)
    with open(writes, "w") as left_by_its_reader:
        # cat ends, and has not seen what is broken behind.
        assert run(line, stdout=left_by_its_reader).status in ({0, status} if "cat " in line else {status})


def test_a_reader_that_leaves_is_no_failure() -> None:
    pipe = f"{sys.executable} -m kpl_codec keys allocate 20000 | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines()[1:], done.stderr) == (["0"], "")


@pytest.fixture
def listing(tmp_path: Path) -> str:
    """More shards than columns."""
    shards = [Shard(f"shardId-{i:012d}", held) for i, held in enumerate(ALL_HASH_KEYS.split(150))]
    path = tmp_path / "shards.json"
    path.write_text(ShardMap(shards).to_json())
    return str(path)


@every("encoding", ["ascii", "utf-8", "latin-1", "cp1252"][:: min(share(), 3)])
def test_every_encoding_will_do(encoding: str, listing: str) -> None:
    for line, status in (
        (f"shards list --shards {listing}", 0),
        ("keys hash ключ 😀", 0),
        ("keys hash ключ 😀 --json", 0),
        (f"inspect {TWO[:-2]}00", 1),
        ("shards list --shards нет", 2),
    ):
        ended = run(line, encoding=encoding)
        assert ended.status == status, ended.err
        assert not re.search(r"\\u25|\\u2026", ended.out), "drawings have characters for every encoding"
        if "--json" in line:
            assert [row["key"] for row in json.loads(ended.out)] == ["ключ", "😀"]


def test_nothing_is_wider_than_the_terminal(listing: str) -> None:
    predict = f"shards predict --shards {listing} a {'b' * 100}"
    for columns in (40, 80, 130):
        for line in (f"shards list --shards {listing}", predict, f"keys hash a {'b' * 100}"):
            rows = run(line, COLUMNS=str(columns)).out.splitlines()
            assert 0 < max(map(len, rows)) <= columns, line
    # In a pipe each row is one line.
    assert [len(row.split()) for row in run(predict).out.splitlines()[1:]] == [3, 3]


@every("line", [line.words for line in LINES if "--quiet" not in line.words])
def test_no_line_is_wider_than_the_page(line: str, folder: Path) -> None:
    """In a pipe, and on a terminal of 100 columns."""
    for ended in (run(line), run(line, COLUMNS=str(COLUMNS))):
        assert ended.status in (0, 1)
        assert ended.out
        assert not too_wide(ended.out)


@given(st.text(), st.integers(40, 160))
def test_texts_from_outside_cannot_move_the_cursor(text: str, width: int) -> None:
    for part in (text_line(text), text_line((text, "red")), table(["key"], [[text]])):
        shown = render(part, width=width)
        assert not set(shown) & set(map(chr, [*range(10), *range(11, 32), *range(127, 160)]))
        shown.encode()
