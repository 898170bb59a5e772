"""Every warning in a test is an error; so are those that Python gives where nobody can catch them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
FORGETS = """\
import asyncio, warnings

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

def test(): WAY()
"""


@pytest.mark.parametrize("way", ["in_a_plain_function", "on_a_loop", "in_a_cycle", "by_the_library"])
def test_a_warning_is_an_error(way: str, tmp_path: Path) -> None:
    file = tmp_path / "test_forgets.py"
    configuration = REPOSITORY / "pyproject.toml"
    for name, wrong in ((way, True), ("print", False)):
        file.write_text(FORGETS.replace("WAY", name))
        options = ["-c", configuration, "--rootdir", tmp_path, "-p", "no:cacheprovider", file]
        command = [sys.executable, "-m", "pytest", *options]
        run = subprocess.run(command, capture_output=True, text=True)
        assert (run.returncode == 1) == wrong, run.stdout
        assert ("was never awaited" in run.stdout + run.stderr) == wrong
