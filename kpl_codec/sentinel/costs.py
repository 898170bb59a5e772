"""Limits, plan and actual cost of watching."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Limits(NamedTuple):
    """What may be spent: GetShardIterator and GetRecords calls and bytes of data a second, of one shard
    and in all. A shard allows 5 calls and 2 MiB a second to all its readers together."""

    shard_calls: float = 1.0
    calls: float = 20.0
    shard_bytes: float = 200_000.0
    bytes: float = 2_000_000.0


class Cost(NamedTuple):
    """What watching ``shards`` open shards costs. ``period``: seconds between two looks at a shard;
    ``calls``: a second, in all; ``shard_calls``: of one shard, of the 5 it allows; ``share``: of its time."""

    shards: int
    period: float
    calls: float
    shard_calls: float
    share: float

    def __str__(self) -> str:
        part = self.shard_calls / 5
        of_shard = f"{self.shard_calls:.2f} calls a second on each shard ({part:.1%} of what it allows)"
        how = "everything is read" if self.share >= 1 else f"{self.share:.1%} of each shard's time"
        return (
            f"{self.shards} open shards, {how}, each looked at every {self.period:.0f} s: "
            f"about {self.calls:.1f} calls a second in all, {of_shard}"
        )


@dataclass(slots=True)
class Measured:
    """What the watch has cost so far. ``calls``: by operation, failed ones too; ``failed``: by code."""

    calls: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    missed: int = 0
