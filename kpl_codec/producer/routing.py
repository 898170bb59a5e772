"""The shard of a user record: predicted by its key, or chosen if it has none; or it waits for a map.

    user record ──▶ its shard, by its key,  ──▶ its lane
                  │ or chosen if it has none
                  └─▶ no prediction ──▶ waits for a map ──▶ take_waiting

A user record without a key gets its shard as in KIP-794, uniform sticky with adaptive switching: one shard
until ``sticky_size`` bytes went there, then another. Bytes are counted, not batches, because a slow shard
fills its batches more slowly and would get the most records. ``chance(n)`` gives one of 0..n-1, each equally
likely. Specification: spec/05-producer.md, PRD-17, PRD-18, PRD-26, PRT-1 to PRT-3, PRT-5 to PRT-7, PRT-9 and
PRT-10.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence, Set
from itertools import accumulate

from ..shards.live_shard_map import LiveShardMap
from .batch import Batch
from .config import Chance, ProducerConfig
from .lanes import Lanes
from .ordering import Home
from .record import Pending

_NEVER = float("inf")


class UniformStickyPartitioner:
    """Draws shards. ``sticky_size``: bytes to one shard before the next draw. ``adaptive``: prefer shards
    with short queues. ``shard``: the current one, None if one is to be drawn."""

    def __init__(self, sticky_size: int, chance: Chance, *, adaptive: bool = True) -> None:
        self.sticky_size, self.adaptive, self._chance = sticky_size, adaptive, chance
        self.shard: str | None = None
        self._produced = 0

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
            self.shard = None

    def draw(self, shard_ids: Sequence[str], queued: Mapping[str, int], pausing: Set[str | None]) -> None:
        """Draw one of these shards. ``queued``: Kinesis records that wait for each shard. ``pausing``: shards
        that are left alone for a while.

        Worked example: queues 0, 3, 1. The longest plus one is 4; weights are 4 - queue: 4, 1, 3; their
        running sums 4, 5, 8 are the table. Of the chances 0..7, 0..3 draw the first shard, 4 the second, 5..7
        the third.
        """
        queues = [queued.get(shard_id, 0) if self.adaptive else 0 for shard_id in shard_ids]
        # PRT-3: "A shard MUST be drawn with a probability proportional to the longest queue plus one
        # minus its own queue."
        # PRT-5: "With adaptive off every shard MUST be equally likely."
        # PRT-10: "A shard that is left alone for a backoff MUST NOT be drawn while another is not."
        longest = max(queues) + 1
        weights = [longest - queue for queue in queues]
        some = [0 if shard_id in pausing else w for shard_id, w in zip(shard_ids, weights, strict=True)]
        table = tuple(accumulate(some if any(some) else weights))
        self.shard = shard_ids[bisect_right(table, self._chance(table[-1]))]
        self._produced = 0


class Routing:
    """Puts user records into lanes. ``partitioner``: chooses the shard of those without a key."""

    def __init__(self, config: ProducerConfig, live: LiveShardMap, chance: Chance, lanes: Lanes) -> None:
        self._live, self._lanes, self._chance = live, lanes, chance
        self._reshard_proof = config.reshard_proof
        self.partitioner = UniformStickyPartitioner(
            min(config.aggregation_max_size, config.known_record_size),
            chance,
            adaptive=config.adaptive_partitioning,
        )
        self._starts: dict[str, tuple[int, str]] = {}
        self._shard_count = 0  # of open shards
        self._aggregating = config.aggregation_enabled
        self._waiting: list[Pending] = []
        self._waiting_until = _NEVER

    def place(self, pending: Pending, now: float, home: Batch | None = None) -> Home | None:
        """Place a user record. ``home``: the batch that it must join, None for any. Returns its batch,
        "waiting" if it waits for a prediction, or None if it cannot join its home; the home is then closed.
        """
        lanes = self._lanes
        if pending.number < lanes.urgent_below:
            pending.deadline = min(pending.deadline, now)  # its aggregate does not wait for more
        keyless = pending.keyless
        if keyless or self._reshard_proof:
            shard = self._shard_of(pending, now)
        else:
            shard = self._live.routes.predict(pending.key_hash_key)
        # PRD-17: "A user record without a prediction MUST NOT be aggregated with others."
        alone = shard is None or pending.alone or not self._aggregating
        if home is not None:
            # PRD-26: "With strict order per partition key a user record MUST NOT be sent before every
            # earlier one of its key is delivered or has failed, other than in the same aggregate."
            if alone or shard is None or lanes.open_for(shard, pending) is not home:
                if home.state == "open":
                    lanes.close(home)
                return None
        elif shard is None and self._live.map_may_come and pending.map_deadline > now:
            # The KPL sends them alone at once. With a busy producer that gives thousands of Kinesis records a
            # second during each ListShards call, so every split leads to heavy throttling.
            self._waiting.append(pending)
            self._waiting_until = min(self._waiting_until, pending.map_deadline)
            return "waiting"
        if shard is None and self._live.known.distribution == "AUTO" and not pending.must_wrap:
            pending.wrap = False  # the KCL would drop a misplaced aggregate of one
        if alone or shard is None:
            batch = lanes.alone(shard, pending)
        else:
            batch = lanes.add(shard, pending)
        if keyless and (not pending.history or pending.history.not_stored):
            # UniformStickyPartitioner.appended says why a half full aggregate stays on its shard.
            self.partitioner.appended(pending.size, may_switch=batch.state != "open")
        return batch

    def _shard_of(self, pending: Pending, now: float) -> str | None:
        """The shard for the next attempt, None if it cannot be predicted. It may get an explicit hash key."""
        if pending.keyless:
            return self._choose(pending, now)
        shard = self._live.predict(pending.key_hash_key)
        if self._reshard_proof and not pending.own_hash_key:
            if shard is None:
                pending.hash_key = pending.key_hash_key
                pending.record = pending.record.replace(explicit_hash_key=None)
            else:
                # PRD-18: "In the reshard-proof mode all user records of an aggregate MUST have one and
                # the same effective hash key."
                pending.assign(*self._start_of(shard))
        return shard

    def _choose(self, pending: Pending, now: float) -> str | None:
        # PRT-6: "A user record without a key gets the chosen shard's first hash key as explicit hash key; one
        # with an explicit hash key of its own keeps it, and so its shard."
        # PRT-9: "A user record without a key that may be stored MUST stay with its shard"
        history = pending.history
        if history and not history.not_stored and pending.record.explicit_hash_key is not None:
            return self._live.predict(pending.hash_key)  # the shard of its last attempt
        shard = self._draw(now)
        if shard is not None:
            pending.assign(*self._start_of(shard))
        else:
            hash_key = self._chance(2**128)
            pending.assign(hash_key, str(hash_key))
        return shard

    def _draw(self, now: float) -> str | None:
        partitioner, lanes, routes = self.partitioner, self._lanes, self._live.routes
        shard = partitioner.shard
        # PRT-7: "When the open shards change, a current shard that is no longer open MUST be left at once."
        if shard is not None and shard in routes and not lanes.avoids(shard, self._shard_count, now):
            return shard
        shard_ids = routes.shard_ids
        if not shard_ids:
            return None
        partitioner.draw(shard_ids, lanes.queued(), lanes.pausing(now))
        return partitioner.shard

    def _start_of(self, shard_id: str) -> tuple[int, str]:
        start = self._starts.get(shard_id)
        if start is None:
            shard = self._live.shard(shard_id)
            assert shard is not None
            hash_key = shard.hash_key_range.starting_hash_key
            start = self._starts[shard_id] = hash_key, str(hash_key)
        return start

    def timer(self) -> float | None:
        return self._waiting_until if self._waiting else None

    def waiting(self) -> list[Pending]:
        """The user records that wait for a map."""
        return self._waiting

    def take_waiting(self, until: float = _NEVER) -> list[Pending]:
        if self._waiting_until > until:
            return []
        due = [pending for pending in self._waiting if pending.map_deadline <= until]
        self._waiting = [pending for pending in self._waiting if pending.map_deadline > until]
        self._waiting_until = min((p.map_deadline for p in self._waiting), default=_NEVER)
        return due

    def map_changed(self) -> None:
        self._starts.clear()
        self._shard_count = len(self._live.known.routes.shard_ids)
