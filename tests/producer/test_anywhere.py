"""Each use of a full producer ends wherever it comes from: it returns, or raises what is true."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from .anywhere import PLACES, USES

#: What may come besides returning, by place and use.
FULL, CLOSED = "ProducerFull", "ProducerClosed"
IN_LOG, IN_CALLBACK, INTERRUPTED = (f"({code})" for code in ("in-log", "in-callback", "in-signal-handler"))
#: These take seconds, and have a like among the others.
SLOW = (
    "multiprocessing_fork",
    "fork_while_logging",
    "log_handler_with_a_lock_of_its_own",
    "logging_configuration",
    "a_call_that_never_returns",
)
WAITS_IN_LOG = {"put": FULL, "result": IN_LOG, "wait": IN_LOG}
REFUSED: dict[str, dict[str, str]] = {
    "log_handler": WAITS_IN_LOG,
    "logging_configuration": WAITS_IN_LOG,
    "logging_shutdown": {"put": CLOSED},
    "callback": {"put": FULL, **dict.fromkeys(("flush", "close", "result", "wait"), IN_CALLBACK)},
    "finalizer_within_a_producer": dict.fromkeys(USES, INTERRUPTED),
    "a_call_that_never_returns": {"result": "DeliveryError"},
}


@pytest.mark.requirement("PRD-40", "PRD-70", "PRD-72", "PRD-76")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork is what is tested: this system has none")
@pytest.mark.parametrize(
    "place",
    [pytest.param(place, marks=pytest.mark.slow) if place.__name__ in SLOW else place for place in PLACES],
    ids=lambda place: place.__name__,
)
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
    if "finalizer" not in place.__name__:
        assert "signal" not in done.stdout
    assert done.returncode == 0, done.stderr
