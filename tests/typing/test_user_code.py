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
from ..test_surface import PUBLIC, names_of

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


def written(folder: Path) -> list[str]:
    """Paths of the files that a guide shows, of one for each public module that imports all of its names, and
    of one for each docstring with examples, where nobody writes types and it is known what is not None."""
    lenient = "# mypy: no-strict-optional, allow-untyped-defs, allow-untyped-calls"
    texts = {
        f"names{one.replace('.', '_')}.py": f"from kpl_codec{one} import {', '.join(names_of(one))}\n"
        for one in PUBLIC
    }
    for block in blocks((ROOT / "spec/guides/test-a-handler.md").read_text()):
        if name := block.options.get("file"):
            texts[name] = block.text
    for example in (example for module in PUBLIC for example in examples_of(module)):
        parts = [
            f"{lenient}, disable-error-code=var-annotated\n",
            *(part.source for part in example.examples),
        ]
        texts[f"example_{example.name.replace('.', '_')}.py"] = "".join(parts)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [str(folder / name) for name in texts]


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
    """Pyright reads the programs in its strict mode, and no examples of docstrings."""
    programs, others = [*map(str, PROGRAMS)], [str(WRONG), *written(tmp_path)]
    assert mypy(*programs, *others) == MISTAKES
    assert pyright(tmp_path, programs, *(path for path in others if "/example_" not in path)) == MISTAKES
