"""The compiled extension under hostile objects and threads: each case of `fuzz.hostile` in a process of its
own, for a bad access ends it. In Python alone, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.hostile import CASES

REPOSITORY = Path(__file__).parents[1]


@pytest.mark.parametrize("pure", ["0", "1"], ids=["compiled", "pure"])
@pytest.mark.parametrize("name", CASES)
def test_a_python_error_at_most(name: str, pure: str) -> None:
    code = f"import faulthandler; faulthandler.enable(); from fuzz.hostile import CASES; CASES[{name!r}]()"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY,
        env={**os.environ, "KPL_CODEC_PURE": pure},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
