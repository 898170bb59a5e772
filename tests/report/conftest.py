"""One browser, and one file for each example, for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kpl_codec.report import Report, write_page

from . import examples
from .browser import Browser

EXAMPLES = {
    "full": examples.full_report,
    "empty": examples.empty_report,
    "clean": examples.clean_report,
    "many": examples.many_findings,
    "hostile": examples.hostile_report,
    "large": examples.large_report,
}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


@pytest.fixture(scope="session")
def reports() -> dict[str, Report]:
    return {name: make() for name, make in EXAMPLES.items()}


@pytest.fixture(scope="session")
def pages(reports: dict[str, Report], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Addresses of the written pages."""
    folder: Path = tmp_path_factory.mktemp("pages")
    return {name: write_page(report, folder / f"{name}.html").as_uri() for name, report in reports.items()}
