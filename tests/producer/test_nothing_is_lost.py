"""The proof: a producer against a model of Kinesis that splits, merges, throttles and loses answers.

After every run, and whatever happened in it:
  * every accepted user record has exactly one result;
  * what is called delivered, a KCL consumer gets: at least once, and exactly once if no answer was lost
    and no map stayed away for longer than a verdict may wait;
  * what is called failed says why.
With the KPL's rule, for each user record by itself, in place of ours the same machine loses records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from kpl_codec.producer import Attempt, Delivery, Pending, ProducerCore
from kpl_codec.producer.batch import Batch
from tests.examples import examples, share

from .machine import MACHINES, ProducerMachine

QUICK = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.requirement(
    "PRD-6", "PRD-9", "PRD-10", "PRD-17", "PRD-18", "PRD-22", "PRD-23", "PRD-24", "PRD-25", "PRD-27",
    "PRD-31", "PRD-32", "PRD-66", "PRD-72", "PRD-82", "PRT-6", "PRT-7", "PRT-9",
)  # fmt: skip
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_nothing_is_lost(machine: type[ProducerMachine]) -> None:
    run_state_machine_as_test(machine, settings=QUICK)


@pytest.mark.requirement("PRT-9", "PRT-10", "PRD-32", "PRD-80")
@pytest.mark.parametrize("how", ["throttled", "InternalFailure", "outage"])
@pytest.mark.parametrize("split", [False, True], ids=["no split", "split"])
@pytest.mark.parametrize(
    "machine", [one for one in MACHINES if one.waits_at_the_end], ids=lambda machine: machine.__name__
)
def test_nobody_with_an_alternative_expires_unsent(
    machine: type[ProducerMachine], how: str, split: bool
) -> None:
    for which in range(0, 4, share()):
        one = machine()
        one.stream.split(0)
        one.stream.split(0)
        one.begin(map_first=True)
        one.one_shard_takes_nothing_for_a_while(which, how, split, map_first=True)
        one.teardown()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.requirement("PRD-10", "PRD-23", "PRD-28")
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_nothing_is_lost_at_length(machine: type[ProducerMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(QUICK, max_examples=3000, stateful_step_count=80))


# -- the KPL's rule


class KplRuleCore(ProducerCore):
    """The KPL since 0.15.11: on another shard than predicted, the user records that its cached range
    holds are done, the others sent again; with the range unknown, all are sent again."""

    def _attempt_ended(
        self, batch: Batch, attempt: Attempt, now: float, *, by_itself: bool
    ) -> Sequence[Pending]:
        if attempt.outcome != "delivered":
            return super()._attempt_ended(batch, attempt, now, by_itself=by_itself)
        assert attempt.shard_id is not None
        assert attempt.sequence_number is not None
        done = list(batch.records)
        if batch.shard is not None and batch.shard != attempt.shard_id:
            self.live.invalidate(batch.sent_at, batch.shard, now)
            known = self.live.known.all.get(attempt.shard_id)
            done = [one for one in done if known is not None and one.hash_key in known.hash_key_range]
        for index, pending in enumerate(done):
            pending.result = Delivery(attempt.shard_id, attempt.sequence_number, index, (attempt,))
        self._end(done)
        batch.records = [pending for pending in batch.records if pending not in done]
        misplaced = attempt.replace(outcome="misplaced")
        return self._carry_out(batch, misplaced, "place", now) if batch.records else ()


class KplRuleMachine(ProducerMachine):
    """The KPL's rule in the same model, under the same claims."""

    core_class = KplRuleCore
    doubles_matter = False  # it doubles too; what is asked here is whether it loses
    # It loses where nothing breaks: only splits, merges and the order of answers are left to the adversary.
    something_breaks = a_late_request_arrives = an_answer_makes_no_sense = None
    no_map_can_be_had_for_a_while = one_shard_takes_nothing_for_a_while = None
    it_happens_while_aggregates_are_open = answers_of_earlier_calls_come = None


@pytest.mark.slow
def test_the_kpls_rule_loses_records_in_the_same_model() -> None:
    """Hypothesis finds it by itself: called delivered, dropped by the KCL."""
    how: Any = {"database": None, "derandomize": True, "phases": [Phase.generate]}
    hunt = settings(QUICK, max_examples=2000, report_multiple_bugs=False, **how)
    with pytest.raises(AssertionError, match="lost: called delivered, dropped by the KCL"):
        run_state_machine_as_test(KplRuleMachine, settings=hunt)
