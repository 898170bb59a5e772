"""The order in which user records are placed: as they come, or strictly one after the other per partition
key.

    user records ──▶ AnyOrder | StrictOrder ──▶ Placer

StrictOrder: a key's *home* is the Kinesis record that its user records are in, or WAITING while they wait
for a prediction. Later user records of the key may join its home while that is open; others are held until
the last user record in the home has ended or is to be sent again: one that expires leaves others behind. So a
key is in one Kinesis record at a time.
User records without a key have no order.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal

from .kinesis_record import Outgoing
from .ledger import Ended
from .pending import Pending

#: Where a user record is now: in a Kinesis record, or waiting for a prediction, or nowhere, because it cannot
#: join the Kinesis record of its key.
Placed = Outgoing | Literal["waiting", "hold"]
#: ``place(pending, now, home)``: ``home`` is the Kinesis record it must join, None for any.
Place = Callable[[Pending, float, "Outgoing | None"], Placed]


class AnyOrder:
    """Places every user record at once."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def enter(self, pending: Pending, now: float) -> None:
        """Take an accepted user record."""
        self._place(pending, now, None)

    def enter_again(self, records: list[Pending], now: float) -> None:
        """Take user records that are to be placed again, before later ones."""
        records.sort(key=lambda pending: pending.number)
        for pending in records:
            self._place(pending, now, None)

    def ended(self, ended: list[Ended]) -> None:
        """User records have ended that were not held."""

    def place_held(self, now: float) -> None:
        """Place what was held because of user records that have ended or come back."""

    def expires_at(self) -> float | None:
        """When the first held user record expires."""
        return None

    def take_expired(self, now: float) -> list[Pending]:
        """Remove and return the held user records whose time to live is over."""
        return []

    def held(self) -> Iterator[Pending]:
        """All held user records."""
        return iter(())

    def clear(self) -> None:
        """Forget everything."""


class StrictOrder(AnyOrder):
    """See the module. State: the homes, how many user records of the key are in each, the held user records
    by key (oldest first), the keys that left their home, and a heap of the times at which held user records
    expire.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._homes: dict[str, Outgoing | Literal["waiting"]] = {}
        self._inside: dict[str, int] = {}
        self._held: dict[str, deque[Pending]] = {}
        self._left: dict[str, None] = {}  # a set that keeps its order
        self._expiries: list[tuple[float, int, Pending]] = []
        self._holds = 0

    def enter(self, pending: Pending, now: float) -> None:
        key = pending.record.partition_key
        if pending.keyless:
            super().enter(pending, now)
        elif key in self._held or not self._placed(pending, now):
            self._hold(pending)
            self._held.setdefault(key, deque()).append(pending)

    def _placed(self, pending: Pending, now: float) -> bool:
        key = pending.record.partition_key
        home = self._homes.get(key)
        if home == "waiting":
            return False
        placed = self._place(pending, now, home)
        if placed == "hold":
            return False
        self._homes[key] = placed
        self._inside[key] = self._inside.get(key, 0) + 1
        return True

    def _hold(self, pending: Pending) -> None:
        pending.held = True
        self._holds += 1
        heapq.heappush(self._expiries, (pending.expires_at, self._holds, pending))

    def enter_again(self, records: list[Pending], now: float) -> None:
        super().enter_again([pending for pending in records if pending.keyless], now)
        ordered = [pending for pending in records if not pending.keyless]
        for pending in sorted(ordered, key=lambda pending: pending.number, reverse=True):
            self._leave(pending)
            self._hold(pending)
            self._held.setdefault(pending.record.partition_key, deque()).appendleft(pending)

    def ended(self, ended: list[Ended]) -> None:
        for pending, _ in ended:
            if not pending.keyless:
                self._leave(pending)

    def _leave(self, pending: Pending) -> None:
        key = pending.record.partition_key
        self._inside[key] -= 1
        if not self._inside[key]:
            del self._homes[key], self._inside[key]
            self._left[key] = None

    def place_held(self, now: float) -> None:
        while self._left:
            key = next(iter(self._left))
            del self._left[key]
            held = self._held.get(key, ())
            while held and self._placed(held[0], now):
                held.popleft().held = False
            if not held:
                self._held.pop(key, None)

    def expires_at(self) -> float | None:
        while self._expiries and not self._expiries[0][2].held:
            heapq.heappop(self._expiries)
        return self._expiries[0][0] if self._expiries else None

    def take_expired(self, now: float) -> list[Pending]:
        expired = []
        while (at := self.expires_at()) is not None and at <= now:
            pending = heapq.heappop(self._expiries)[2]
            pending.held = False
            key = pending.record.partition_key
            self._held[key].remove(pending)  # it is at or near the front
            if not self._held[key]:
                del self._held[key]
            expired.append(pending)
        return expired

    def held(self) -> Iterator[Pending]:
        for held in self._held.values():
            yield from held

    def clear(self) -> None:
        self._homes.clear()
        self._inside.clear()
        self._held.clear()
        self._left.clear()
        self._expiries.clear()


def order_of(ordering: str, place: Place) -> AnyOrder:
    """The configured order."""
    return StrictOrder(place) if ordering == "partition-key" else AnyOrder(place)
