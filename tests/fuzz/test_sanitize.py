"""The long command of the sanitizers is not a part of CI: its parts run here on the ordinary build."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_what_is_sanitized_runs_on_the_ordinary_build_too() -> None:
    command = [sys.executable, "-m", "fuzz.sanitize", "--inside", "--seconds", "0.5", "--seed", "1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "no bad access" in done.stdout
