"""What a shard may get: two token buckets, a real backoff after errors, and the queue in front.

One lane per predicted shard. Records without a prediction share a lane that has no buckets (nobody
knows whose tokens to take), but a backoff like the others.
Specification: spec/05-producer.md, PRD-20 and PRD-21.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ..backoff import Backoff
from ..limits import LARGEST_MAX_RECORD_SIZE, SHARD_BYTES_PER_SECOND, SHARD_RECORDS_PER_SECOND
from .kinesis_record import Outgoing
from .partitioner import Chance

#: PRD-21.
BACKOFF: Final = Backoff(0.1, 5.0)


class TokenBucket:
    """``rate`` tokens a second, at most ``capacity`` of them; full at first. Time is an argument."""

    __slots__ = ("_at", "_tokens", "capacity", "rate")

    def __init__(self, rate: float, capacity: float) -> None:
        self.rate = rate
        self.capacity = capacity
        self._tokens = capacity
        self._at: float | None = None

    def _refill(self, now: float) -> None:
        if self._at is not None and now > self._at:
            self._tokens = min(self.capacity, self._tokens + (now - self._at) * self.rate)
        self._at = now if self._at is None else max(self._at, now)

    def wait(self, cost: float, now: float) -> float:
        """Seconds until ``cost`` tokens are there: 0 if they are. At most a full bucket is asked for."""
        self._refill(now)
        missing = min(cost, self.capacity) - self._tokens
        return missing / self.rate if missing > 1e-9 else 0.0

    def take(self, cost: float) -> None:
        self._tokens -= cost


class Lane:
    """The way to one shard. ``queue``: closed Kinesis records that wait for tokens or for the backoff.

    ``waiting_since``: since when the first of them could not be sent, for the partitioner.
    """

    __slots__ = (
        "_buckets",
        "_chance",
        "_failures",
        "backoff_until",
        "next_at",
        "queue",
        "shard",
        "waiting_since",
    )

    def __init__(self, shard: str | None, rate_limit: int, chance: Chance) -> None:
        self.shard = shard
        self.queue: deque[Outgoing] = deque()
        self.backoff_until = float("-inf")
        self.waiting_since: float | None = None
        self.next_at = float("-inf")
        self._failures = 0
        self._chance = chance
        self._buckets: tuple[TokenBucket, TokenBucket] | None = None
        if shard is not None:
            # PRD-20: "A predicted shard MUST get at most rate_limit percent of 1000 records and 1 MiB a
            # second, bursts of 1000 records and 10 MiB apart."
            self._buckets = (
                TokenBucket(SHARD_RECORDS_PER_SECOND * rate_limit / 100, SHARD_RECORDS_PER_SECOND),
                TokenBucket(SHARD_BYTES_PER_SECOND * rate_limit / 100, LARGEST_MAX_RECORD_SIZE),
            )

    def ready_at(self, now: float) -> float:
        """When the first of the queue may go: ``now`` or later. Remembered as `next_at`."""
        at = max(now, self.backoff_until)
        if self._buckets is not None:
            records, size = self._buckets
            at = max(at, now + records.wait(1, now), now + size.wait(self.queue[0].full_size, now))
        self.next_at = min(at, self.queue[0].expires_at)
        return at

    def pop(self, now: float) -> Outgoing:
        """Take the first of the queue; it is ready."""
        unit = self.queue.popleft()
        self.waiting_since = None
        self.next_at = float("-inf")
        if self._buckets is not None:
            self._buckets[0].take(1)
            self._buckets[1].take(unit.full_size)
        return unit

    def failed(self, now: float) -> None:
        """An attempt failed: nothing goes to this shard for a while, longer each time."""
        # PRD-21: "After an attempt failed its shard MUST be left alone for a backoff that doubles from
        # 100 ms to at most 5 s, less a random part of at most half, and starts anew after a success."
        if now < self.backoff_until:
            return  # many records of one shard in one answer are one failure
        self.backoff_until = now + BACKOFF.seconds(self._failures, self._chance(1024) / 1024)
        self._failures += 1

    def succeeded(self) -> None:
        self._failures = 0
        self.backoff_until = float("-inf")
