"""The workflows, issue forms and settings in ``.github/`` are sound, by the checkers that others use, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
SCHEMAS = {
    "vendor.github-workflows": sorted(GITHUB.glob("workflows/*.yml")),
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
    "vendor.github-issue-forms": sorted(GITHUB.glob("ISSUE_TEMPLATE/[!c]*.yml")),
}


def check(*command: str) -> None:
    pytest.importorskip("check_jsonschema", reason="the checkers need Python 3.11")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS)
def test_each_file_follows_its_schema(schema: str) -> None:
    check(sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, SCHEMAS[schema]))


@pytest.mark.slow
def test_no_workflow_can_be_misused() -> None:
    """Permissions, pinned actions, injected texts, and what else zizmor looks at."""
    check("zizmor", "--offline", "--persona", "pedantic", str(GITHUB))


def test_every_tested_python_has_wheels() -> None:
    settings = (ROOT / "pyproject.toml").read_text()
    matrix = (GITHUB / "workflows/ci.yml").read_text()
    for version in ("3.10", "3.11", "3.12", "3.13", "3.14"):
        assert f"cp{version.replace('.', '')}-*" in settings
        assert f'"{version}"' in matrix
