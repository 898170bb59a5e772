"""The tests have the same names in every process, and names that somebody can read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import ids
from .conftest import TOGETHER

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("one word", "one word"),
        ("a-b.c", "a-b.c"),
        (5, None),
        (10**40, "value"),
        (b"abc", "value"),
        ("\xff", "value"),
        ("shardé", "shard"),
        ("line\nline", "line line"),
        ("started at 2026-11-27", "started at 2026 11 27"),
        ("cannot write to the file: a part of the path is a file", "cannot write to the file a part"),
    ],
    ids=range(10),
)
def test_a_parameter_gives_words_to_the_name(value: object, expected: str | None) -> None:
    assert ids.id_of(value, "value") == expected


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ("two-words", None),
        (r"\x1f\x8b", "an escape"),
        ("<object at 0x7f3a2c1d>", "an address"),
        ("2026-11-27", "a time"),
        ("20261127T043901Z", "a time"),
        ("04:39:01", "a time"),
        ("1795754341", "a time"),
        (f"{ROOT}/tests", "a path of this machine"),
        ("x" * 81, "81 characters, 80 are the most"),
    ],
    ids=range(9),
)
def test_what_may_differ_next_time_is_named(parameters: str, fault: str | None) -> None:
    assert ids.fault_of(parameters) == fault


@pytest.mark.slow
def test_all_tests_are_collected_twice_alike() -> None:
    """With other hash seeds, and with clocks a day apart."""
    first = _pytest("--co", "-q", "-m", "", "tests", seed="1")
    second = _pytest("--co", "-q", "-m", "", "-p", "tests.tomorrow", "tests", seed="2")
    assert first.returncode == second.returncode == 0, first.stdout[-2000:] + second.stdout[-2000:]
    names = [[line for line in done.stdout.splitlines() if "::" in line] for done in (first, second)]
    assert len(names[0]) > 1_000
    assert names[0] == names[1]
    gone = [
        begin
        for begins in TOGETHER.values()
        for begin in begins
        if not any(name.startswith(begin) for name in names[0])
    ]
    assert gone == [], "entries of TOGETHER without a test"


def _pytest(*arguments: str, seed: str) -> subprocess.CompletedProcess[str]:
    options = ("-o", "addopts=-p no:anyio -p no:randomly --strict-markers", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, timeout=250,
    )  # fmt: skip
