"""mypy and pyright read what users write, and a guide's files: all is right, every mistake is seen."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..guides.blocks import blocks

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RIGHT, WRONG = HERE / "user_code.py", HERE / "mistakes.py"
#: The oldest Python that the package declares.
PYTHON = "3.10"


def _run(*command: str) -> str:
    run = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    return run.stdout


def guide_files(folder: Path) -> list[str]:
    """Paths of the files that the guide shows, written to ``folder``."""
    paths = []
    for block in blocks((ROOT / "spec/guides/test-a-handler.md").read_text()):
        if name := block.options.get("file"):
            (folder / name).write_text(block.text)
            paths.append(str(folder / name))
    return paths


def mypy(tmp_path: Path) -> set[tuple[str, int]]:
    """File and line of every error."""
    strict = ("mypy", "--strict", "--python-version", PYTHON, "--no-error-summary")
    printed = _run(*strict, str(RIGHT), str(WRONG), *guide_files(tmp_path))
    found = re.findall(r"^(?:.*/)?(\w+\.py):(\d+): error: ", printed, re.MULTILINE)
    return {(name, int(line)) for name, line in found}


def pyright(tmp_path: Path) -> set[tuple[str, int]]:
    """The same from basedpyright, which is pyright with its Node, in pyright's own mode."""
    settings: dict[str, Any] = {
        "include": [str(RIGHT), str(WRONG), *guide_files(tmp_path)],
        "extraPaths": [str(ROOT), str(tmp_path)],
        "typeCheckingMode": "standard",
        "pythonVersion": PYTHON,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    printed = _run("basedpyright", "-p", str(tmp_path), "--pythonpath", sys.executable, "--outputjson")
    return {
        (Path(found["file"]).name, found["range"]["start"]["line"] + 1)
        for found in json.loads(printed)["generalDiagnostics"]
        if found["severity"] == "error"
    }


EXPECTED = {
    (WRONG.name, number)
    for number, line in enumerate(WRONG.read_text().splitlines(), 1)
    if line.endswith("# wrong")
}


@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright], ids=lambda checker: checker.__name__)
def test_every_mistake_is_an_error_and_nothing_else(checker: Any, tmp_path: Path) -> None:
    if checker is pyright:
        pytest.importorskip("basedpyright")
    assert checker(tmp_path) == EXPECTED
