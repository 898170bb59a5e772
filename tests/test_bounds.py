"""A bound in a test only ends what hangs: none is so short that a busy machine passes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
#: What every machine does in so many seconds, whatever else it does. Shorter than a second are bounds that
#: are meant to pass.
ENOUGH = 60
_BOUND = re.compile(
    r"""\b(?:close|communicate|exception|flush|get|join|result|wait|wait_ready)\((?:timeout=)?([0-9.]+)\)
    |\btimeout=([0-9.]+)|monotonic\(\)\ \+\ ([0-9.]+)|mark\.timeout\(([0-9.]+)""",
    re.VERBOSE,
)


def short(text: str) -> list[str]:
    """The lines with a bound from a second on that is shorter than `ENOUGH`."""
    return [
        line.strip()
        for line in text.splitlines()
        for found in _BOUND.finditer(line)
        if 1 <= float(next(filter(None, found.groups()))) < ENOUGH
    ]


@pytest.mark.parametrize(
    ("line", "is_short"),
    [
        ("future.result(10)", True),
        ("process.communicate(timeout=59.5)", True),
        ("end = time.monotonic() + 20", True),
        ("@pytest.mark.timeout(30)", True),
        ("future.result(60)", False),
        ("stop.wait(0.05)", False),
    ],
)
def test_a_short_bound_is_seen(line: str, is_short: bool) -> None:
    assert bool(short(line)) == is_short


def test_no_bound_is_short() -> None:
    found = {
        str(path.relative_to(HERE)): lines
        for path in sorted(HERE.rglob("*.py"))
        if path != Path(__file__) and (lines := short(path.read_text()))
    }
    assert found == {}, f"{ENOUGH} seconds or more; or what is waited for instead"
