"""Advice that rests on what the log of another program does not say. Law: where a text names a line that the
KCL writes in some settings only, it names the setting, too, without which the absence of the line says
nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: A line of another program's log, and what a text about it must name.
CONDITIONS = {"Cannot get the shard for this": "skipShardSyncAtStartupIfLeasesExist"}


def texts() -> Iterator[tuple[str, str]]:
    """The sections of the pages, and the texts of the package, with their places."""
    for path in [ROOT / "README.md", *sorted((ROOT / "spec").rglob("*.md"))]:
        for section in re.split(r"(?m)^(?=#+ |\*\*[A-Z]+-\d+\*\*)", path.read_text()):
            yield f"{path.name}: {section.splitlines()[0] if section.strip() else ''}", section
    for path in sorted((ROOT / "kpl_codec").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.name}:{node.lineno}", node.value


@pytest.mark.requirement("KCL-5")
def test_no_text_takes_the_absence_of_a_line_for_a_proof() -> None:
    wrong = {
        place
        for place, text in texts()
        for line, setting in CONDITIONS.items()
        if line in " ".join(text.split()) and setting not in text
    }
    assert not wrong
