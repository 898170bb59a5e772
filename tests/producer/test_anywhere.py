"""Each use of a full producer ends wherever it comes from: it returns, or raises what is true."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from .anywhere import PLACES, USES

#: What comes besides returning, by place and use.
WAITS = dict.fromkeys(("flush", "close", "result", "wait"), "WouldDeadlock")
REFUSED: dict[str, dict[str, str]] = {"callback": {"put": "ProducerFull", **WAITS}}


@pytest.mark.requirement("PRD-39", "PRD-40", "PRD-72")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork is what is tested: this system has none")
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_every_use_ends(place: Callable[[], None]) -> None:
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    program = [sys.executable, "-m", "tests.producer.anywhere", place.__name__]
    done = subprocess.run(program, capture_output=True, text=True, timeout=110, env=here)
    came = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert list(came) == list(USES), done.stderr
    refused = REFUSED.get(place.__name__, {})
    assert {name: refused.get(name, "returned") in text for name, text in came.items()} == dict.fromkeys(
        USES, True
    ), came
    assert done.returncode == 0, done.stderr
