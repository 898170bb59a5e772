"""Finds the shard of a user record: predicted by its key, or chosen if it has none.

State: that of the partitioner, and the texts of the shards' first hash keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..shards.live_shard_map import LiveShardMap
from .config import ProducerConfig
from .partitioner import Chance, ShardLoad, UniformStickyPartitioner
from .pending import Pending


class Router:
    """See the module."""

    def __init__(self, config: ProducerConfig, live: LiveShardMap, chance: Chance) -> None:
        self._live = live
        self._chance = chance
        self._reshard_proof = config.reshard_proof
        self._partitioner = UniformStickyPartitioner(
            min(config.aggregation_max_size, config.known_record_size),
            chance,
            adaptive=config.adaptive_partitioning,
            availability_timeout=config.partition_availability_timeout / 1000,
        )
        self._starts: dict[str, tuple[int, str]] = {}

    @property
    def ignores_keys(self) -> bool:
        """Whether the stream is known to distribute records AUTO."""
        return self._live.distribution == "AUTO"

    def set_shards(self, shard_ids: Sequence[str]) -> None:
        """The open shards have changed."""
        self._starts.clear()
        self._partitioner.set_shards(shard_ids)

    @property
    def needs_loads(self) -> bool:
        """Whether the next user record without a key draws a shard: call `update_loads` before."""
        return self._partitioner.needs_draw and not self.ignores_keys

    def update_loads(self, loads: Mapping[str, ShardLoad], now: float) -> None:
        """The loads of the shards now."""
        self._partitioner.update_load(loads, now)

    def route(self, pending: Pending) -> str | None:
        """The shard for the next attempt, None if it cannot be predicted.

        A record without explicit hash key gets one if it has no partition key, or in reshard-proof mode.
        """
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
        if pending.attempts and pending.record.explicit_hash_key is not None:
            return self._live.predict(pending.hash_key)  # the shard of the attempt before
        shard = self._draw()
        if shard is None:
            if pending.record.explicit_hash_key is None:
                hash_key = self._chance(2**128)
                pending.assign(hash_key, str(hash_key))
            return None
        pending.assign(*self._start_of(shard))
        return shard

    def _draw(self) -> str | None:
        """The partitioner's shard; None while no shard can be predicted."""
        if self.ignores_keys:
            return None
        shard = self._partitioner.current()
        if shard is not None and not self._live.trusts(shard):
            # Draws another shard, if there is one. The next map brings all back.
            self._partitioner.set_shards([s for s in self._partitioner.shards if self._live.trusts(s)])
            shard = self._partitioner.current()
        return shard

    def placed(self, pending: Pending, *, closed: bool) -> None:
        """One without a key is where `route` said. ``closed``: its aggregate is full, or it is alone."""
        if not pending.attempts:
            # About half full aggregates see UniformStickyPartitioner.appended.
            self._partitioner.appended(pending.size, may_switch=closed)

    def _start_of(self, shard: str) -> tuple[int, str]:
        found = self._starts.get(shard)
        if found is None:
            known = self._live.shard(shard)
            assert known is not None
            start = known.hash_key_range.starting_hash_key
            found = self._starts[shard] = start, str(start)
        return found
