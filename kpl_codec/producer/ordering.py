"""Strict order per partition key: where a key is under way, and who waits behind.

A key's *home* is the Kinesis record that its user records are in, or WAITING for one without a shard
yet. Later user records may join them there while it is open; others are held until all of it has ended.
So a key is under way in one Kinesis record at a time.

State: the homes, the held user records by key (oldest first), and the keys whose home was left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from .pending import Outgoing, Pending

WAITING: Final = "waiting"


class Ordering:
    """See the module. Not for records without a key: they have no order."""

    def __init__(self) -> None:
        self._homes: dict[str, Outgoing | str] = {}
        self._held: dict[str, deque[Pending]] = {}
        self._left: dict[str, None] = {}  # a set that keeps its order

    def must_wait(self, pending: Pending) -> bool:
        """Whether others of its key are held already, or wait for a shard."""
        key = pending.record.partition_key
        return key in self._held or self._homes.get(key) is WAITING

    def home(self, pending: Pending) -> Outgoing | None:
        """The Kinesis record in which its key is under way."""
        home = self._homes.get(pending.record.partition_key)
        return home if isinstance(home, Outgoing) else None

    def settle(self, pending: Pending, home: Outgoing | str) -> None:
        """Its key is under way in ``home`` now."""
        self._homes[pending.record.partition_key] = home

    def leave(self, pending: Pending) -> None:
        """It has ended, or comes back to be sent again: its key has no home any more."""
        key = pending.record.partition_key
        self._homes.pop(key, None)
        self._left[key] = None

    def hold(self, pending: Pending) -> None:
        """Wait behind everything of its key."""
        self._held.setdefault(pending.record.partition_key, deque()).append(pending)

    def put_back(self, records: Iterable[Pending]) -> None:
        """User records to be placed again, newest last: before everything held of their keys."""
        for pending in reversed(list(records)):
            self._held.setdefault(pending.record.partition_key, deque()).appendleft(pending)

    def take_left(self) -> str | None:
        """A key whose home was left since the last call: its held records may go now."""
        key = next(iter(self._left), None)
        if key is not None:
            del self._left[key]
        return key

    def next(self, key: str) -> Pending | None:
        """Take the oldest held user record of a key, unless the key waits for a shard."""
        held = self._held.get(key)
        if not held or self._homes.get(key) is WAITING:
            return None
        pending = held.popleft()
        if not held:
            del self._held[key]
        return pending

    def expires_at(self) -> float | None:
        """When the first held user record expires. O(keys that hold any)."""
        return min((pending.expires_at for pending in self.held()), default=None) if self._held else None

    def take_expired(self, now: float) -> list[Pending]:
        """Take the held user records whose time to live is over."""
        expired = [pending for pending in self.held() if pending.expires_at <= now]
        for key in {pending.record.partition_key for pending in expired}:
            left = deque(pending for pending in self._held.pop(key) if pending.expires_at > now)
            if left:
                self._held[key] = left
        return expired

    def held(self) -> Iterator[Pending]:
        """All held user records, key by key."""
        for held in self._held.values():
            yield from held

    def clear(self) -> None:
        self._homes.clear()
        self._held.clear()
        self._left.clear()
