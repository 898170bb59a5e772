"""The policies that tests try: those of the table, and one with the rules that no policy there has."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kpl_codec import DecodeError, Drop, KinesisRecord, deaggregate
from kpl_codec.deaggregation.policy_rules import POLICIES, POLICY_RULES, PolicyRules, rules_of

#: A test with this policy, as with `EVERY_POLICY`, uses the fixture ``drop_policy``.
DROP = "drop-for-tests"
DROP_RULES = PolicyRules("drop", on_compression="drop")
EVERY_POLICY: tuple[str, ...] = (*POLICIES, DROP)
#: Those that go on after a defect.
NOT_RAISING = tuple(policy for policy in POLICIES if not rules_of(policy).raises)


def rules(policy: str) -> PolicyRules:
    return DROP_RULES if policy == DROP else POLICY_RULES[policy]


def check_payloads(
    stream: list[KinesisRecord],
    good: bytes,
    bad: list[tuple[bytes, str]],
    error_type: type[DecodeError],
    **options: Any,
) -> None:
    """What each policy makes of ``bad``, data and the code of its defect, between a user record whose data
    becomes ``good`` and one of b"x"."""
    for policy in EVERY_POLICY:
        drops: list[Drop] = []
        opened: Any = deaggregate(stream, policy, on_drop=drops.append, **options)
        assert next(opened).data == good
        rule = rules(policy).on_compression
        if rule == "raise":
            with pytest.raises(error_type) as caught:
                next(opened)
            error = caught.value
            place = error.record_index, error.sequence_number, error.shard_id
            assert place == (1, "7", "shardId-000000000000")
            continue
        found, counts = list(opened), opened.counts
        delivered = [] if rule == "drop" else bad
        assert [record.data for record in found] == [*(data for data, _ in delivered), b"x"]
        defects = [[code] if rule == "report" else [] for _, code in delivered]
        assert [[defect.code for defect in record.defects] for record in found] == [*defects, []]
        assert counts.defects == Counter(code for _, code in delivered)
        dropped = len(bad) - len(delivered)
        assert [(drop.user_records, drop.reason) for drop in drops] == [(1, "defect")] * dropped
        assert (counts.dropped["defect"], counts.user_records) == (dropped, len(delivered) + 2)
