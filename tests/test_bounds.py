"""A bound in a test only ends what hangs: none is so short that a busy machine passes it."""

from __future__ import annotations

import re
from pathlib import Path

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


def test_a_short_bound_is_seen() -> None:
    lines = ["future.result(10)", "process.communicate(timeout=59.5)", "end = time.monotonic() + 20"]
    lines.append("@pytest.mark.timeout(30)")
    assert short("\n".join([*lines, "future.result(60)", "stop.wait(0.05)"])) == lines


def test_no_bound_is_short() -> None:
    found = {
        str(path.relative_to(HERE)): lines
        for path in sorted(HERE.rglob("*.py"))
        if path != Path(__file__) and (lines := short(path.read_text()))
    }
    assert found == {}, f"{ENOUGH} seconds or more; or what is waited for instead"
