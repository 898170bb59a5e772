"""Collects user records of one predicted shard into aggregates. Sizes are exact and include the outer key.

An aggregate is closed when it is full, when the next user record does not fit, or when its earliest deadline
comes. One with few user records may wait longer. User records keep their order.
Specification: spec/05-producer.md, PRD-15 and PRD-48.
"""

from __future__ import annotations

import heapq

from .config import ProducerConfig
from .pending import Pending, outer_key
from .record_builder import KinesisRecordBuilder


class Aggregator:
    """The open aggregates by predicted shard (and group: bucket, shared explicit hash key), and ``closed``:
    Kinesis records for the send queue, in this order."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._reshard_proof = config.reshard_proof
        self._max_size = config.aggregation_max_size
        self._max_count = config.aggregation_max_count
        self._open: dict[tuple[str, object], KinesisRecordBuilder] = {}
        self.closed: list[KinesisRecordBuilder] = []
        # Deadlines of the open ones by their key, and of some that were closed since: without their data.
        self._deadlines: list[tuple[float, int, tuple[str, object]]] = []
        self._number = 0
        self._min_count = config.aggregation_min_count
        self._enough = min(self._min_count, self._max_count)
        self._patience = min(config.aggregation_max_buffered_time_ms, config.record_ttl_ms / 2) / 1000
        self._longest = self._patience - config.collecting_seconds
        self._few = self._min_count > 1 and self._patience > config.buffering_seconds
        self._last_at: dict[str, float] = {}  # by shard, if aggregates with few user records wait

    def _group(self, pending: Pending) -> object:
        return (pending.bucket, pending.hash_key) if self._reshard_proof else pending.bucket

    def open_for(self, shard: str, pending: Pending) -> KinesisRecordBuilder | None:
        """The open aggregate to which ``pending`` would be added, if it fits."""
        outgoing = self._open.get((shard, self._group(pending)))
        return outgoing if outgoing is not None and outgoing.has_room(pending) else None

    def alone(self, shard: str | None, pending: Pending) -> KinesisRecordBuilder:
        outgoing = self._begin(shard, None, pending)
        self._close(outgoing)
        return outgoing

    def _begin(self, shard: str | None, group: object, first: Pending) -> KinesisRecordBuilder:
        key = outer_key(self._config, first)
        max_size = min(self._max_size, self._config.known_record_size - len(key.encode()))
        return KinesisRecordBuilder(shard, group, key, max_size, first)

    def add(self, shard: str, pending: Pending) -> KinesisRecordBuilder:
        """Add a user record. Returns the Kinesis record it is in. It or the one before may be closed now."""
        group = self._group(pending) if self._reshard_proof else pending.bucket
        key = (shard, group)
        outgoing = self._open.get(key)
        # PRD-15: "An aggregate MUST be closed before a user record that would take it beyond
        # aggregation_max_size, aggregation_max_count or, outer key included, max_record_size."
        if outgoing is not None:
            deadline = outgoing.deadline
            if not outgoing.add(pending):
                self.close(outgoing)
                outgoing = None
            elif outgoing.deadline < deadline:
                self._push(key, outgoing.deadline)
        if outgoing is None:
            outgoing = self._open[key] = self._begin(shard, group, pending)
            self._push(key, outgoing.deadline)
            if self._few:
                last_at = self._last_at.get(shard, float("-inf"))
                outgoing.may_wait = pending.accepted_at - last_at <= self._patience
        if self._few:
            self._last_at[shard] = pending.accepted_at
        most = self._enough if outgoing.waited else self._max_count
        if len(outgoing.records) >= most or outgoing.aggregate.size >= self._max_size:
            self.close(outgoing)
        return outgoing

    def _push(self, key: tuple[str, object], deadline: float) -> None:
        self._number += 1
        heapq.heappush(self._deadlines, (deadline, self._number, key))
        # PRD-66: "A user record that has ended MUST take no memory, whatever others are outstanding."
        if len(self._deadlines) > 2 * len(self._open) + 64:
            builders = self._open.items()
            self._deadlines = [(one.deadline, at, key) for at, (key, one) in enumerate(builders)]
            heapq.heapify(self._deadlines)

    def close(self, outgoing: KinesisRecordBuilder) -> None:
        assert outgoing.shard is not None
        del self._open[outgoing.shard, outgoing.group]
        self._close(outgoing)

    def _close(self, outgoing: KinesisRecordBuilder) -> None:
        outgoing.closed = True
        self.closed.append(outgoing)

    def deadline(self) -> float | None:
        deadlines = self._deadlines
        while deadlines:
            deadline, _, key = deadlines[0]
            outgoing = self._open.get(key)
            if outgoing is not None and outgoing.deadline == deadline:
                return deadline
            heapq.heappop(deadlines)  # it was closed, or has an earlier deadline now
        return None

    def close_due(self, now: float, urgent_below: int) -> None:
        """Close the aggregates whose deadline has come; those with a user record whose number is below
        ``urgent_below`` wait no longer."""
        while (deadline := self.deadline()) is not None and deadline <= now:
            key = heapq.heappop(self._deadlines)[2]
            outgoing = self._open[key]
            until = self._waits_until(outgoing, urgent_below) if outgoing.may_wait else now
            if until > now:
                outgoing.waited, outgoing.deadline = True, until
                self._push(key, until)
            else:
                self.close(outgoing)

    def _waits_until(self, outgoing: KinesisRecordBuilder, urgent_below: int) -> float:
        # PRD-48: "An aggregate of fewer than aggregation_min_count user records whose time has come MUST wait
        # for more, at most aggregation_max_buffered_time_ms after its first was put, if its shard had got a
        # user record not longer than that before the first; retries and a flush MUST NOT wait."
        records = outgoing.records
        if len(records) >= self._min_count or any(p.history or p.number < urgent_below for p in records):
            return float("-inf")
        return min(outgoing.expires_at, min(pending.accepted_at for pending in records) + self._longest)

    def kinesis_records(self) -> list[KinesisRecordBuilder]:
        return list(self._open.values())

    def close_all(self) -> None:
        for outgoing in self.kinesis_records():
            self.close(outgoing)

    def take_others(self, open_shards: frozenset[str]) -> list[KinesisRecordBuilder]:
        if self._few:
            self._last_at = {shard: at for shard, at in self._last_at.items() if shard in open_shards}
        gone = [self._open.pop(key) for key in list(self._open) if key[0] not in open_shards]
        for outgoing in gone:
            outgoing.closed = True
        return gone
