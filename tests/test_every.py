"""A table in one test names every case that fails, and asks for the fixtures that its cases need."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from .every import every


def test_all_failing_cases_are_named() -> None:
    seen: list[int] = []

    @every("number, name", [(1, "one"), pytest.param(2, "two", id="the second"), (3, "three"), (4, "four")])
    def odd(number: int, name: str) -> None:
        seen.append(number)
        assert number % 2, name

    with pytest.raises(AssertionError) as caught:
        odd()
    assert seen == [1, 2, 3, 4]
    text = str(caught.value)
    assert text.startswith("2 of 4 cases fail:")
    assert "case 1, the second: AssertionError: two" in text
    assert "case 3, 4, 'four': AssertionError: four" in text


def test_tables_multiply_and_fixtures_are_left() -> None:
    seen: set[tuple[int, str, Path]] = set()

    @every("number", [1, 2])
    @every("letter", "ab", ids=str.upper)
    def both(tmp_path: Path, number: int, letter: str) -> None:
        seen.add((number, letter, tmp_path))

    assert list(inspect.signature(both).parameters) == ["tmp_path"]
    both(tmp_path=Path())
    assert seen == {(number, letter, Path()) for number in (1, 2) for letter in "ab"}
