"""The compiled extension under hostile objects and threads: the cases of `fuzz.hostile` in a process of their
own, for a bad access ends it. In Python alone, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PROGRAM = """
import faulthandler
from fuzz.hostile import CASES
faulthandler.enable()
for name, case in CASES.items():
    print(name, flush=True)
    case()
"""


@pytest.mark.parametrize("pure", ["0", "1"], ids=["compiled", "pure"])
def test_a_python_error_at_most(pure: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=REPOSITORY,
        env={**os.environ, "KPL_CODEC_PURE": pure},
    )  # fmt: skip
    names = run.stdout.split()
    assert len(names) > (15 if pure == "0" else 10)
    assert run.returncode == 0, f"{names[-1]}: {run.stderr}"
