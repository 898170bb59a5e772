"""Builds the Kinesis records to send: the user records of each, its size, its entry in a PutRecords call.

The `Aggregator` collects user records of one predicted shard. An aggregate is closed when it is full, when
the next user record does not fit, or when its earliest deadline comes. User records keep their order, and
sizes are exact. Specification: spec/05-producer.md, PRD-11 to PRD-15 and PRD-72.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple

from ..errors import AggregateFull
from ..format.codec import AggregatedRecordBuilder, build_many
from ..format.hash_keys import format_hash_key
from ..ledger.ledger_rows import NO_DIGEST, digest_of
from .config import ProducerConfig
from .outcomes import Attempt, Entry
from .pending import Pending, outer_key
from .states import MOVES, RecordState

#: PRD-72: the most seconds that user records wait for a response after their time to live; and the most
#: seconds that a call may be under way after its timeouts.
GRACE, LONGEST_CALL = 3.0, 60.0


class PutRecordsRequest(NamedTuple):
    """A PutRecords call to make: ``records`` is its Records argument. ``number``: of the call."""

    number: int
    records: list[dict[str, Any]]


class KinesisRecordBuilder:
    """A Kinesis record to send: user records of one predicted shard, or a single one.

    ``lowest``, ``highest``: the smallest and largest effective hash key. ``keyless``: some have no key.
    ``state``: that of its user records, which changes by `becomes`; only an open one takes more.
    ``max_size``: bytes of an aggregate without its outer key. ``deadline``, ``expires_at``: the earliest of
    its user records, in seconds. Of the last attempt: ``sent_at``, the map's ``generation``, the ``digest``
    of what was sent (`kpl_codec.ledger.ledger_rows`).
    """

    __slots__ = (
        "aggregate", "deadline", "digest", "expires_at", "generation", "group", "highest", "keyless",
        "lowest", "outer_key", "records", "sent_at", "shard", "state",
    )  # fmt: skip

    def __init__(
        self, shard: str | None, group: object, outer_key: str, max_size: int, first: Pending
    ) -> None:
        self.shard = shard
        self.group = group
        self.outer_key = outer_key
        self.state: RecordState = "open"
        self.digest = NO_DIGEST
        self.sent_at, self.generation = 0.0, 0
        self._begin(first)
        self.aggregate.max_size = max_size

    def _begin(self, first: Pending) -> None:
        self.records = [first]
        self.aggregate = AggregatedRecordBuilder()
        self.aggregate.add(first.record)
        self.lowest = self.highest = first.hash_key
        self.keyless = first.keyless
        self.deadline = first.deadline
        self.expires_at = first.expires_at

    def becomes(self, state: RecordState) -> None:
        """Raises RuntimeError for a move that `MOVES` does not have, which is a bug."""
        if state not in MOVES[self.state]:
            raise RuntimeError(f"a Kinesis record that is {self.state} cannot become {state}")
        self.state = state

    def has_room(self, pending: Pending) -> bool:
        most = self.aggregate.max_size
        return most is None or self.aggregate.size_with(pending.record) <= most

    def add(self, pending: Pending) -> bool:
        """Add a user record, unless the aggregate would be larger than ``max_size``. Returns whether it was
        added."""
        try:
            self.aggregate.add(pending.record)
        except AggregateFull:
            return False
        self.records.append(pending)
        hash_key = pending.hash_key
        if hash_key < self.lowest:
            self.lowest = hash_key
        elif hash_key > self.highest:
            self.highest = hash_key
        if pending.keyless:
            self.keyless = True
        if pending.deadline < self.deadline:
            self.deadline = pending.deadline
        if pending.expires_at < self.expires_at:
            self.expires_at = pending.expires_at
        return True

    def take_expired(self, now: float) -> list[Pending]:
        return self.take(lambda pending: pending.expires_at <= now) if self.expires_at <= now else []

    def take(self, wanted: Callable[[Pending], bool]) -> list[Pending]:
        taken = [pending for pending in self.records if wanted(pending)]
        remaining = [pending for pending in self.records if not wanted(pending)] if taken else []
        if taken:
            self.records = []
        if remaining:
            max_size = self.aggregate.max_size
            self._begin(remaining[0])
            for pending in remaining[1:]:
                self.add(pending)  # (they did fit when the others were still among them)
            self.aggregate.max_size = max_size
        return taken

    def attempt(self, entry: Entry, now: float) -> Attempt:
        outcome, *facts = entry
        return Attempt(outcome, self.sent_at, now, self.shard, *facts)

    @property
    def aggregated(self) -> bool:
        # PRD-12: "A lone user record MUST be sent bare, but for PRD-13 and PRD-14."
        # PRD-13: "A lone user record whose data starts like an aggregated record MUST be sent as an aggregate
        # of one: sent bare, consumers would open it."
        # PRD-14: "A lone user record with tags MUST be sent as an aggregate of one: bare, its tags would be
        # lost."
        return len(self.records) > 1 or self.records[0].wrap

    @property
    def partition_key(self) -> str:
        return self.outer_key if self.aggregated else self.records[0].record.partition_key

    @property
    def data_size(self) -> int:
        return self.aggregate.size if self.aggregated else len(self.records[0].record.data)

    @property
    def full_size(self) -> int:
        return self.data_size + len(self.partition_key.encode())


class Aggregator:
    """The open aggregates by predicted shard and group (bucket, shared explicit hash key). ``send`` takes
    those that are closed."""

    def __init__(self, config: ProducerConfig, send: Callable[[KinesisRecordBuilder], None]) -> None:
        self._config = config
        self._reshard_proof = config.reshard_proof
        self._max_size = config.aggregation_max_size
        self._max_count = config.aggregation_max_count
        self._open: dict[tuple[str, object], KinesisRecordBuilder] = {}
        self._send = send
        # A heap of deadlines with the keys of open aggregates, and of some that were closed since.
        self._deadlines: list[tuple[float, int, tuple[str, object]]] = []
        self._number = 0

    def _group(self, pending: Pending) -> object:
        return (pending.bucket, pending.hash_key) if self._reshard_proof else pending.bucket

    def open_for(self, shard: str, pending: Pending) -> KinesisRecordBuilder | None:
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
        """Add a user record. Returns the Kinesis record that it is in. This one, or the open one before it,
        may be closed now."""
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
        if len(outgoing.records) >= self._max_count or outgoing.aggregate.size >= self._max_size:
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
        outgoing.becomes("queued")
        self._send(outgoing)

    def deadline(self) -> float | None:
        deadlines = self._deadlines
        while deadlines:
            deadline, _, key = deadlines[0]
            outgoing = self._open.get(key)
            if outgoing is not None and outgoing.deadline == deadline:
                return deadline
            heapq.heappop(deadlines)  # the aggregate was closed, or has an earlier deadline now
        return None

    def close_due(self, now: float) -> None:
        """Close the aggregates that are due."""
        while (deadline := self.deadline()) is not None and deadline <= now:
            key = heapq.heappop(self._deadlines)[2]
            self.close(self._open[key])

    def kinesis_records(self) -> list[KinesisRecordBuilder]:
        return list(self._open.values())

    def close_all(self) -> None:
        for outgoing in self.kinesis_records():
            self.close(outgoing)

    def take(self, shards: Set[str | None], wanted: Callable[[Pending], bool]) -> list[Pending]:
        """Take user records of these shards."""
        taken: list[Pending] = []
        for key, outgoing in list(self._open.items()):
            if key[0] in shards and (some := outgoing.take(wanted)):
                taken += some
                if outgoing.records:
                    self._push(key, outgoing.deadline)
                else:
                    del self._open[key]
        return taken

    def take_others(self, open_shards: frozenset[str]) -> list[KinesisRecordBuilder]:
        gone = [self._open.pop(key) for key in list(self._open) if key[0] not in open_shards]
        for outgoing in gone:
            outgoing.becomes("put")
        return gone


def build_all(
    kinesis_records: list[KinesisRecordBuilder], *, with_digests: bool = False
) -> list[dict[str, Any]]:
    """The entries of a PutRecords request. ``with_digests``: set each Kinesis record's ``digest``."""
    frames = iter(build_many(outgoing.aggregate for outgoing in kinesis_records if outgoing.aggregated))
    # PRD-11: "An aggregate MUST be put under the effective hash key of its first user record as explicit
    # hash key, a lone record under its own."
    entries: list[dict[str, Any]] = [
        {
            "Data": next(frames) if outgoing.aggregated else outgoing.records[0].record.data,
            "PartitionKey": outgoing.partition_key,
            "ExplicitHashKey": format_hash_key(outgoing.records[0].hash_key),
        }
        for outgoing in kinesis_records
    ]
    if with_digests:
        for outgoing, entry in zip(kinesis_records, entries, strict=True):
            outgoing.digest = digest_of(entry["PartitionKey"], entry["Data"])
    return entries


def lost_at(config: ProducerConfig, kinesis_records: Sequence[KinesisRecordBuilder], now: float) -> float:
    """The time at which a call with these Kinesis records, made now, is given up, as one that never
    returns."""
    # PRD-72: "A call that does not return MUST count as one without an answer: 3 seconds after the time to
    # live of all its user records, or after its timeouts and that of one of them, and in any case a minute
    # after its timeouts."
    timeouts = now + (config.connect_timeout_ms + config.request_timeout_ms) / 1000
    latest = timeouts + LONGEST_CALL
    times = [outgoing.expires_at for outgoing in kinesis_records]
    return min(max(timeouts, min(times)), max(times) + GRACE, latest) if times else latest
