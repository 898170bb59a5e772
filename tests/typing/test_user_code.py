"""mypy and pyright read the programs of pages and docstrings, and every public name: all is right. They read
mistakes, too: each is seen."""

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
from ..guides.test_guides import GUIDES, README, examples_of
from ..test_surface import PUBLIC, names_of

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WRONG = HERE / "mistakes.py"
#: In place of boto3-stubs.
STUBS = HERE / "stubs"
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
    """File and line of every error, with the settings of pyproject.toml."""
    printed = _run("mypy", "--no-error-summary", *arguments)
    errors = re.findall(r"^(?:.*/)?(\w+\.py):(\d+): error: ", printed, re.MULTILINE)
    return {(name, int(line)) for name, line in errors}


#: Where nobody writes types, and what is not None, or defined, is known.
LENIENT = """# mypy: no-strict-optional, allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
# mypy: allow-any-generics, no-warn-return-any, disable-error-code="var-annotated,name-defined"
"""
#: They collect options in a dict, read tables with pandas, or import a file that another page has, too.
UNTYPED = {"dead_letters_outage.py", "dead_letters_page.py", "notebooks_page.py", "services_page.py"}


def of_pages() -> dict[str, str]:
    """The programs of README and guides: each file, and what else each page runs."""
    texts = dict[str, str]()
    for path in [README, *GUIDES]:
        for block in blocks(path.read_text()):
            name = f"{path.stem}_{block.options.get('file', 'page.py')}".replace("-", "_")
            if block.language == "python" and name not in UNTYPED:
                texts[name] = texts.get(name, LENIENT) + block.text
    return texts


def of_examples() -> dict[str, str]:
    """The examples of each docstring."""
    return {
        f"example_{one.name.replace('.', '_')}.py": LENIENT + "".join(part.source for part in one.examples)
        for module in PUBLIC
        for one in examples_of(module)
    }


def written(folder: Path, texts: dict[str, str]) -> list[str]:
    """The paths of these texts as files."""
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
        "pythonVersion": "3.10",
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
    """Pyright reads our file and all public names in its strict mode, where an unknown type is an error, and
    of pages and docstrings one guide's files."""
    names = {
        f"names{one.replace('.', '_')}.py": f"from kpl_codec{one} import {', '.join(names_of(one))}\n"
        f"print({', '.join(names_of(one))})\n"
        for one in PUBLIC
    }
    typed = {
        block.options["file"]: block.text
        for block in blocks((ROOT / "spec/guides/test-a-handler.md").read_text())
        if "file" in block.options
    }
    of_arrow = {"names_arrow.py": names.pop("names_arrow.py")}  # pyarrow has no types
    strict = [str(WRONG), *written(tmp_path, names)]
    others = written(tmp_path, typed | of_arrow)
    assert mypy(*strict, *others, *written(tmp_path, of_pages() | of_examples())) == MISTAKES
    assert pyright(tmp_path, strict, *others) == MISTAKES
