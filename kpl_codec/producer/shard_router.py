"""Puts user records into Kinesis records: predicts the shard and aggregates, or waits for a prediction.

    user record ──▶ its shard, by its key,  ──▶ Aggregator ──(full, or its time)──▶ send
                  │ or chosen if it has none
                  └─▶ no prediction ──▶ waits for a map ──▶ take_waiting
Specification: spec/05-producer.md, PRD-17, PRD-18, PRD-26 and PRT-6.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from ..shards.live_shard_map import LiveShardMap
from .config import ProducerConfig
from .ordering import Home
from .partitioner import Chance, UniformStickyPartitioner
from .pending import Pending
from .record_builder import Aggregator, KinesisRecordBuilder

_NEVER = float("inf")


class ShardRouter:
    """``urgent_below``: user records with a lower number do not wait. ``send`` takes Kinesis records that are
    closed."""

    def __init__(
        self,
        config: ProducerConfig,
        live: LiveShardMap,
        chance: Chance,
        send: Callable[[KinesisRecordBuilder], None],
    ) -> None:
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
        self._aggregator = Aggregator(config, send)
        self._waiting: list[Pending] = []
        self._waiting_until = _NEVER

    def place(self, pending: Pending, now: float, home: KinesisRecordBuilder | None = None) -> Home | None:
        """Place a user record. ``home``: the Kinesis record that it must join, None for any. Returns its
        Kinesis record, "waiting" if it waits for a prediction, or None if it cannot join its home; the home
        is then closed."""
        if pending.number < self.urgent_below:
            pending.deadline = min(pending.deadline, now)  # its aggregate does not wait for more
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
                if home.state == "open":
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
            # UniformStickyPartitioner.appended says why a half full aggregate stays on its shard.
            self.partitioner.appended(pending.size, may_switch=outgoing.state != "open")
        return outgoing

    @property
    def _ignores_keys(self) -> bool:
        return self._live.known.distribution == "AUTO"

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
        # PRT-9: "A user record without a key that may be stored MUST stay with its shard"
        history = pending.history
        if history and not history.not_stored and pending.record.explicit_hash_key is not None:
            return self._live.predict(pending.hash_key)  # the shard of its last attempt
        shard = self._draw()
        if shard is not None:
            pending.assign(*self._start_of(shard))
        elif pending.record.explicit_hash_key is None:
            hash_key = self._chance(2**128)
            pending.assign(hash_key, str(hash_key))
        return shard

    def _draw(self) -> str | None:
        if self._ignores_keys:
            return None
        shard = self.partitioner.current()
        if shard is not None and shard not in self._live.routes:
            # Draw another shard, if there is one. The next shard map brings back the shard that is left out.
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

    def take(self, shards: Set[str | None], wanted: Callable[[Pending], bool]) -> list[Pending]:
        """Take user records out of the open aggregates of these shards."""
        return self._aggregator.take(shards, wanted)

    def map_changed(self, open_shards: frozenset[str]) -> list[KinesisRecordBuilder]:
        self._starts.clear()
        self.partitioner.set_shards(self._live.known.routes.shard_ids)
        return self._aggregator.take_others(open_shards)

    def waiting(self) -> list[Pending]:
        """The user records that wait for a map."""
        return self._waiting

    def kinesis_records(self) -> list[KinesisRecordBuilder]:
        """The open aggregates."""
        return self._aggregator.kinesis_records()
