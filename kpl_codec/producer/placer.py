"""Puts user records into Kinesis records: predicts the shard and aggregates, or waits for a prediction.

    user record ──▶ Router ──▶ a shard  ──▶ Aggregator ──(full, or its time)──▶ closed
                       │
                       └────▶ no shard ──▶ waits for a map ──▶ take_waiting

State: the user records that wait for a prediction and the open aggregates.
Specification: spec/05-producer.md, PRD-17 and PRD-26.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..shards.live_shard_map import LiveShardMap
from .aggregator import Aggregator
from .config import ProducerConfig
from .kinesis_record import Outgoing
from .ordering import Home
from .partitioner import Chance
from .pending import Pending
from .router import Router

_NEVER = float("inf")


class Placer:
    """See the module. ``closed``: Kinesis records that are ready to be taken away. User records with a number
    below ``urgent_below`` do not wait for others."""

    def __init__(self, config: ProducerConfig, live: LiveShardMap, chance: Chance) -> None:
        self.urgent_below = 0
        self.router = Router(config, live, chance)
        self._live = live
        self._aggregating = config.aggregation_enabled
        self._aggregator = Aggregator(config)
        self.closed = self._aggregator.closed
        self._waiting: list[Pending] = []
        self._waiting_until = _NEVER

    def place(self, pending: Pending, now: float, home: Outgoing | None = None) -> Home | None:
        """Place a user record. ``home``: the Kinesis record it must join, None for any.

        Returns its Kinesis record, "waiting" if it waits for a prediction, or None if it cannot join its
        home: then it was not placed, and nothing more joins its home.
        """
        if pending.number < self.urgent_below:
            pending.deadline = min(pending.deadline, now)  # it may join others, but does not wait for more
        shard = self.router.route(pending)
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
        if shard is None and self.router.ignores_keys and not pending.must_wrap:
            pending.wrap = False  # the KCL would drop a misplaced aggregate of one
        if alone or shard is None:
            outgoing = self._aggregator.alone(shard, pending)
        else:
            outgoing = self._aggregator.add(shard, pending)
        if pending.keyless:
            self.router.placed(pending, closed=outgoing.closed)
        return outgoing

    # -- what is due ----------------------------------------------------------------------------

    def timer(self) -> float | None:
        """When `close_due` or `take_waiting` is due; None for never."""
        times = [self._aggregator.deadline(), self._waiting_until if self._waiting else None]
        return min((at for at in times if at is not None), default=None)

    def close_due(self, now: float) -> None:
        """Close the aggregates whose deadline has come."""
        self._aggregator.close_due(now, self.urgent_below)

    def flush(self, urgent_below: int) -> None:
        """Close all aggregates; user records with a lower number than this no longer wait."""
        self.urgent_below = urgent_below
        self._aggregator.close_all()

    def take_waiting(self, until: float = _NEVER) -> list[Pending]:
        """Take the user records that wait for a prediction until at most ``until``: they are to be placed
        again."""
        if self._waiting_until > until and until != _NEVER:
            return []
        taken = [pending for pending in self._waiting if pending.map_deadline <= until]
        self._waiting = [pending for pending in self._waiting if pending.map_deadline > until]
        self._waiting_until = min((p.map_deadline for p in self._waiting), default=_NEVER)
        return taken

    # -- the map --------------------------------------------------------------------------------

    def map_changed(self, open_shards: frozenset[str]) -> list[Outgoing]:
        """Take the open aggregates of shards that are no longer open."""
        self.router.set_shards(self._live.predicted_shards)
        return self._aggregator.take_others(open_shards)

    # -- everything -----------------------------------------------------------------------------

    def places(self) -> Iterator[list[Pending]]:
        """All user records in here, place by place."""
        yield self._waiting
        yield from (outgoing.records for outgoing in self._aggregator.kinesis_records())
