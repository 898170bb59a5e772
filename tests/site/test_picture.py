"""README's picture is drawn of the numbers beside it, and those are of a run of the demo."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from kpl_codec.cli.main import main

from . import picture


def test_it_is_drawn_of_the_numbers_beside_it() -> None:
    counts = json.loads(picture.COUNTS.read_text())
    assert picture.PICTURE.read_text() == picture.draw(counts) + "\n", "python -m tests.site.picture"
    assert picture.AGGREGATES.read_text() == picture.draw_aggregates() + "\n"


def test_the_aggregates_show_what_the_guide_says() -> None:
    texts = re.findall(r"the KCL (\w+) all 8", picture.AGGREGATES.read_text())
    assert texts == ["drops", "delivers", "drops"]


def test_it_says_what_the_readme_says() -> None:
    title = ElementTree.fromstring(picture.PICTURE.read_text())[0].text or ""
    readme = " ".join((picture.ROOT / "README.md").read_text().split())
    numbers = re.findall(r"[\d,]*\d", title)
    assert len(numbers) == 3
    assert all(f" {number} " in readme for number in numbers)


@pytest.mark.slow
@pytest.mark.server
def test_the_numbers_are_those_of_a_run(tmp_path: picture.Path) -> None:
    """Also on a loaded machine: what the producer sends twice counts once."""
    assert main(["demo", "--output", str(tmp_path / "demo")]) == 0
    assert picture.count(tmp_path / "demo") == json.loads(picture.COUNTS.read_text())
