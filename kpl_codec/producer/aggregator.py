"""Collects user records of one predicted shard into aggregates; sizes are exact, outer key counted.

An aggregate is closed when it is full, when the next user record does not fit, or when its earliest
deadline comes. User records keep the order in which they were added.

State: the open aggregates, and a heap of their deadlines.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from .config import ProducerConfig
from .kinesis_record import Outgoing
from .pending import Pending, outer_key

# More than a user record can cost beside its data and keys: tags apart, field heads and varints.
_HEADROOM = 64


class Aggregator:
    """Open aggregates by predicted shard (and group: bucket, shared explicit hash key)."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._max_size = config.aggregation_max_size
        self._safe_size = min(config.aggregation_max_size, config.max_record_size - 4 * 256)
        self._max_count = config.aggregation_max_count
        self._open: dict[tuple[str, object], Outgoing] = {}
        self._deadlines: list[tuple[float, int, Outgoing]] = []
        self._number = 0

    def group_of(self, pending: Pending) -> object:
        """User records of different groups never share an aggregate."""
        if self._config.reshard_proof:
            return pending.bucket, pending.hash_key
        return pending.bucket

    def open_for(self, shard: str, pending: Pending) -> Outgoing | None:
        """The open aggregate that ``pending`` would be added to, if it fits."""
        unit = self._open.get((shard, self.group_of(pending)))
        return unit if unit is not None and self._fits(unit, pending) else None

    def alone(self, shard: str | None, pending: Pending) -> Outgoing:
        """A closed Kinesis record of one user record."""
        unit = Outgoing(shard, None, outer_key(self._config, pending), pending)
        unit.closed = True
        return unit

    def add(self, shard: str, pending: Pending) -> tuple[Outgoing, list[Outgoing]]:
        """Add a user record. Gives the Kinesis record it is in now, and those that this has closed."""
        closed = []
        key = (shard, self.group_of(pending))
        unit = self._open.get(key)
        # PRD-15: "An aggregate MUST be closed before a user record that would take it beyond
        # aggregation_max_size, aggregation_max_count or, outer key included, max_record_size."
        if unit is not None and not self._fits(unit, pending):
            closed.append(self._close(key))
            unit = None
        if unit is None:
            unit = self._open[key] = Outgoing(shard, key[1], outer_key(self._config, pending), pending)
            self._push(unit)
        else:
            deadline = unit.deadline
            unit.add(pending)
            if unit.deadline < deadline:
                self._push(unit)
        if len(unit.records) >= self._max_count or unit.size.size >= self._max_size:
            closed.append(self._close(key))
        return unit, closed

    def _fits(self, unit: Outgoing, pending: Pending) -> bool:
        if len(unit.records) >= self._max_count:
            return False
        # UTF-8 takes at most four bytes for each of the at most 256 + 39 characters of the keys.
        rough = unit.size.size + len(pending.record.data) + 4 * (256 + 39) + _HEADROOM
        if rough <= self._safe_size and not pending.record.tags:
            return True
        size = unit.size.after(pending.record)
        return size <= self._max_size and size + len(unit.outer_key.encode()) <= self._config.max_record_size

    def _push(self, unit: Outgoing) -> None:
        self._number += 1
        heapq.heappush(self._deadlines, (unit.deadline, self._number, unit))

    def _close(self, key: tuple[str, object]) -> Outgoing:
        unit = self._open.pop(key)
        unit.closed = True
        return unit

    def close(self, unit: Outgoing) -> Outgoing:
        """Close one aggregate before its time."""
        assert unit.shard is not None
        return self._close((unit.shard, unit.group))

    def deadline(self) -> float | None:
        """When the next aggregate has to be closed."""
        while self._deadlines and self._deadlines[0][2].closed:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def due(self, now: float) -> Iterator[Outgoing]:
        """Close and give the aggregates whose deadline has come."""
        while (deadline := self.deadline()) is not None and deadline <= now:
            yield self.close(heapq.heappop(self._deadlines)[2])

    def units(self) -> list[Outgoing]:
        """The open aggregates."""
        return list(self._open.values())

    def take_all(self) -> list[Outgoing]:
        """Close and give all open aggregates, in the order they were begun."""
        return [self._close(key) for key in list(self._open)]

    def take_others(self, open_shards: frozenset[str]) -> list[Outgoing]:
        """Close and give the open aggregates of shards that are not open any more."""
        return [self._close(key) for key in list(self._open) if key[0] not in open_shards]
