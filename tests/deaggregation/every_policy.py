"""The policies that tests try: those of the table, and one with the rules that no policy there has."""

from __future__ import annotations

from kpl_codec.deaggregation.policy_rules import POLICIES, POLICY_RULES, PolicyRules, rules_of

#: A test with this policy, as with `EVERY_POLICY`, uses the fixture ``drop_policy``.
DROP = "drop-for-tests"
DROP_RULES = PolicyRules("drop", on_compression="drop", on_schema_frame="drop")
EVERY_POLICY: tuple[str, ...] = (*POLICIES, DROP)
#: Those that go on after a defect.
NOT_RAISING = tuple(policy for policy in POLICIES if not rules_of(policy).raises)


def rules(policy: str) -> PolicyRules:
    return DROP_RULES if policy == DROP else POLICY_RULES[policy]
