"""A Kinesis record to send, and a PutRecords call.

User records keep their order, and sizes are exact. Specification: spec/05-producer.md, PRD-11 to PRD-14,
PRD-66 and PRD-72.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..errors import AggregateFull
from ..format.codec import AggregatedRecordBuilder, build_many
from ..format.hash_keys import format_hash_key
from ..ledger.ledger_rows import NO_DIGEST, digest_of
from ..shards.live_shard_map import Request
from .config import ProducerConfig
from .record import Pending
from .results import Attempt, Entry
from .states import MOVES, RecordState

#: PRD-72: the most seconds that the user records of a call wait for a response after the time to live of the
#: last of them; and the most seconds that a call may be under way after its timeouts.
GRACE, LONGEST_CALL = 3.0, 60.0


#: The attempt of a batch that was not parked.
_NEVER_SENT = Attempt("not-sent", 0.0, 0.0, None)


class Batch:
    """A Kinesis record to send: user records of one predicted shard, or a single one.

    ``lowest``, ``highest``: the smallest and largest effective hash key. ``keyless``: some have no key.
    ``state``: that of its user records, which changes by `becomes`; only an open one takes more.
    ``max_size``: bytes of an aggregate without its outer key. ``deadline``, ``expires_at``: the earliest of
    its user records, in seconds. Of the last attempt: ``sent_at``, the map's ``generation``, the ``digest``
    of what was sent (`kpl_codec.ledger.ledger_rows`). While it is stored without a verdict: its ``attempt``,
    and ``until`` when it waits for one.
    """

    __slots__ = (
        "aggregate", "attempt", "deadline", "digest", "expires_at", "generation", "group", "highest",
        "keyless", "lowest", "outer_key", "records", "sent_at", "shard", "state", "until",
    )  # fmt: skip

    def __init__(
        self, shard: str | None, group: object, outer_key: str, max_size: int, first: Pending
    ) -> None:
        self.shard = shard
        self.group = group
        self.outer_key = outer_key
        self.state: RecordState = "open"
        self.digest = NO_DIGEST
        # PRD-66: "A user record that has ended MUST take no memory, whatever others are outstanding."
        # (So a batch has these facts of its last call, not the call, whose other batches may have ended.)
        self.sent_at, self.generation, self.until = 0.0, 0, 0.0
        self.attempt = _NEVER_SENT
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

    def attempted(self, entry: Entry, now: float) -> Attempt:
        """The attempt that has ended with ``entry``."""
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


class Call(NamedTuple):
    """A PutRecords call to make: ``records`` is its Records argument."""

    batches: list[Batch]
    records: list[dict[str, Any]]


AnyCall = Call | Request


def build_all(batches: list[Batch], *, with_digests: bool = False) -> list[dict[str, Any]]:
    """The entries of a PutRecords request. ``with_digests``: set each Kinesis record's ``digest``."""
    frames = iter(build_many(batch.aggregate for batch in batches if batch.aggregated))
    # PRD-11: "An aggregate MUST be put under the effective hash key of its first user record as explicit
    # hash key, a lone record under its own."
    entries: list[dict[str, Any]] = [
        {
            "Data": next(frames) if batch.aggregated else batch.records[0].record.data,
            "PartitionKey": batch.partition_key,
            "ExplicitHashKey": format_hash_key(batch.records[0].hash_key),
        }
        for batch in batches
    ]
    if with_digests:
        for batch, entry in zip(batches, entries, strict=True):
            batch.digest = digest_of(entry["PartitionKey"], entry["Data"])
    return entries


def lost_at(config: ProducerConfig, batches: Sequence[Batch], now: float) -> float:
    """The time at which a call with these Kinesis records, made now, is given up, as one that never
    returns."""
    # PRD-72: "A call that does not return MUST count as one without an answer: 3 seconds after the time to
    # live of all its user records, or after its timeouts and that of one of them, and in any case a minute
    # after its timeouts."
    timeouts = now + (config.connect_timeout_ms + config.request_timeout_ms) / 1000
    latest = timeouts + LONGEST_CALL
    ends = [batch.expires_at for batch in batches]  # the earliest of each
    given_up = min(max(timeouts, min(ends, default=latest)), latest)
    if ends and max(ends) + GRACE < given_up:
        last = max(pending.expires_at for batch in batches for pending in batch.records)
        given_up = min(given_up, last + GRACE)
    return given_up
