"""The policies, and what each does with a defective Kinesis record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, get_args

from ..values import Value
from .deaggregated_record import Drop

Policy = Literal["strict", "kcl", "report"]
"""What to do with a defective aggregate: raise, deliver what the KCL delivers, or deliver all with
defects."""
POLICIES: tuple[Policy, ...] = get_args(Policy)


class PolicyRules(Value):
    """What a policy does. All code asks these rules; none compares names of policies.

    ``raises``: the first defect is raised.
    ``drops``: user records may be left out; each is counted, and ``on_drop`` is called.
    ``as_kcl``: what the KCL delivers is delivered.
    ``shows_defects``: every user record is delivered, with its defects and what the KCL does with it; a frame
    that cannot be read is delivered raw.
    """

    raises: bool = False
    drops: bool = False
    as_kcl: bool = False
    shows_defects: bool = False


POLICY_RULES: Final[Mapping[str, PolicyRules]] = {
    "strict": PolicyRules(raises=True),
    "kcl": PolicyRules(drops=True, as_kcl=True),
    "report": PolicyRules(shows_defects=True),
}


def rules_of(policy: str) -> PolicyRules:
    """The rules of a policy. Raises ValueError for an unknown one; its text lists the policies."""
    if policy not in POLICIES:
        raise ValueError(f"unknown policy {policy!r}: choose {', '.join(POLICIES[:-1])} or {POLICIES[-1]}")
    return POLICY_RULES[policy]


def require_on_drop(policy: str, on_drop: Callable[[Drop], None] | None) -> None:
    """Raises ValueError for an unknown policy, and for one that drops user records without an ``on_drop``."""
    if rules_of(policy).drops and on_drop is None:
        raise ValueError(f"policy {policy!r} drops user records: on_drop must be there to hear of them")
