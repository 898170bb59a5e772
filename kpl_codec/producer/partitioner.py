"""Chooses the shard of a record without a key: KIP-794, uniform sticky with adaptive switching.

The partitioner chooses one shard until ``sticky_size`` bytes went there, then draws another. It counts bytes,
not batches, because a slow shard fills its batches more slowly and would get the most records. ``chance(n)``
gives one of 0..n-1, each equally likely. Specification: spec/05-producer.md, PRT-1 to PRT-3, PRT-5 to PRT-8.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import accumulate

Chance = Callable[[int], int]


class UniformStickyPartitioner:
    """Draws shards. ``sticky_size``: bytes to one shard before the next draw. ``adaptive``: prefer shards
    with short queues."""

    def __init__(self, sticky_size: int, chance: Chance, *, adaptive: bool = True) -> None:
        self.sticky_size, self.adaptive, self._chance = sticky_size, adaptive, chance
        self.shards: tuple[str, ...] = ()  # the open shards
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
        """Whether the next `current` draws a shard: call `update_queues` before it."""
        return self._current is None

    def current(self) -> str | None:
        """The shard for the next record; None if there are no shards."""
        if self._current is None and self.shards:
            self._current, self._produced = self._draw(), 0
        return self._current

    @property
    def shard(self) -> str | None:
        """The current shard; None if the next record draws one."""
        return self._current

    def leave(self) -> None:
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

    def update_queues(self, queued: Mapping[str, int], pausing: Set[str | None] = frozenset()) -> None:
        """Make the table of weights for the next draws. ``queued``: Kinesis records that wait for each shard.
        ``pausing``: shards that are left alone for a while.

        Worked example: queues 0, 3, 1. The longest plus one is 4; weights are 4 - queue: 4, 1, 3; their
        running sums 4, 5, 8 are the table. Of the chances 0..7, 0..3 draw the first shard, 4 the second, 5..7
        the third.
        """
        queues = [queued.get(shard_id, 0) if self.adaptive else 0 for shard_id in self.shards]
        # PRT-3: "A shard MUST be drawn with a probability proportional to the longest queue plus one
        # minus its own queue."
        # PRT-5: "With adaptive off every shard MUST be equally likely."
        # PRT-10: "A shard that is left alone for a backoff MUST NOT be drawn while another is not."
        longest = max(queues, default=0) + 1
        weights = [longest - queue for queue in queues]
        some = [0 if shard_id in pausing else w for shard_id, w in zip(self.shards, weights, strict=True)]
        weights = some if any(some) else weights
        self._table = tuple(accumulate(weights)) if len(set(weights)) > 1 else None

    def _draw(self) -> str:
        if self._table is None:
            return self.shards[self._chance(len(self.shards))]
        return self.shards[bisect_right(self._table, self._chance(self._table[-1]))]
