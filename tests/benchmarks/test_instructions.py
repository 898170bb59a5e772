"""No way through the hot paths takes over 3 % more instructions than in instructions.json."""

from __future__ import annotations

import json

import pytest

from . import instructions

MISSING = instructions.missing()


def test_a_cell_that_grew_is_named() -> None:
    before = {"columns a": 500.0, "put": 1000.0}
    assert instructions.grown({"columns a": 514.9, "put": 1029.9}, before) == []
    (line,) = instructions.grown({"columns a": 515.1, "put": 900.0}, before)
    assert line.startswith("columns a: 515.1")


def test_every_cell_has_a_count_to_compare_with() -> None:
    assert tuple(json.loads(instructions.BASELINE.read_text())["cells"]) == instructions.CELLS


@pytest.mark.slow
@pytest.mark.skipif(
    bool(instructions.missing()), reason=f"apt-get install {' '.join(instructions.missing())}"
)
def test_no_cell_grows() -> None:
    """One of each task on the corpus g or b; the command counts all of them, before a release."""
    before = json.loads(instructions.BASELINE.read_text())
    if before["of"] != instructions.conditions():
        pytest.skip(
            f"instructions.json is of {before['of']}; tests/benchmarks/README.md says how it is made anew"
        )
    of_each_task = {cell.split()[0]: cell for cell in instructions.CELLS if cell != "validate"}
    assert instructions.grown(instructions.count([*of_each_task.values()]), before["cells"]) == []
