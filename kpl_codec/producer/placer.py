"""Puts user records into Kinesis records: predicts the shard and aggregates, or waits for a prediction.

    user record ──▶ Router ──▶ a shard  ──▶ Aggregator ──(full, or its time)──▶ SendQueue
                       │
                       └────▶ no shard ──▶ waits for a map, then goes alone ──▶ SendQueue

State: the user records that wait for a prediction and the open aggregates.
Specification: spec/05-producer.md, PRD-17 and PRD-26.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..shards.live_shard_map import LiveShardMap
from .aggregator import Aggregator
from .config import ProducerConfig
from .kinesis_record import Outgoing
from .ordering import Placed
from .partitioner import Chance
from .pending import Pending
from .router import Router
from .send_queue import SendQueue

_NEVER = float("inf")


class Placer:
    """See the module. User records with a number below ``urgent_below`` do not wait for others."""

    def __init__(self, config: ProducerConfig, live: LiveShardMap, chance: Chance, queue: SendQueue) -> None:
        self.urgent_below = 0
        self._live = live
        self._queue = queue
        self._aggregating = config.aggregation_enabled
        self._aggregator = Aggregator(config)
        self._router = Router(config, live, chance, queue.loads)
        self._waiting: list[Pending] = []
        self._waiting_until = _NEVER

    def place(self, pending: Pending, now: float, home: Outgoing | None) -> Placed:
        """Place a user record. ``home``: the Kinesis record it must join, None for any.

        Returns its Kinesis record, "waiting" if it waits for a prediction, or "hold" if it cannot join its
        home: then it was not placed, and nothing more joins its home.
        """
        if pending.number < self.urgent_below:
            pending.deadline = min(pending.deadline, now)  # it may join others, but does not wait for more
        shard = self._router.route(pending, now)
        if shard is None:
            if self._live.map_may_come and pending.map_deadline > now:
                # The KPL sends them alone at once. With a busy producer that gives thousands of Kinesis
                # records a second during each ListShards call, so every split leads to heavy throttling.
                return "hold" if home is not None else self._wait(pending)
            if self._router.ignores_keys and not pending.must_wrap:
                pending.wrap = False  # the KCL would drop a misplaced aggregate of one
        # PRD-17: "A user record without a prediction MUST NOT be aggregated with others."
        together = shard is not None and not pending.alone and self._aggregating
        if home is not None and not (together and self._may_join(home, shard, pending)):
            # PRD-26: "With strict order per partition key a user record MUST NOT be sent before every
            # earlier one of its key is delivered or has failed, other than in the same aggregate."
            if not home.closed:
                self._queue.add(self._aggregator.close(home))
            return "hold"
        if shard is None or not together:
            outgoing = self._aggregator.alone(shard, pending)
            self._queue.add(outgoing)
        else:
            outgoing, full = self._aggregator.add(shard, pending)
            for closed in full:
                self._queue.add(closed)
        if pending.keyless:
            self._router.placed(pending, closed=outgoing.closed)
        return outgoing

    def _may_join(self, home: Outgoing, shard: str | None, pending: Pending) -> bool:
        return shard is not None and self._aggregator.open_for(shard, pending) is home

    def _wait(self, pending: Pending) -> Placed:
        self._waiting.append(pending)
        self._waiting_until = min(self._waiting_until, pending.map_deadline)
        return "waiting"

    # -- what is due ----------------------------------------------------------------------------

    def timer(self) -> float | None:
        """When `close_due` or `take_waiting` is due; None for never."""
        times = [self._aggregator.deadline(), self._waiting_until if self._waiting else None]
        return min((at for at in times if at is not None), default=None)

    def close_due(self, now: float) -> None:
        """Close the aggregates whose deadline has come."""
        for outgoing in self._aggregator.due(now, self.urgent_below):
            self._queue.add(outgoing)

    def flush(self, urgent_below: int) -> None:
        """Close all aggregates; user records with a lower number than this no longer wait."""
        self.urgent_below = urgent_below
        for outgoing in self._aggregator.take_all():
            self._queue.add(outgoing)

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

    def map_changed(self, *, recreated: bool) -> list[Pending]:
        """Take the user records that must be placed again because of a new map."""
        open_ids = self._live.predicted_shards
        self._router.set_shards(open_ids)
        # PRD-32: "When the map changes, everything that waits for a shard that is no longer open MUST be
        # predicted and aggregated anew."
        # In another life of the stream the same shard id means another shard.
        still_open = frozenset(() if recreated else open_ids)
        kinesis_records = self._aggregator.take_others(still_open) + self._queue.take_others(still_open)
        return [pending for outgoing in kinesis_records for pending in outgoing.records]

    # -- everything -----------------------------------------------------------------------------

    def places(self) -> Iterator[list[Pending]]:
        """All user records in here, place by place."""
        yield self._waiting
        yield from (outgoing.records for outgoing in self._aggregator.kinesis_records())

    def clear(self) -> None:
        """Forget everything."""
        self.take_waiting()
        self._aggregator.take_all()
