"""Puts user records into Kinesis records: predicts the shard and aggregates, or waits for a prediction.

    user record ──▶ its shard, by its key,  ──▶ Aggregator ──(full, or its time)──▶ closed
                  │ or chosen if it has none
                  └─▶ no prediction ──▶ waits for a map ──▶ take_waiting
Specification: spec/05-producer.md, PRD-17, PRD-18, PRD-26, PRT-1 to PRT-3 and PRT-5
to PRT-9.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Literal

from ..shards.live_shard_map import LiveShardMap
from .config import ProducerConfig
from .pending import Pending
from .record_builder import Aggregator, KinesisRecordBuilder

#: ``chance(n)`` gives one of 0..n-1, each equally likely.
Chance = Callable[[int], int]
#: Where the user records of a key are, under strict order.
Home = KinesisRecordBuilder | Literal["waiting"]
_NEVER = float("inf")


class UniformStickyPartitioner:
    """Chooses the shard of a record without a key: KIP-794, uniform sticky with adaptive switching.

    It stays on one shard until ``sticky_size`` bytes went there, then draws another. It counts bytes, not
    batches, because a slow shard fills its batches more slowly and would get the most records. ``adaptive``:
    it prefers shards with short queues.
    """

    def __init__(self, sticky_size: int, chance: Chance, *, adaptive: bool = True) -> None:
        self.sticky_size, self.adaptive, self._chance = sticky_size, adaptive, chance
        self.shards: tuple[str, ...] = ()  # from which it chooses
        self._table: tuple[int, ...] | None = None  # None: every shard has the same weight
        self._current: str | None = None
        self._produced = 0

    def set_shards(self, shard_ids: Sequence[str]) -> None:
        # PRT-7: "When the open shards change, a current shard that is no longer open MUST be left at
        # once."
        if tuple(shard_ids) == self.shards:
            return
        self.shards = tuple(shard_ids)
        self._table = None
        if self._current not in self.shards:
            self._current, self._produced = None, 0

    @property
    def needs_draw(self) -> bool:
        """Whether the next `current` draws: call `update_queues` before."""
        return self._current is None

    def current(self) -> str | None:
        """The shard for the next record; None if there are no shards."""
        if self._current is None and self.shards:
            self._current, self._produced = self._draw(), 0
        return self._current

    def leave(self, shard_id: str | None) -> None:
        if shard_id == self._current:
            self._current = None

    def appended(self, size: int, *, may_switch: bool = True) -> None:
        """Count ``size`` bytes for the current shard. ``may_switch`` False: an aggregate is half full.

        Worked example, sticky size 16 KB: 12 KB go out as one batch, and a switch after the next 4 KB would
        give batches of 12, 4, 12, 4. Waiting until the batch is full gives 12, 16, 16.
        """
        self._produced += size
        # PRT-1: "The partitioner MUST stay with a shard until sticky_size bytes were produced to it,
        # whatever happened to batches meanwhile, and then draw anew."
        # PRT-2: "While an aggregate is half full the switch MAY wait, at most until twice sticky_size."
        if self._produced >= (self.sticky_size if may_switch else 2 * self.sticky_size):
            self._current = None

    def update_queues(self, queued: Mapping[str, int]) -> None:
        """Make the table of weights for the next draws. ``queued``: Kinesis records that wait for each shard.

        Worked example: queues 0, 3, 1. The longest plus one is 4; weights are 4 - queue: 4, 1, 3; their
        running sums 4, 5, 8 are the table. Of the chances 0..7, 0..3 draw the first shard, 4 the second, 5..7
        the third.
        """
        queues = [queued.get(shard_id, 0) for shard_id in self.shards]
        # PRT-3: "A shard MUST be drawn with a probability proportional to the longest queue plus one
        # minus its own queue."
        # PRT-5: "With adaptive off every shard MUST be equally likely."
        self._table = None
        if self.adaptive and len(set(queues)) > 1:
            longest = max(queues) + 1
            self._table = tuple(accumulate(longest - queue for queue in queues))

    def _draw(self) -> str:
        if self._table is None:
            return self.shards[self._chance(len(self.shards))]
        return self.shards[bisect_right(self._table, self._chance(self._table[-1]))]


class StrictOrder:
    """Strict order: the user records of a partition key go out one after the other.

    A key's *home* is the Kinesis record that its user records are in, or "waiting" while they wait for a
    prediction. Later user records of the key join the home while it is open, or are held until it has none of
    the key any more. So a key is in one Kinesis record at a time. User records without a key have no order.
    ``expiry_step``: seconds between two searches for expired user records among those held.
    """

    def __init__(self, expiry_step: float) -> None:
        self._homes: dict[str, Home] = {}
        self._inside: dict[str, int] = {}
        self._held: dict[str, deque[Pending]] = {}
        self._free_keys: dict[str, None] = {}  # a set in the order of insertion
        self._expiry_step = expiry_step
        self._expires_from = float("inf")  # no held user record expires before

    def home(self, pending: Pending) -> Home | None:
        return self._homes.get(pending.record.partition_key)

    def is_held(self, pending: Pending) -> bool:
        return pending.record.partition_key in self._held

    def placed(self, pending: Pending, home: Home) -> None:
        key = pending.record.partition_key
        self._homes[key] = home
        self._inside[key] = self._inside.get(key, 0) + 1

    def hold(self, pending: Pending) -> None:
        self._expires_from = min(self._expires_from, pending.expires_at)
        self._held.setdefault(pending.record.partition_key, deque()).append(pending)

    def come_back(self, records: list[Pending]) -> None:
        """They have left their homes, and are held before all others of their keys."""
        for pending in sorted(records, key=lambda pending: pending.number, reverse=True):
            self._leave(pending)
            self._expires_from = min(self._expires_from, pending.expires_at)
            self._held.setdefault(pending.record.partition_key, deque()).appendleft(pending)

    def ended(self, records: Iterable[Pending]) -> None:
        for pending in records:
            if not pending.keyless:
                self._leave(pending)

    def _leave(self, pending: Pending) -> None:
        key = pending.record.partition_key
        self._inside[key] -= 1
        if not self._inside[key]:
            del self._homes[key], self._inside[key]
            self._free_keys[key] = None

    def next_held(self) -> Pending | None:
        """The first held user record of a key without a home, None if there is none; then `release` it or let
        it `wait`."""
        while self._free_keys:
            key = next(iter(self._free_keys))
            if key in self._held:
                return self._held[key][0]
            del self._free_keys[key]
        return None

    def wait(self, pending: Pending) -> None:
        self._free_keys.pop(pending.record.partition_key, None)

    def release(self, pending: Pending) -> None:
        key = pending.record.partition_key
        self._held[key].popleft()
        if not self._held[key]:
            del self._held[key]

    def expires_at(self) -> float | None:
        return self._expires_from + self._expiry_step if self._held else None

    def take_expired(self, now: float) -> list[Pending]:
        """Take the held user records whose time to live is over."""
        if now < self._expires_from + self._expiry_step:
            return []
        expired = []
        for queue in list(self._held.values()):
            while queue and queue[0].expires_at <= now:
                expired.append(queue[0])
                self.release(queue[0])
        self._expires_from = min((queue[0].expires_at for queue in self._held.values()), default=float("inf"))
        return expired

    def held(self) -> Iterator[Pending]:
        for queue in self._held.values():
            yield from queue


class ShardRouter:
    """``closed``: Kinesis records for the send queue. ``urgent_below``: user records with a lower number do
    not wait."""

    def __init__(self, config: ProducerConfig, live: LiveShardMap, chance: Chance) -> None:
        self.urgent_below = 0
        self._live = live
        self._chance = chance
        self._reshard_proof = config.reshard_proof
        self.partitioner = UniformStickyPartitioner(
            min(config.aggregation_max_size, config.known_record_size),
            chance,
            adaptive=config.adaptive_partitioning,
        )
        self._starts: dict[str, tuple[int, str]] = {}
        self._aggregating = config.aggregation_enabled
        self._aggregator = Aggregator(config)
        self.closed = self._aggregator.closed
        self._waiting: list[Pending] = []
        self._waiting_until = _NEVER

    def place(self, pending: Pending, now: float, home: KinesisRecordBuilder | None = None) -> Home | None:
        """Place a user record. ``home``: the Kinesis record it must join, None for any. Returns its Kinesis
        record, "waiting" if it waits for a prediction, or None if it cannot join its home, which then takes
        no more."""
        if pending.number < self.urgent_below:
            pending.deadline = min(pending.deadline, now)  # it may join others, but does not wait for more
        keyless = pending.keyless
        if keyless or self._reshard_proof:
            shard = self._shard_of(pending)
        else:
            shard = self._live.routes.predict(pending.key_hash_key)
        # PRD-17: "A user record without a prediction MUST NOT be aggregated with others."
        alone = shard is None or pending.alone or not self._aggregating
        if home is not None:
            # PRD-26: "With strict order per partition key a user record MUST NOT be sent before every
            # earlier one of its key is delivered or has failed, other than in the same aggregate."
            if alone or shard is None or self._aggregator.open_for(shard, pending) is not home:
                if not home.closed:
                    self._aggregator.close(home)
                return None
        elif shard is None and self._live.map_may_come and pending.map_deadline > now:
            # The KPL sends them alone at once. With a busy producer that gives thousands of Kinesis records a
            # second during each ListShards call, so every split leads to heavy throttling.
            self._waiting.append(pending)
            self._waiting_until = min(self._waiting_until, pending.map_deadline)
            return "waiting"
        if shard is None and self._ignores_keys and not pending.must_wrap:
            pending.wrap = False  # the KCL would drop a misplaced aggregate of one
        if alone or shard is None:
            outgoing = self._aggregator.alone(shard, pending)
        else:
            outgoing = self._aggregator.add(shard, pending)
        if keyless and (not pending.history or pending.history.not_stored):
            # About half full aggregates see UniformStickyPartitioner.appended.
            self.partitioner.appended(pending.size, may_switch=outgoing.closed)
        return outgoing

    @property
    def _ignores_keys(self) -> bool:
        return self._live.stream_state.shards.distribution == "AUTO"

    @property
    def needs_queues(self) -> bool:
        """Whether the next user record without a key draws a shard: the partitioner needs the lengths of the
        queues before."""
        return self.partitioner.needs_draw and not self._ignores_keys

    def _shard_of(self, pending: Pending) -> str | None:
        """The shard for the next attempt, None if it cannot be predicted. It may get an explicit hash key."""
        if pending.keyless:
            return self._choose(pending)
        shard = self._live.predict(pending.key_hash_key)
        if self._reshard_proof and not pending.own_hash_key:
            if shard is None:
                pending.hash_key = pending.key_hash_key
                pending.record = pending.record._replace(explicit_hash_key=None)
            else:
                # PRD-18: "In the reshard-proof mode all user records of an aggregate MUST have one and
                # the same effective hash key."
                pending.assign(*self._start_of(shard))
        return shard

    def _choose(self, pending: Pending) -> str | None:
        # PRT-6: "A user record without a key gets the chosen shard's first hash key as explicit hash key; one
        # with an explicit hash key of its own keeps it, and so its shard."
        # PRT-9: "A user record without a key that may be stored MUST stay with its shard; one that was not
        # stored MUST be free to go to another."
        history = pending.history
        if history and not history.not_stored and pending.record.explicit_hash_key is not None:
            return self._live.predict(pending.hash_key)  # the shard of the attempt before
        shard = self._draw()
        if shard is not None:
            pending.assign(*self._start_of(shard))
        elif pending.record.explicit_hash_key is None:
            hash_key = self._chance(2**128)
            pending.assign(hash_key, str(hash_key))
        return shard

    def leave(self, pending: Pending) -> None:
        """A user record without a key comes back. If its shard did not store it, the next draws another."""
        if pending.history and pending.history.not_stored:
            self.partitioner.leave(pending.history.attempts[-1].predicted_shard)

    def _draw(self) -> str | None:
        if self._ignores_keys:
            return None
        shard = self.partitioner.current()
        if shard is not None and shard not in self._live.routes:
            # Draws another shard, if there is one. The next map brings all back.
            self.partitioner.set_shards([s for s in self.partitioner.shards if s in self._live.routes])
            shard = self.partitioner.current()
        return shard

    def _start_of(self, shard_id: str) -> tuple[int, str]:
        start = self._starts.get(shard_id)
        if start is None:
            shard = self._live.shard(shard_id)
            assert shard is not None
            hash_key = shard.hash_key_range.starting_hash_key
            start = self._starts[shard_id] = hash_key, str(hash_key)
        return start

    def timer(self) -> float | None:
        times = [self._aggregator.deadline(), self._waiting_until if self._waiting else None]
        return min((at for at in times if at is not None), default=None)

    def close_due(self, now: float) -> None:
        self._aggregator.close_due(now)

    def flush(self, urgent_below: int) -> None:
        """Close all aggregates; user records with a lower number than this no longer wait."""
        self.urgent_below = urgent_below
        self._aggregator.close_all()

    def take_waiting(self, until: float = _NEVER) -> list[Pending]:
        if self._waiting_until > until:
            return []
        due = [pending for pending in self._waiting if pending.map_deadline <= until]
        self._waiting = [pending for pending in self._waiting if pending.map_deadline > until]
        self._waiting_until = min((p.map_deadline for p in self._waiting), default=_NEVER)
        return due

    def map_changed(self, open_shards: frozenset[str]) -> list[KinesisRecordBuilder]:
        self._starts.clear()
        self.partitioner.set_shards(self._live.stream_state.routes.shard_ids)
        return self._aggregator.take_others(open_shards)

    def places(self) -> Iterator[list[Pending]]:
        yield self._waiting
        yield from (outgoing.records for outgoing in self._aggregator.kinesis_records())
