"""`python -m tests.benchmarks` runs, and measures what the committed figures are of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .__main__ import PARTS, RESULTS

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_every_part_runs(tmp_path: Path) -> None:
    """But Spark, which takes too long for each run of the tests."""
    parts = [name for name in PARTS if name != "spark"]
    small = ["--quick", "--corpora", "a", "--tasks", "columns", "--parts", ",".join(parts)]
    command = [sys.executable, "-m", "tests.benchmarks", *small, "--results", str(tmp_path / "results.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    committed = json.loads(RESULTS.read_text())
    assert results.keys() == committed.keys() - {"spark"}
    (row,) = results["measured"]
    assert row["seconds"].keys() == committed["measured"][0]["seconds"].keys()
    for part in ("producers", "validate"):
        assert results[part].keys() == committed[part].keys()
