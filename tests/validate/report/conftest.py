"""One browser, and one file for each example, for all tests of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.validate.report.page import report_page

from . import examples
from .browser import Browser
from .examples import Report

EXAMPLES = {
    "full": examples.full_report,
    "empty": examples.empty_report,
    "clean": examples.clean_report,
    "many": examples.many_findings,
    "hostile": examples.hostile_report,
}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


class _Made(dict[str, Any]):
    """By name, made when it is asked for: most test processes need few of them."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make

    def __missing__(self, name: str) -> Any:
        self[name] = self._make(name)
        return self[name]


def written(report: Report, path: Path) -> str:
    """The page's address."""
    path.write_text(report_page(*report), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="session")
def reports() -> dict[str, Report]:
    return _Made(lambda name: EXAMPLES[name]())


@pytest.fixture(scope="session")
def pages(reports: dict[str, Report], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Addresses of the written pages."""
    folder: Path = tmp_path_factory.mktemp("pages")
    return _Made(lambda name: written(reports[name], folder / f"{name}.html"))
