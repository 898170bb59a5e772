"""Kinesis records that are ready to send: a lane for each shard, then the next request.

    add ──▶ lane of the shard ──(tokens, backoff)──▶ collector ──(full, or time)──▶ take
    isolate ──────────────(groups that go as a request of their own)───────────────▶ take

State: the lanes, the collector, and the groups to be sent alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .collector import Collector
from .config import ProducerConfig
from .kinesis_record import Outgoing
from .limiter import BACKOFF, Lane
from .partitioner import Chance, ShardLoad

#: How many requests in a row may be refused as invalid before a backoff begins. Halving finds one bad record
#: among 500 with nine requests.
FREE_REFUSALS = 100
#: Removes the expired user records from a Kinesis record and fails them; whether any are left.
Expire = Callable[[Outgoing, float], bool]


class SendQueue:
    """See the module. ``expire`` is called for Kinesis records with expired user records in them."""

    def __init__(self, config: ProducerConfig, chance: Chance, expire: Expire) -> None:
        self._rate_limit = config.rate_limit
        self._chance = chance
        self._expire = expire
        self._collector = Collector(config)
        self._lanes: dict[str | None, Lane] = {}
        self._busy: dict[str | None, Lane] = {}
        self._isolated: list[list[Outgoing]] = []
        self._told: dict[str | None, bool] = {}
        self._stored: set[str | None] = set()
        self._failed: set[str | None] = set()
        self._invalid = 0
        self._refused_until = float("-inf")

    def add(self, outgoing: Outgoing) -> None:
        """Add it to the end of its shard's lane."""
        lane = self._lane(outgoing.shard)
        lane.queue.append(outgoing)
        self._busy[lane.shard] = lane

    def isolate(self, kinesis_records: list[Outgoing]) -> None:
        """These are sent as one request, before everything else; the last isolated goes first."""
        self._isolated.append(kinesis_records)

    def _lane(self, shard: str | None) -> Lane:
        lane = self._lanes.get(shard)
        if lane is None:
            lane = self._lanes[shard] = Lane(shard, self._rate_limit, self._chance)
        return lane

    def failed(self, shard: str | None, *, throttled: bool) -> None:
        """A Kinesis record for ``shard`` was not stored. `answered` follows at the end of the answer."""
        self._told[shard] = self._told.get(shard, False) or throttled
        self._failed.add(shard)

    def stored(self, shard: str | None) -> None:
        """A Kinesis record for ``shard`` was stored. `answered` follows at the end of the answer."""
        self._told.setdefault(shard, False)
        self._stored.add(shard)
        self._invalid, self._refused_until = 0, float("-inf")

    def answered(self, sent_at: float, now: float) -> None:
        """The end of an answer to a request sent at ``sent_at``. For each shard the worst result counts."""
        told, self._told = self._told, {}
        stored, self._stored = self._stored, set()
        failed, self._failed = self._failed, set()
        for shard, throttled in told.items():
            self._lane(shard).answered(
                stored=shard in stored, failed=shard in failed, throttled=throttled, sent_at=sent_at, now=now
            )

    def refused_as_invalid(self, now: float) -> None:
        """A request was refused as invalid as a whole."""
        # PRD-44: "After 100 requests in a row that were refused as invalid as a whole, every request MUST
        # wait for the backoff of PRD-21, until one is taken."
        self._invalid += 1
        if self._invalid > FREE_REFUSALS:
            self._wait_after_refusals(now)

    def _wait_after_refusals(self, now: float) -> None:
        pause = BACKOFF.seconds(self._invalid - FREE_REFUSALS - 1, self._chance(1024) / 1024)
        self._refused_until = now + pause

    def loads(self) -> dict[str, ShardLoad]:
        """The load of each shard, for the partitioner."""
        return {
            lane.shard: ShardLoad(len(lane.queue), lane.waiting_since)
            for lane in self._busy.values()
            if lane.shard is not None
        }

    def take(self, now: float, urgent_below: int) -> list[Outgoing] | None:
        """The Kinesis records of the next request, None if there is none to send yet.

        User records with a number below ``urgent_below`` do not wait for others.
        """
        if now < self._refused_until:
            return None
        if self._invalid > FREE_REFUSALS:
            self._wait_after_refusals(now)  # only one request at a time, to test whether it is over
        if self._isolated:
            kinesis_records = self._isolated.pop()
        else:
            self._fill(now)
            ready_at = self._collector.ready_at()
            if ready_at is None:
                return None
            urgent = any(
                outgoing.records[0].number < urgent_below for outgoing in self._collector.kinesis_records
            )
            if ready_at > now and not urgent:
                return None
            kinesis_records = self._collector.take()
        return [
            outgoing
            for outgoing in kinesis_records
            if outgoing.expires_at > now or self._expire(outgoing, now)
        ]

    def _fill(self, now: float) -> None:
        for key, lane in list(self._busy.items()):
            queue = lane.queue
            while queue:
                # PRD-24: "A user record whose time to live is over MUST fail as expired and MUST NOT be sent
                # again."
                if queue[0].expires_at <= now:
                    if not self._expire(queue[0], now):
                        queue.popleft()
                    continue
                if lane.ready_at(now) > now:
                    if lane.waiting_since is None:
                        lane.waiting_since = now
                    break
                if not self._collector.fits(queue[0]):
                    # The request is full: this lane goes to the end, so that a busy shard does not block the
                    # others.
                    self._busy[key] = self._busy.pop(key)
                    return
                self._collector.add(lane.pop(now), now)
            if not queue:
                self._busy.pop(key, None)

    def ready_at(self) -> float | None:
        """When `take` may return something; None for never."""
        times = [lane.next_at for lane in self._busy.values()]
        collected = self._collector.ready_at()
        if collected is not None:
            times.append(collected)
        if self._isolated:
            times.append(float("-inf"))
        return max(min(times), self._refused_until) if times else None

    def take_others(self, open_shards: frozenset[str]) -> list[Outgoing]:
        """Take the Kinesis records in the lanes of shards that are no longer open."""
        gone: list[Outgoing] = []
        for shard in [shard for shard in self._lanes if shard is not None and shard not in open_shards]:
            gone += self._lanes.pop(shard).queue
            self._busy.pop(shard, None)
        return gone

    def kinesis_records(self) -> Iterator[Outgoing]:
        """Everything in here."""
        for group in self._isolated:
            yield from group
        yield from self._collector.kinesis_records
        for lane in self._lanes.values():
            yield from lane.queue

    def clear(self) -> None:
        self._isolated.clear()
        self._collector.take()
        self._lanes.clear()
        self._busy.clear()
