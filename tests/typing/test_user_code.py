"""mypy and pyright read programs as users write them, the examples of the public names and a guide's files:
all is right. They read mistakes, too: each is seen."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..guides.blocks import blocks
from ..guides.test_guides import examples_of
from ..test_surface import PUBLIC

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WRONG = HERE / "mistakes.py"
#: What each kind of user writes.
PROGRAMS = sorted((HERE / "programs").glob("*.py"))
#: In place of boto3-stubs.
STUBS = HERE / "stubs"
#: The oldest Python that the package declares.
PYTHON = "3.10"
MISTAKES = {
    (WRONG.name, number)
    for number, line in enumerate(WRONG.read_text().splitlines(), 1)
    if line.endswith("# wrong")
}


def _run(*command: str) -> str:
    run = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(STUBS)},
        capture_output=True,
        text=True,
    )
    assert run.returncode in (0, 1), run.stdout + run.stderr
    return run.stdout


def mypy(*arguments: str) -> set[tuple[str, int]]:
    """File and line of every error."""
    printed = _run("mypy", "--strict", "--python-version", PYTHON, "--no-error-summary", *arguments)
    errors = re.findall(r"^(?:.*/)?(\w+\.py):(\d+): error: ", printed, re.MULTILINE)
    return {(name, int(line)) for name, line in errors}


def guide_files(folder: Path) -> list[str]:
    """Paths of the files that the guide shows, written to ``folder``."""
    paths = []
    for block in blocks((ROOT / "spec/guides/test-a-handler.md").read_text()):
        if name := block.options.get("file"):
            (folder / name).write_text(block.text)
            paths.append(str(folder / name))
    return paths


def pyright(folder: Path, strict: list[str], *files: str) -> set[tuple[str, int]]:
    """File and line of every error. basedpyright is pyright with its Node; it is asked in pyright's modes."""
    pytest.importorskip("basedpyright")
    settings: dict[str, Any] = {
        "include": [*strict, *files],
        "strict": strict,
        "extraPaths": [str(ROOT), str(folder), str(STUBS)],
        "typeCheckingMode": "standard",
        "pythonVersion": PYTHON,
        "reportMissingTypeStubs": False,  # of pyarrow
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    printed = _run("basedpyright", "-p", str(folder), "--pythonpath", sys.executable, "--outputjson")
    return {
        (Path(problem["file"]).name, problem["range"]["start"]["line"] + 1)
        for problem in json.loads(printed)["generalDiagnostics"]
        if problem["severity"] == "error"
    }


@pytest.mark.slow
def test_mypy_and_pyright_find_programs_right_and_see_each_mistake(tmp_path: Path) -> None:
    """Pyright reads the programs in its strict mode. All at once takes the time of one."""
    programs, others = [*map(str, PROGRAMS)], [str(WRONG), *guide_files(tmp_path)]
    assert len(programs) == 12
    assert mypy(*programs, *others) == MISTAKES
    assert pyright(tmp_path, programs, *others) == MISTAKES


@pytest.mark.slow
def test_mypy_understands_the_examples_of_docstrings(tmp_path: Path) -> None:
    """Each docstring is a file. An example may know what is not None."""
    files = []
    for example in (example for module in PUBLIC for example in examples_of(module)):
        files.append(tmp_path / f"example_{len(files)}_{example.name.replace('.', '_')}.py")
        files[-1].write_text("".join(part.source for part in example.examples))
    lenient = ("--no-strict-optional", "--allow-untyped-defs", "--allow-untyped-calls")
    lenient += ("--disable-error-code=var-annotated",)
    assert mypy(*lenient, *map(str, files)) == set()
