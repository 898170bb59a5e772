"""A Kinesis record to send: its user records, its size, and its PutRecords entry.

Specification: spec/05-producer.md, PRD-11 to PRD-14.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import AggregateFull
from ..format.codec import AggregatedRecordBuilder, build_many
from ..format.hash_keys import format_hash_key
from ..ledger.ledger_rows import NO_DIGEST, digest_of
from .config import ProducerConfig
from .outcomes import Attempt, Entry
from .pending import Pending

#: PRD-72: seconds after their time to live for which user records wait for an answer, at most; and seconds
#: after its timeouts for which a call may be under way.
GRACE, LONGEST_CALL = 3.0, 60.0


class PutRecordsRequest(NamedTuple):
    """A PutRecords call to make: ``records`` is its Records argument. Answer with the same ``number``."""

    number: int
    records: list[dict[str, Any]]


class KinesisRecordBuilder:
    """A Kinesis record to send: user records of one predicted shard, or a single one.

    ``lowest`` and ``highest``: the smallest and largest effective hash key in it. ``closed``: nothing may be
    added any more.
    ``may_wait``: it may wait for more user records after its deadline; ``waited``: it has begun to.
    ``max_size``: the bytes it may have as an aggregate, the outer key left out. ``deadline``, ``expires_at``:
    the earliest of its user records, in seconds. Of the last attempt: ``sent_at``, the ``generation`` of the
    map then, the ``digest`` of what was sent (`kpl_codec.ledger.ledger_rows`).
    """

    __slots__ = (
        "aggregate", "closed", "deadline", "digest", "expires_at", "generation", "group", "highest", "lowest",
        "may_wait", "outer_key", "records", "sent_at", "shard", "waited",
    )  # fmt: skip

    def __init__(
        self, shard: str | None, group: object, outer_key: str, max_size: int, first: Pending
    ) -> None:
        self.shard = shard
        self.group = group
        self.outer_key = outer_key
        self.closed = self.may_wait = self.waited = False
        self.digest = NO_DIGEST
        self.sent_at, self.generation = 0.0, 0
        self._begin(first)
        self.aggregate.max_size = max_size

    def _begin(self, first: Pending) -> None:
        self.records = [first]
        self.aggregate = AggregatedRecordBuilder()
        self.aggregate.add(first.record)
        self.lowest = self.highest = first.hash_key
        self.deadline = first.deadline
        self.expires_at = first.expires_at

    def has_room(self, pending: Pending) -> bool:
        most = self.aggregate.max_size
        return most is None or self.aggregate.size_with(pending.record) <= most

    def add(self, pending: Pending) -> bool:
        """Add a user record, unless it would then be larger than ``max_size``; whether it was added."""
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
        if pending.deadline < self.deadline:
            self.deadline = pending.deadline
        if pending.expires_at < self.expires_at:
            self.expires_at = pending.expires_at
        return True

    def take_expired(self, now: float) -> list[Pending]:
        """Take the user records whose time to live is over. Without any left it must not be sent."""
        if self.expires_at > now:
            return []
        expired = [pending for pending in self.records if pending.expires_at <= now]
        remaining = [pending for pending in self.records if pending.expires_at > now]
        self.records = []
        if remaining:
            self._begin(remaining[0])
            for pending in remaining[1:]:
                self.add(pending)  # (they fitted together with the expired ones)
        return expired

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
        """The bytes that the service counts: data and outer partition key."""
        return self.data_size + len(self.partition_key.encode())


def build_all(
    kinesis_records: list[KinesisRecordBuilder], *, with_digests: bool = False
) -> list[dict[str, Any]]:
    """The entries of a PutRecords request: Data, PartitionKey, ExplicitHashKey. ``with_digests``: set
    ``digest``."""
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
    """When a call that is made now, with these Kinesis records, counts as one that will never return."""
    # PRD-72: "A call that does not return MUST count as one without an answer: 3 seconds after the time to
    # live of all its user records, or after its timeouts and that of one of them, and in any case a minute
    # after its timeouts."
    timeouts = now + (config.connect_timeout_ms + config.request_timeout_ms) / 1000
    latest = timeouts + LONGEST_CALL
    times = [outgoing.expires_at for outgoing in kinesis_records]
    return min(max(timeouts, min(times)), max(times) + GRACE, latest) if times else latest
