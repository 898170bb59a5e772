"""Every warning in a test is an error; so are those that Python gives where nobody can catch them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
FORGETS = """\
import asyncio, gc, warnings

import pytest

async def forgotten(): ...

def in_a_plain_function():
    forgotten()

def on_a_loop():
    async def main():
        forgotten()
        await asyncio.sleep(0)
    asyncio.run(main())

def in_a_cycle():
    held = [forgotten()]
    held.append(held)

def by_the_library():
    warnings.warn("a coroutine was never awaited")

@pytest.mark.parametrize("way", [in_a_plain_function, on_a_loop, in_a_cycle, by_the_library, print])
def test(way):
    way()
    gc.collect()
"""


@pytest.mark.slow
def test_a_warning_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "test_forgets.py"
    file.write_text(FORGETS)
    options = ["-c", REPOSITORY / "pyproject.toml", "--rootdir", tmp_path, "-p", "no:cacheprovider", file]
    run = subprocess.run([sys.executable, "-m", "pytest", *options], capture_output=True, text=True)
    assert "4 failed, 1 passed" in run.stdout, run.stdout
    assert len(re.findall(r"^E .*was never awaited", run.stdout, re.MULTILINE)) >= 4
