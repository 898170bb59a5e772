"""Which shards are watched, where reading begins on each, and which slot comes next.

Specification: spec/10-sentinel.md, SEN-2, SEN-5, SEN-29.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..shards.shard import Shard
from ..shards.shard_map import ShardMap
from .budget import Budget
from .costs import Limits, Measured
from .kept import Kept, KeptShard
from .sampling import Sampling, planned_period
from .sentinel import Sentinel
from .shard_watch import ShardWatch, at_time, made_within


class WatchedShards:
    """``period``, ``after_reshard``, ``since`` (seconds): see `Watch`. ``slots``: in a period, 1 for all.

    ``sampling``: which slot is read when. ``shards``: by id. ``ended``: closed ones read to their end.
    """

    def __init__(
        self,
        sentinel: Sentinel,
        limits: Limits,
        measured: Measured,
        *,
        period: float,
        slots: int,
        after_reshard: float,
        since: float,
        seed: str,
    ) -> None:
        self._sentinel, self._limits, self._measured = sentinel, limits, measured
        self._wanted, self._slots, self._seed = period, slots, seed
        self._after_reshard, self._since = after_reshard, since
        self.sampling = Sampling(round(period * 1000), slots, seed)
        self.shards: dict[str, ShardWatch] = {}
        self.ended: set[str] = set()
        self._listed: set[str] = set()
        #: Where an earlier run left off, until the first map is there.
        self._kept: dict[str, KeptShard] = {}

    # -- from map to map ------------------------------------------------------------------------

    def of_another_life(self, shard_map: ShardMap) -> bool:
        """Whether what was resumed is of a stream that was deleted since."""
        return any(
            shard.shard_id in self._kept
            and self._kept[shard.shard_id].starting_sequence_number != shard.starting_sequence_number
            for shard in shard_map
        )

    def use(self, shard_map: ShardMap, now: float, *, recreated: bool) -> Iterator[ShardWatch]:
        """The stream has these shards now; gives those that are new here."""
        kept, self._kept = self._kept, {}
        first = not self.shards and not kept and not recreated
        if recreated:
            kept = {}
            self.shards.clear()
            self.ended.clear()
            self._listed.clear()
        listed, self._listed = self._listed, {shard.shard_id for shard in shard_map}
        last = max((one.looked_at for one in kept.values()), default=now)
        self.ended.intersection_update(shard.shard_id for shard in shard_map)
        period = planned_period(self._wanted, len(shard_map.open_shards), self._limits.calls)
        self.sampling = Sampling(round(period * 1000), self._slots, self._seed)
        for shard_id, state in list(self.shards.items()):
            if shard_id not in shard_map:
                del self.shards[shard_id]
            elif not shard_map[shard_id].open:
                state.closed = True
        for shard in shard_map:
            known = shard.shard_id in self.shards or shard.shard_id in self.ended
            # A shard that began and was closed between two maps, or two runs, holds records that nobody read.
            short = shard.shard_id not in listed if listed else made_within(shard, now, now - last)
            if not known and (shard.open or shard.shard_id in kept or short):
                yield self._add(shard, now, kept.get(shard.shard_id), first=first)

    def _add(self, shard: Shard, now: float, kept: KeptShard | None, *, first: bool) -> ShardWatch:
        state = ShardWatch(
            shard.shard_id,
            Budget(self._limits.shard_calls),
            Budget(self._limits.shard_bytes),
            due=now,
            covered=now * 1000,
            place={},
            looked_at=now,
            began=now,
            closed=not shard.open,
        )
        self.shards[shard.shard_id] = state
        young = made_within(shard, now, max(self._after_reshard, self.sampling.period_ms / 1000))
        if kept is not None:
            self._resume(state, kept, now)
        elif not first or young:
            # SEN-5: "A shard that is new after a reshard MUST be looked at before all others, from its first
            # record on, and read whole for the time said."
            state.place = {"ShardIteratorType": "TRIM_HORIZON"}
            state.whole_until = now + self._after_reshard if self._slots > 1 else float("inf")
            state.due = now - 3600
        elif self._slots == 1:
            state.place = at_time(now - self._since)
        else:
            # The slot of the period before is over: the first look comes at once.
            state.covered = (self.sampling.number(now * 1000) - 1) * self.sampling.period_ms
            self.next_slot(state, now)
        return state

    def next_slot(self, state: ShardWatch, now: float) -> None:
        """Turn a sampled shard to its next slot; periods that were missed before it are counted."""
        skipped_ms = state.next_slot(self.sampling, now)
        if skipped_ms:
            self.missed(state, int(skipped_ms // self.sampling.period_ms))
            self._sentinel.looked(state.shard_id, 0, round(skipped_ms), now)

    def set_back(self, seconds: float, now: float) -> Iterator[ShardWatch]:
        """The clock was set back; gives the shards that have no call under way. The answers to calls for
        slots are given up: these slots lie in the future now."""
        for state in self.shards.values():
            state.set_back(seconds)
            if state.covered > now * 1000:
                state.covered = now * 1000
                if "Timestamp" in state.place:
                    state.place = at_time(now)
            if state.window is not None:
                state.under_way = None
                state.look_calls = 0
                state.covered = min(state.covered, self.sampling.number(now * 1000) * self.sampling.period_ms)
                self.next_slot(state, now)
            if state.under_way is None:
                yield state

    def missed(self, state: ShardWatch, periods: int) -> None:
        """Count periods of a shard that were not looked at."""
        state.missed += periods
        self._measured.missed += periods

    def end(self, state: ShardWatch) -> None:
        """A closed shard was read to its end."""
        del self.shards[state.shard_id]
        self.ended.add(state.shard_id)

    # -- from run to run ------------------------------------------------------------------------

    def keep(self, shard_map: ShardMap | None) -> dict[str, KeptShard]:
        """How far each shard was read. A shard of which nothing was read is left out: it is new again."""
        found = {}
        for shard in shard_map or ():
            state = self.shards.get(shard.shard_id)
            if state is not None and (kept := state.keep(shard)) is not None:
                found[shard.shard_id] = kept
        return found

    def resume(self, kept: Kept) -> None:
        """Go on from ``kept`` with the first map that comes."""
        self._kept = dict(kept.shards)
        self.ended = set(kept.ended)

    def _resume(self, state: ShardWatch, kept: KeptShard, now: float) -> None:
        if state.resume(kept, always_whole=self._slots == 1):
            return
        under_way, covered = state.place, state.covered
        self.next_slot(state, now)
        if kept.sequence_number is not None and state.covered == covered:
            state.place = under_way  # the look goes on behind the last record read

    def up_to_date(self, now: float) -> bool:
        """See `Watch.up_to_date`."""
        return bool(self.shards or self.ended) and not self.behind(now)

    def behind(self, now: float) -> list[ShardWatch]:
        """The shards that have something left to look at."""
        over = self.sampling.number(now * 1000) * self.sampling.period_ms

        def done(state: ShardWatch) -> bool:
            slot_read = state.window is not None and state.covered >= over
            return bool(state.looks) or state.read_up_to_begin or slot_read

        return [state for state in self.shards.values() if not done(state)]
