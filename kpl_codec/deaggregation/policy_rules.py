"""The policies, and what each does with defective Kinesis records and data that cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, get_args

from ..base.arguments import add_row, argument_error
from ..base.values import Value
from .deaggregated_record import Drop

Policy = Literal["strict", "kcl", "report"]
"""What becomes of a defective Kinesis record: the name of a row of POLICY_RULES."""
POLICIES: tuple[Policy, ...] = get_args(Policy)


class PolicyRules(Value):
    """What a policy does. All code asks these rules; none compares names of policies.

    ``on_defect``, a Kinesis record with a defect: "raise" the first; "as-kcl": deliver what the KCL delivers,
    and drop what it drops; "report": deliver every user record, with its defects and what the KCL does with
    it, and a frame that cannot be read as it is. ``on_compression``, data that cannot be decompressed:
    "raise"; "report": deliver the data as it is, with the defect.
    """

    on_defect: Literal["raise", "as-kcl", "report"]
    on_compression: Literal["raise", "report"]

    @property
    def raises(self) -> bool:
        """The first defect is raised."""
        return self.on_defect == "raise"

    @property
    def as_kcl(self) -> bool:
        """The user records that the KCL delivers are delivered, with the keys and data that it gives them.
        The others are dropped and counted, and ``on_drop`` is called."""
        return self.on_defect == "as-kcl"

    @property
    def shows_defects(self) -> bool:
        """User records are delivered with their defects and what the KCL does with them."""
        return self.on_defect == "report"


POLICY_RULES: Final[Mapping[str, PolicyRules]] = {
    "strict": PolicyRules("raise", on_compression="raise"),
    "kcl": PolicyRules("as-kcl", on_compression="raise"),
    "report": PolicyRules("report", on_compression="report"),
}


def one_of_policies(*more: str) -> str:
    """The names of the policies, and ``more`` words, as a list in a sentence: "a, b or c"."""
    words = (*POLICIES, *more)
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _wrong_policy(value: object) -> type[Exception] | None:
    return TypeError if not isinstance(value, str) else None if value in POLICY_RULES else ValueError


add_row("policy", _wrong_policy, one_of_policies())


def rules_of(policy: str) -> PolicyRules:
    """The rules of a policy. Raises ValueError for an unknown one; its text lists the policies."""
    if policy not in POLICY_RULES:
        raise ValueError(f"unknown policy {policy!r}: choose {one_of_policies()}")
    return POLICY_RULES[policy]


def require_on_drop(function: str, policy: str, on_drop: Callable[[Drop], None] | None) -> None:
    """Raises ValueError for an unknown policy, and for one that drops user records without an ``on_drop``."""
    if rules_of(policy).as_kcl and on_drop is None:
        give = f"a function that takes a Drop: policy {policy!r} drops user records"
        raise argument_error(function, "on_drop", None, ValueError, give)
