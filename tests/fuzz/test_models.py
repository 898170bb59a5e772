"""The state machine of the producer can fail: it finds a planted defect."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from kpl_codec.producer import ProducerCore
from tests.producer.machine import ProducerMachine


class ForgetfulCore(ProducerCore):
    """Forgets a result now and then: where three come at once."""

    def results(self) -> list[Any]:
        found = super().results()
        return found[1:] if len(found) == 3 else found


class ForgetfulMachine(ProducerMachine):
    core_class = ForgetfulCore


@pytest.mark.slow
def test_a_forgotten_result_is_found() -> None:
    how = settings(
        max_examples=400, stateful_step_count=20, derandomize=True, database=None, deadline=None,
        phases=[Phase.generate], report_multiple_bugs=False,
    )  # fmt: skip
    with pytest.raises(AssertionError):
        run_state_machine_as_test(ForgetfulMachine, settings=how)
