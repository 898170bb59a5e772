"""The proof: a producer against a model of Kinesis that splits, merges, throttles and loses answers.

After every run, and whatever happened in it:
  * every accepted user record has exactly one result;
  * what is called delivered, a KCL consumer gets: at least once, and exactly once if no answer was lost
    and no map stayed away for longer than a verdict may wait;
  * what is called failed says why.
With the KPL's rule in place of ours the same machine loses records: see test_the_kpls_rule.py.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.examples import examples

from .machine import ProducerMachine
from .machines import MACHINES

QUICK = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.requirement(
    "PRD-6", "PRD-9", "PRD-10", "PRD-17", "PRD-22", "PRD-23", "PRD-24", "PRD-27", "PRD-66"
)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_nothing_is_lost(machine: type[ProducerMachine]) -> None:
    run_state_machine_as_test(machine, settings=QUICK)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.requirement("PRD-10", "PRD-23", "PRD-28")
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_nothing_is_lost_at_length(machine: type[ProducerMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(QUICK, max_examples=3000, stateful_step_count=80))
