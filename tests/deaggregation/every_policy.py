"""The policies that tests try: those of the table, and one with the rules that no policy there has."""

from __future__ import annotations

from typing import Any

import pytest

from kpl_codec import DecodeError
from kpl_codec.deaggregation.policy_rules import POLICIES, POLICY_RULES, PolicyRules, rules_of

#: A test with this policy, as with `EVERY_POLICY`, uses the fixture ``drop_policy``.
DROP = "drop-for-tests"
DROP_RULES = PolicyRules("drop", on_compression="drop", on_schema_frame="drop")
EVERY_POLICY: tuple[str, ...] = (*POLICIES, DROP)
#: Those that go on after a defect.
NOT_RAISING = tuple(policy for policy in POLICIES if not rules_of(policy).raises)


def rules(policy: str) -> PolicyRules:
    return DROP_RULES if policy == DROP else POLICY_RULES[policy]


def check_raised(opened: Any, error_type: type[DecodeError], record_index: int) -> None:
    """The next user record of ``opened`` raises, and the error names it and its Kinesis record."""
    with pytest.raises(error_type) as caught:
        next(opened)
    error = caught.value
    place = error.record_index, error.sequence_number, error.shard_id
    assert place == (record_index, "7", "shardId-000000000000")
