"""Strict order: the user records of a partition key go out one after the other.

A key's *home* is the Kinesis record that its user records are in, or "waiting" while they wait for a
prediction. Later user records of the key join the home while it is open, else they are held until all of the
key have left the home. So a key is in one Kinesis record at a time. User records without a key have no order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal

from .batch import Batch
from .record import Pending

#: Where the user records of a key are.
Home = Batch | Literal["waiting"]


class StrictOrder:
    """Homes and held user records by key."""

    def __init__(self) -> None:
        self._homes: dict[str, Home] = {}
        self._inside: dict[str, int] = {}
        self._held: dict[str, deque[Pending]] = {}
        self._free_keys: dict[str, None] = {}  # keys without a home, in this order

    def home(self, pending: Pending) -> Home | None:
        return self._homes.get(pending.record.partition_key)

    def is_held(self, pending: Pending) -> bool:
        return pending.record.partition_key in self._held

    def placed(self, pending: Pending, home: Home) -> None:
        key = pending.record.partition_key
        self._homes[key] = home
        self._inside[key] = self._inside.get(key, 0) + 1

    def hold(self, pending: Pending) -> None:
        self._held.setdefault(pending.record.partition_key, deque()).append(pending)

    def come_back(self, records: list[Pending]) -> None:
        """Take user records out of their homes, and hold them before all other held ones of their keys."""
        for pending in sorted(records, key=lambda pending: pending.number, reverse=True):
            self._leave(pending)
            self._held.setdefault(pending.record.partition_key, deque()).appendleft(pending)

    def ended(self, records: Iterable[Pending]) -> None:
        for pending in records:
            if not pending.keyless:
                self._leave(pending)

    def _leave(self, pending: Pending) -> None:
        key = pending.record.partition_key
        self._inside[key] -= 1
        if not self._inside[key]:
            del self._homes[key], self._inside[key]
            self._free_keys[key] = None

    def next_held(self) -> Pending | None:
        """The first held user record of a key without a home, None if there is none; then `release` it or let
        it `wait`."""
        while self._free_keys:
            key = next(iter(self._free_keys))
            if key in self._held:
                return self._held[key][0]
            del self._free_keys[key]
        return None

    def wait(self, pending: Pending) -> None:
        self._free_keys.pop(pending.record.partition_key, None)

    def release(self, pending: Pending) -> None:
        key = pending.record.partition_key
        self._held[key].popleft()
        if not self._held[key]:
            del self._held[key]

    def take_expired(self, now: float) -> list[Pending]:
        """Take the held user records whose time to live is over."""
        expired = []
        for queue in list(self._held.values()):
            while queue and queue[0].expires_at <= now:
                expired.append(queue[0])
                self.release(queue[0])
        return expired

    def first(self) -> list[Pending]:
        """The first held user record of each key, which expires before the others."""
        return [queue[0] for queue in self._held.values()]

    def held(self) -> Iterator[Pending]:
        for queue in self._held.values():
            yield from queue
