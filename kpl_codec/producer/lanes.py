"""All that a shard gets: its lane. Then the next call.

    add ──▶ open batch of the lane ──(full, or its time)──▶ queue of the lane ──(tokens, backoff)──▶ next call
    alone ─────────────────────────────────────────────────▶                                           │
    again ──(as it was, or in a call of its own)───────────▶                 next_call ◀──(full, time)─┘

One lane per predicted shard. Batches without a prediction share a lane without token buckets (their shard is
not known), but with a backoff. A shard gets a share, at first 1, of the full rate. Worked example: a shard
accepts 100 records a second, because others write to it, too; the full rate is 1500. Each throttled response
halves the share: 1500, 750, 375, 187, 94 a second. Then it rises by 75 a second each second until the next
throttled response. Specification: spec/05-producer.md, PRD-15, PRD-16, PRD-20, PRD-21, PRD-43, PRD-44
and PRD-80.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Final

from ..aws_errors import Backoff
from ..format.limits import LARGEST_MAX_RECORD_SIZE, SHARD_BYTES_PER_SECOND, SHARD_RECORDS_PER_SECOND
from .batch import Batch
from .config import Chance, ProducerConfig
from .record import Pending, outer_key
from .results import ACTIONS, Entry, Outcome

#: How many calls in a row may be refused as invalid before a backoff begins.
FREE_REFUSALS = 100

#: PRD-21.
BACKOFF: Final = Backoff(0.1, 5.0)
#: PRD-21: after so many failures in a row a shard is sent only one Kinesis record after each backoff.
FAILURES_BEFORE_PROBES: Final = 3
#: PRD-43: the lowest share, its factor after throttling, and its increase per second.
LOWEST_SHARE: Final = 0.005
DECREASE: Final = 0.5
INCREASE: Final = 0.05


class TokenBucket:
    """``rate`` tokens a second, at most ``capacity``; full at first."""

    def __init__(self, rate: float, capacity: float) -> None:
        self.rate, self.capacity = rate, capacity
        self._tokens = capacity
        self._at = float("-inf")

    def wait(self, cost: float, now: float, share: float = 1.0) -> float:
        """Seconds until there are ``cost`` tokens, with this part of rate and capacity. A cost above the
        capacity needs only a full bucket."""
        rate, most = self.rate * share, self.capacity * share
        self._tokens = min(most, self._tokens + max(0.0, now - self._at) * rate)
        self._at = max(self._at, now)
        missing = min(cost, most) - self._tokens
        return missing / rate if missing > 1e-9 else 0.0

    def take(self, cost: float) -> None:
        self._tokens -= cost


class Lane:
    """What waits for one shard, and how much of it may go. ``open``: open batches by group (bucket, shared
    explicit hash key). ``queue``: closed ones, which wait for tokens or for the backoff.

    ``next_at``: when the first of the queue may go, if known. ``backoff_until``: nothing is sent before this
    time. ``of_call``: that is because a call had no answer, which says nothing about this shard. All times in
    seconds.
    """

    def __init__(self, shard: str | None, rate_limit: int, chance: Chance) -> None:
        self.shard = shard
        self.open: dict[object, Batch] = {}
        self.queue: deque[Batch] = deque()
        self.backoff_until = float("-inf")
        self.next_at = float("-inf")
        self.of_call = False
        self.failures = 0
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
            self.next_at = max(self.next_at, now + bucket.wait(cost, now, self.share))
        return self.next_at

    @property
    def probing(self) -> bool:
        return self.failures >= FAILURES_BEFORE_PROBES

    def pop(self, now: float) -> Batch:
        batch = self.queue.popleft()
        self.next_at = float("-inf")
        for bucket, cost in zip(self._buckets, (1, batch.full_size), strict=False):
            bucket.take(cost)
        # PRD-21: "From its third failure in a row until then it MUST get one Kinesis record in a backoff."
        if self.probing:
            self._back_off(now)
        return batch

    def _back_off(self, now: float) -> None:
        self.backoff_until = now + BACKOFF.seconds(self.failures, self._chance(1024) / 1024)
        self.failures += 1

    def answered(self, outcomes: Set[Outcome], sent_at: float, now: float, *, of_call: bool = False) -> None:
        stored = "delivered" in outcomes
        failed = len(outcomes) > stored
        # PRD-43: "An answer that throttles records of a shard MUST halve the rate at which it gets more, at
        # most once for what was sent before; answers that throttle none raise it by a twentieth of the full
        # rate a second."
        if "throttled" in outcomes and sent_at >= self._share_from:
            self.share = max(LOWEST_SHARE, self.share * DECREASE)
            self._share_from = self._raised_at = now
        if not failed and self._raised_at is not None:
            self.share = min(1.0, self.share + INCREASE * min(1.0, now - self._raised_at))
            self._raised_at = now if self.share < 1.0 else None
        # PRD-21: "After an attempt failed its shard MUST be left alone for a backoff that doubles from
        # 100 ms to at most 5 s, less a random part of at most half, and starts anew after an answer in which
        # something of the shard was stored."
        if stored:
            self.failures = 0
        if not failed:
            self.backoff_until = float("-inf")
        else:
            self.of_call = of_call
            if now >= self.backoff_until:  # parallel calls that failed count as one failure
                self._back_off(now)


class Lanes:
    """The lanes, and the next call, which is made when it is full, when its time has come, or in a flush.
    ``urgent_below``: user records with a lower number do not wait for others."""

    def __init__(self, config: ProducerConfig, chance: Chance) -> None:
        self._config, self._delay = config, config.collecting_seconds
        self._reshard_proof = config.reshard_proof
        self._max_size, self._max_count = config.aggregation_max_size, config.aggregation_max_count
        self._chance = chance
        self.urgent_below = 0
        self._lanes: dict[str | None, Lane] = {}
        self._busy: dict[str | None, Lane] = {}  # lanes with a queue
        self._ailing: dict[str | None, Lane] = {}  # lanes that back off or probe, and some that no longer do
        self._next: list[Batch] = []
        self._next_size = 0
        self._next_is_full = False
        self._next_until = 0.0
        self._alone: deque[Batch] = deque()  # each goes in a call of its own, before all others
        self._invalid = 0
        self._refused_until = float("-inf")

    def batches(self) -> Iterator[Batch]:
        """All batches, open ones, too."""
        yield from self._alone
        yield from self._next
        for lane in self._lanes.values():
            yield from lane.queue
        yield from self._open()

    def _open(self) -> Iterator[Batch]:
        for lane in self._lanes.values():
            yield from lane.open.values()

    def _lane(self, shard: str | None) -> Lane:
        lane = self._lanes.get(shard)
        if lane is None:
            lane = self._lanes[shard] = Lane(shard, self._config.rate_limit, self._chance)
        return lane

    # -- open batches

    def open_for(self, shard: str, pending: Pending) -> Batch | None:
        """The open batch that would take a user record. (Not of reshard-proof ones: PRD-4.)"""
        batch = self._lane(shard).open.get(pending.bucket)
        return batch if batch is not None and batch.has_room(pending) else None

    def alone(self, shard: str | None, pending: Pending) -> Batch:
        """Queue a user record by itself."""
        batch = self._begin(shard, None, pending)
        self._queue(batch)
        return batch

    def _begin(self, shard: str | None, group: object, first: Pending) -> Batch:
        key = outer_key(self._config, first)
        max_size = min(self._max_size, self._config.known_record_size - len(key.encode()))
        return Batch(shard, group, key, max_size, first)

    def add(self, shard: str, pending: Pending) -> Batch:
        """Add a user record. Returns the batch that it is in. This one, or the open one before it, may be
        queued now."""
        lane = self._lanes.get(shard) or self._lane(shard)
        group = (pending.bucket, pending.hash_key) if self._reshard_proof else pending.bucket
        batch = lane.open.get(group)
        # PRD-15: "An aggregate MUST be closed before a user record that would take it beyond
        # aggregation_max_size, aggregation_max_count or, outer key included, max_record_size."
        if batch is not None and not batch.add(pending):
            self.close(batch)
            batch = None
        if batch is None:
            batch = lane.open[group] = self._begin(shard, group, pending)
        if len(batch.records) >= self._max_count or batch.aggregate.size >= self._max_size:
            self.close(batch)
        return batch

    def deadline(self) -> float | None:
        """When the first open batch is due."""
        return min((batch.deadline for batch in self._open()), default=None)

    def close(self, batch: Batch) -> None:
        """Queue an open batch."""
        del self._lane(batch.shard).open[batch.group]
        self._queue(batch)

    def close_due(self, now: float) -> None:
        for batch in [batch for batch in self._open() if batch.deadline <= now]:
            self.close(batch)

    def flush(self, urgent_below: int) -> None:
        """Queue all open batches; user records with a lower number than this no longer wait."""
        self.urgent_below = urgent_below
        for batch in list(self._open()):
            self.close(batch)

    # -- queues

    def _queue(self, batch: Batch) -> None:
        batch.becomes("queued")
        lane = self._lane(batch.shard)
        lane.queue.append(batch)
        self._busy[lane.shard] = lane

    def again(self, batch: Batch, *, alone: bool) -> None:
        """Send a batch again as it is. ``alone``: in a call of its own."""
        if alone:
            batch.becomes("next")
            self._alone.append(batch)
        else:
            self._queue(batch)

    def queued(self) -> dict[str, int]:
        return {lane.shard: len(lane.queue) for lane in self._busy.values() if lane.shard is not None}

    def pausing(self, now: float) -> set[str | None]:
        """The shards that are left alone for a backoff."""
        ailing = self._ailing.items()
        self._ailing = {key: lane for key, lane in ailing if lane.backoff_until > now or lane.probing}
        return {shard for shard, lane in self._ailing.items() if lane.backoff_until > now}

    def avoids(self, shard_id: str, shard_count: int, now: float) -> bool:
        """Whether a shard is left alone for a backoff, and not all of ``shard_count`` shards fail."""
        lane = self._ailing.get(shard_id)
        return lane is not None and lane.backoff_until > now and len(self._ailing) < shard_count

    def answered(
        self, batches: Sequence[Batch], entries: Sequence[Entry], now: float, *, of_call: bool = False
    ) -> set[str | None]:
        """Take the entries of an answer. ``of_call``: there was none, or it says nothing about the shards.
        Returns the shards whose user records another might take now: those that have failed, or, if one that
        had failed takes records again, all that do."""
        by_shard: dict[str | None, set[Outcome]] = {}
        for batch, entry in zip(batches, entries, strict=True):
            if entry.outcome == "delivered":
                self._invalid, self._refused_until = 0, float("-inf")
            elif ACTIONS[entry.outcome] != "back-off":
                continue  # the shard is not the reason
            by_shard.setdefault(batch.shard, set()).add(entry.outcome)
        failed: set[str | None] = {shard for shard, of_shard in by_shard.items() if of_shard != {"delivered"}}
        for shard, of_shard in by_shard.items():
            lane = self._lane(shard)
            if lane.failures and "delivered" in of_shard:
                failed |= self._ailing.keys()
            lane.answered(of_shard, batches[0].sent_at, now, of_call=of_call)
            if lane.backoff_until > now:
                self._ailing[shard] = lane
        # PRD-80: "After an answer that stored something no shard MUST wait for a backoff that began because a
        # call had no answer."
        if any("delivered" in of_shard for of_shard in by_shard.values()):
            for lane in self._ailing.values():
                if lane.of_call:
                    lane.backoff_until = lane.next_at = float("-inf")
        # PRD-44: "After 100 calls in a row that were refused as invalid as a whole, every call MUST
        # wait for the backoff of PRD-21, until one is taken."
        if entries[0].outcome == "invalid":
            self._invalid += 1
            self._wait_after_refusals(now)
        return failed - {None}

    def _wait_after_refusals(self, now: float) -> None:
        if self._invalid > FREE_REFUSALS:
            pause = BACKOFF.seconds(self._invalid - FREE_REFUSALS - 1, self._chance(1024) / 1024)
            self._refused_until = now + pause

    # -- the next call

    def _fits(self, batch: Batch) -> bool:
        # PRD-16: "A PutRecords call MUST hold at most collection_max_count records and, partition keys
        # included, collection_max_size bytes; a single larger record goes by itself."
        size = self._next_size + batch.full_size
        few = len(self._next) < self._config.collection_max_count
        return not self._next or (few and size <= self._config.collection_max_size)

    def _collect(self, batch: Batch, now: float) -> None:
        # A batch that comes late, because there was no map or no token, has less time left to wait.
        until = min(now, batch.deadline) + self._delay
        self._next_until = min(self._next_until, until) if self._next else until
        batch.becomes("next")
        self._next.append(batch)
        self._next_size += batch.full_size

    def _next_at(self) -> float | None:
        """When the next call has to be made: None while empty, minus infinity if it is full enough now."""
        if not self._next:
            return None
        full = self._next_is_full or len(self._next) >= self._config.collection_max_count
        return float("-inf") if full else self._next_until

    def _begin_next(self, batches: list[Batch]) -> list[Batch]:
        before, self._next = self._next, batches
        self._next_size = sum(batch.full_size for batch in batches)
        self._next_is_full = False
        return before

    def next_call(self, now: float) -> list[Batch] | None:
        """The batches of the next call, None if none is due."""
        if now < self._refused_until:
            return None
        self._wait_after_refusals(now)  # one call at a time, until one succeeds
        if self._alone:
            return [self._alone.popleft()]
        self._fill(now)
        next_at = self._next_at()
        if next_at is None:
            return None
        urgent = any(batch.records[0].number < self.urgent_below for batch in self._next)
        return self._begin_next([]) if next_at <= now or urgent else None

    def _fill(self, now: float) -> None:
        for key, lane in list(self._busy.items()):
            queue = lane.queue
            while queue:
                if lane.ready_at(now) > now:
                    break
                if not self._fits(queue[0]):
                    self._next_is_full = True
                    # The call is full: this lane goes to the end, so that a busy shard does not block the
                    # others.
                    self._busy[key] = self._busy.pop(key)
                    return
                self._collect(lane.pop(now), now)
                if lane.backoff_until > now:
                    self._ailing[key] = lane
            if not queue:
                self._busy.pop(key, None)

    def ready_at(self) -> float | None:
        """When `next_call` may return something; None for never."""
        times = [lane.next_at for lane in self._busy.values()]
        if (next_at := self._next_at()) is not None:
            times.append(next_at)
        if self._alone:
            times.append(float("-inf"))
        return max(min(times), self._refused_until) if times else None

    # -- out again

    def take(self, shards: Set[str | None], wanted: Callable[[Pending], bool]) -> list[Pending]:
        """Take user records without a key out of the lanes of these shards."""
        taken: list[Pending] = []
        for lane in [self._lanes[shard] for shard in shards if shard in self._lanes]:
            for batch in (*lane.queue, *lane.open.values()):
                if batch.keyless:
                    taken += batch.take(wanted)
            self._keep(lane, lambda batch: batch.records)
        return taken

    def take_others(self, open_shards: frozenset[str], predict: Callable[[int], str | None]) -> list[Batch]:
        """Take what waits for a shard that is not open, and what has waited without a prediction and has one
        now."""

        def is_misplaced(batch: Batch) -> bool:
            if batch.shard is None:
                return batch.state == "queued" and predict(batch.lowest) is not None
            return batch.shard not in open_shards

        gone = self._remove(is_misplaced)
        for batch in gone:
            if batch.state == "open":
                batch.becomes("put")
        for shard in [shard for shard in self._lanes if shard is not None and shard not in open_shards]:
            del self._lanes[shard]
            self._ailing.pop(shard, None)
        return gone

    def take_expired(self, now: float) -> list[Pending]:
        """Take the user records whose time to live is over. (Open batches are closed before.)"""
        waiting = [batch for batch in self.batches() if batch.state != "open"]
        expired = [pending for batch in waiting for pending in batch.take_expired(now)]
        self._remove(lambda batch: not batch.records)
        return expired

    def _remove(self, unwanted: Callable[[Batch], bool]) -> list[Batch]:
        gone = {batch: None for batch in self.batches() if unwanted(batch)}
        if gone:
            self._alone = deque(batch for batch in self._alone if batch not in gone)
            self._begin_next([batch for batch in self._next if batch not in gone])
            for lane in self._lanes.values():
                self._keep(lane, lambda batch: batch not in gone)
        return list(gone)

    def _keep(self, lane: Lane, wanted: Callable[[Batch], object]) -> None:
        """Keep these batches only."""
        lane.open = {group: batch for group, batch in lane.open.items() if wanted(batch)}
        lane.queue = deque(batch for batch in lane.queue if wanted(batch))
        lane.next_at = float("-inf")
        if not lane.queue:
            self._busy.pop(lane.shard, None)
