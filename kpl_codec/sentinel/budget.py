"""A budget of so many units a second.

    budget = Budget(5.0)                 # 5 a second, at most 5 at once
    if budget.free_at <= now: budget.spend(1, now)

Spending more than is left makes a debt, and nothing is free until it is paid. So the spending in a span of
time is at most its length times the rate, plus the burst, plus the last amount.
Specification: spec/10-sentinel.md, SEN-3, SEN-4.
"""

from __future__ import annotations


class Budget:
    """``per_second`` units; at most ``burst`` are saved up (default: those of one second, at least 1)."""

    __slots__ = ("_burst", "_left", "_rate", "_since", "spent")

    def __init__(self, per_second: float, burst: float | None = None) -> None:
        self._rate = per_second
        self._burst = max(1.0, per_second) if burst is None else burst
        self._left = self._burst
        self._since = float("-inf")
        #: The total spent.
        self.spent = 0.0

    def _earn(self, now: float) -> None:
        if now > self._since:
            earned = (now - self._since) * self._rate if self._since > float("-inf") else 0.0
            self._left = min(self._burst, self._left + earned)
            self._since = now

    def free_at(self, now: float, amount: float = 0.0) -> float:
        """When ``amount`` (at most the burst) can be spent; ``now`` if it can be at once. An amount of 0
        is free as soon as there is no debt."""
        self._earn(now)
        lacking = min(amount, self._burst) - self._left
        return now if lacking <= 1e-9 else now + lacking / self._rate

    def set_back(self, seconds: float) -> None:
        """The caller's clock was set back by so much."""
        self._since -= seconds

    def spend(self, amount: float, now: float) -> None:
        """Take ``amount``; a negative amount gives back."""
        self._earn(now)
        self._left = min(self._burst, self._left - amount)
        self.spent += amount
