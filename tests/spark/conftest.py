"""Says of a test that failed because Spark gave up waiting for a Python worker that this is what it was."""

from __future__ import annotations

from collections.abc import Generator

import pytest

_NOT_STARTED = "Python worker failed to connect back"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _NOT_STARTED in report.longreprtext:
        text = "Spark waits about 10 s for a Python worker to start: run this test again under less load."
        report.sections.append(("The machine was too busy to start a Python worker", text))
    return report
