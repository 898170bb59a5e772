"""The most frequent keys, in limited memory: Space-Saving (Metwally, Agrawal, El Abbadi 2005).

    hitters = HeavyHitters(capacity=100)
    hitters.add("customer-17"); hitters.top()     # (key, count at most, count at least), the most first

Of ``total`` items counted, every key with more than ``total / capacity`` of them is there, and no count
is too high by more than ``total / capacity``.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from heapq import nlargest
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Hitter(Generic[Key]):  # a generic NamedTuple needs Python 3.11
    """A key that was counted at least ``at_least`` and at most ``at_most`` times."""

    key: Key
    at_most: int
    at_least: int


class HeavyHitters(Generic[Key]):
    """Counts keys; keeps at most ``capacity`` of them."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._counts: dict[Key, int] = {}
        self._errors: dict[Key, int] = {}
        #: The total count.
        self.total = 0

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, key: Key, count: int = 1) -> None:
        """Count ``key`` that many times."""
        self.total += count
        counts = self._counts
        if key in counts:
            counts[key] += count
        elif len(counts) < self._capacity:
            counts[key], self._errors[key] = count, 0
        else:
            # SEN-19: "Keys MUST be counted in bounded memory, and a key with more than 1/capacity of
            # everything counted MUST be among those kept."
            rarest = min(counts, key=counts.__getitem__)
            error = counts.pop(rarest)
            del self._errors[rarest]
            counts[key], self._errors[key] = error + count, error

    def top(self, count: int = 10) -> list[Hitter[Key]]:
        """The most frequent keys kept, at most ``count``."""
        most = nlargest(count, self._counts, key=self._counts.__getitem__)
        return [Hitter(key, self._counts[key], self._counts[key] - self._errors[key]) for key in most]
