"""What watching may cost, and what it does cost. Specification: spec/10-watch.md, WCH-3, WCH-4, WCH-6."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Budget:
    """``per_second`` units; at most those of one second, and at least 1, are saved up.

    Spending more than is left makes a debt, and nothing is free until it is paid. So the spending in a span
    of time is at most its length times the rate, plus what was saved, plus the last amount."""

    __slots__ = ("_burst", "_left", "_rate", "_since")

    def __init__(self, per_second: float) -> None:
        self._rate = per_second
        self._left = self._burst = max(1.0, per_second)
        self._since = float("-inf")

    def _earn(self, now: float) -> None:
        if now > self._since:
            self._left = min(self._burst, self._left + (now - self._since) * self._rate)
            self._since = now

    def free_at(self, now: float, amount: float = 0.0) -> float:
        """When ``amount`` can be spent, at the soonest ``now``; one of 0 as soon as there is no debt."""
        self._earn(now)
        lacking = min(amount, self._burst) - self._left
        return now if lacking <= 1e-9 else now + lacking / self._rate

    def spend(self, amount: float, now: float) -> None:
        """Take ``amount``; a negative amount gives back."""
        self._earn(now)
        self._left = min(self._burst, self._left - amount)


#: Seconds between two calls for a shard that is read whole and has nothing more.
POLL = 1.0
#: Calls that one look is planned with: GetShardIterator, and GetRecords until the slot is read.
CALLS_A_LOOK = 3
#: The part of all calls that looks are planned to need; the rest is for retries and new shards.
_PLANNED = 0.8


def planned_period(wanted: float, shards: int, calls_per_second: float) -> float:
    """Seconds between two looks at a shard: ``wanted``, or more if ``shards`` need it."""
    # WCH-6: "A period too short for the calls allowed MUST be lengthened, and the length told."
    return max(wanted, shards * CALLS_A_LOOK / (calls_per_second * _PLANNED))


class Limits(NamedTuple):
    """What may be spent: GetShardIterator and GetRecords calls and bytes of data a second, of one shard
    and in all. A shard allows 5 calls and 2 MiB a second to all its readers that poll together."""

    shard_calls: float = 1.0
    calls: float = 20.0
    shard_bytes: float = 200_000.0
    bytes: float = 2_000_000.0


class Cost(NamedTuple):
    """What watching ``shards`` open shards costs. ``period``: seconds between two looks at a shard;
    ``calls``: a second on each, of the 5 it allows; ``share``: of its time."""

    shards: int
    period: float
    calls: float
    share: float

    def __str__(self) -> str:
        how = "everything is read" if self.share >= 1 else f"{self.share:.1%} of each shard's time"
        return (
            f"{self.shards} open shards, {how}, each looked at every {self.period:.0f} s: about "
            f"{self.calls * self.shards:.1f} calls a second in all, {self.calls:.2f} calls a second on each "
            f"shard ({self.calls / 5:.1%} of what it allows)"
        )


@dataclass(slots=True)
class Measured:
    """What the watch has cost so far. ``calls``: by operation, failed ones too; ``failed``: by code."""

    calls: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    missed: int = 0
