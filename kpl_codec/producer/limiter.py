"""Limits the sending to a shard: two token buckets, an adaptive rate, a backoff after failures, and a queue.

One lane per predicted shard. Records without a prediction share a lane without buckets (their shard is not
known), but with a backoff.

A shard gets a share, at first 1, of the full rate. Worked example: a shard accepts 100 records a second,
because others write to it, too; the full rate is 1500. Each throttled answer halves the share: 1500, 750,
375, 187, 94 a second. Then it rises by 75 a second each second until the next throttled answer.
Specification: spec/05-producer.md, PRD-20, PRD-21 and PRD-43.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Set
from typing import Final

from ..aws_errors import Backoff
from ..limits import LARGEST_MAX_RECORD_SIZE, SHARD_BYTES_PER_SECOND, SHARD_RECORDS_PER_SECOND
from .kinesis_record import Outgoing
from .outcomes import Outcome
from .partitioner import Chance

#: PRD-21.
BACKOFF: Final = Backoff(0.1, 5.0)
#: PRD-21: after so many failures in a row a shard gets one Kinesis record in a backoff.
FAILURES_BEFORE_PROBES: Final = 3
#: PRD-43: the lowest share, its factor after throttling, and its increase per second.
LOWEST_SHARE: Final = 0.005
DECREASE: Final = 0.5
INCREASE: Final = 0.05


class TokenBucket:
    """``rate`` tokens a second, at most ``capacity`` of them; full at first. ``share``: the part of both in
    use now."""

    __slots__ = ("_at", "_tokens", "capacity", "rate", "share")

    def __init__(self, rate: float, capacity: float) -> None:
        self.rate, self.capacity, self.share = rate, capacity, 1.0
        self._tokens = capacity
        self._at: float | None = None

    def _refill(self, now: float) -> None:
        if self._at is not None and now > self._at:
            self._tokens += (now - self._at) * self.rate * self.share
        self._tokens = min(self._tokens, self.capacity * self.share)
        self._at = now if self._at is None else max(self._at, now)

    def wait(self, cost: float, now: float) -> float:
        """Seconds until there are ``cost`` tokens, 0 if there are. A cost above the capacity needs only a
        full bucket."""
        self._refill(now)
        missing = min(cost, self.capacity * self.share) - self._tokens
        return missing / (self.rate * self.share) if missing > 1e-9 else 0.0

    def take(self, cost: float) -> None:
        """Take tokens; a cost above the capacity leaves a debt."""
        self._tokens -= cost


class Lane:
    """The lane of one shard. ``queue``: closed Kinesis records that wait for tokens or for the backoff.

    ``next_at``: when the first may go, if known. ``backoff_until``: nothing is sent before. All in seconds.
    """

    __slots__ = (
        "_buckets", "_chance", "_failures", "_raised_at", "_share_from", "backoff_until", "next_at", "queue",
        "shard", "share",
    )  # fmt: skip

    def __init__(self, shard: str | None, rate_limit: int, chance: Chance) -> None:
        self.shard = shard
        self.queue: deque[Outgoing] = deque()
        self.backoff_until = float("-inf")
        self.next_at = float("-inf")
        self._failures = 0
        self._share_from = float("-inf")  # answers to earlier requests have been counted
        self._raised_at: float | None = None
        self._chance = chance
        self.share = 1.0
        # PRD-20: "A predicted shard MUST get at most rate_limit percent of 1000 records and 1 MiB a second,
        # bursts of 1000 records and 10 MiB apart."
        records = TokenBucket(SHARD_RECORDS_PER_SECOND * rate_limit / 100, SHARD_RECORDS_PER_SECOND)
        size = TokenBucket(SHARD_BYTES_PER_SECOND * rate_limit / 100, LARGEST_MAX_RECORD_SIZE)
        self._buckets = [records, size] if shard is not None else []

    def ready_at(self, now: float) -> float:
        """When the first of the queue may go: ``now`` or later. Also stored in `next_at`."""
        self.next_at = max(now, self.backoff_until)
        for bucket, cost in zip(self._buckets, (1, self.queue[0].full_size), strict=False):
            self.next_at = max(self.next_at, now + bucket.wait(cost, now))
        return self.next_at

    def pop(self, now: float) -> Outgoing:
        outgoing = self.queue.popleft()
        self.next_at = float("-inf")
        for bucket, cost in zip(self._buckets, (1, outgoing.full_size), strict=False):
            bucket.take(cost)
        # PRD-21: "From its third failure in a row until then it MUST get one Kinesis record in a backoff."
        if self._failures >= FAILURES_BEFORE_PROBES:
            self._back_off(now)
        return outgoing

    def _back_off(self, now: float) -> None:
        self.backoff_until = now + BACKOFF.seconds(self._failures, self._chance(1024) / 1024)
        self._failures += 1

    def keep(self, kinesis_records: Iterable[Outgoing]) -> None:
        self.queue = deque(kinesis_records)
        self.next_at = float("-inf")

    def answered(self, outcomes: Set[Outcome], sent_at: float, now: float) -> None:
        """Take the outcomes of Kinesis records sent to this shard at ``sent_at``: delivered, or failures."""
        if "throttled" in outcomes:
            self._slow_down(sent_at, now)
        stored = "delivered" in outcomes
        failed = len(outcomes) > stored
        if not failed:
            self._speed_up(now)
        # PRD-21: "After an attempt failed its shard MUST be left alone for a backoff that doubles from
        # 100 ms to at most 5 s, less a random part of at most half, and starts anew after an answer in which
        # something of the shard was stored."
        if stored:
            self._failures = 0
        if not failed:
            self.backoff_until = float("-inf")
        elif now >= self.backoff_until:  # parallel calls that failed count as one failure
            self._back_off(now)

    def _slow_down(self, sent_at: float, now: float) -> None:
        # PRD-43: "An answer that throttles records of a shard MUST halve the rate at which it gets more, at
        # most once for what was sent before; answers that throttle none raise it by a twentieth of the full
        # rate a second."
        if sent_at >= self._share_from:
            self._set_share(max(LOWEST_SHARE, self.share * DECREASE))
            self._share_from = self._raised_at = now

    def _speed_up(self, now: float) -> None:
        if self._raised_at is not None:
            self._set_share(min(1.0, self.share + INCREASE * min(1.0, now - self._raised_at)))
            self._raised_at = now if self.share < 1.0 else None

    def _set_share(self, share: float) -> None:
        self.share = share
        for bucket in self._buckets:
            bucket.share = share
