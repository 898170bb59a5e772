"""The tests have the same names in every process, on every day: pytest-xdist ends a run where they differ."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import TOGETHER

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_all_tests_are_collected_twice_alike() -> None:
    """With other hash seeds, and with clocks a day apart."""
    first = _pytest("--co", "-q", "-m", "", "tests", seed="1")
    second = _pytest("--co", "-q", "-m", "", "-p", "tests.tomorrow", "tests", seed="2")
    assert first.returncode == second.returncode == 0, first.stdout[-2000:] + second.stdout[-2000:]
    names = [[line for line in done.stdout.splitlines() if "::" in line] for done in (first, second)]
    assert len(names[0]) > 1_000
    assert [pair for pair in zip(*names, strict=True) if pair[0] != pair[1]] == []
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
