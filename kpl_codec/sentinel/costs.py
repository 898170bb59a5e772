"""Limits, plan and actual cost of watching."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Limits(NamedTuple):
    """What may be spent: GetShardIterator and GetRecords calls and bytes of data a second, of one shard
    and in all. A shard allows 5 calls and 2 MiB a second to all its readers that poll together."""

    shard_calls: float = 1.0
    calls: float = 20.0
    shard_bytes: float = 200_000.0
    bytes: float = 2_000_000.0

    @classmethod
    def of_a_consumer(cls) -> Limits:
        """Where records are pushed: the 2 MiB a second of each shard are the consumer's own."""
        return cls(shard_bytes=2_097_152.0, bytes=20_000_000.0)


class Cost(NamedTuple):
    """What watching ``shards`` open shards costs. ``period``: seconds between two looks at a shard;
    ``calls``: a second, in all; ``shard_calls``: of one shard, of the 5 it allows; ``share``: of its time.
    ``pushed``: by subscription, which is renewed every few minutes."""

    shards: int
    period: float
    calls: float
    shard_calls: float
    share: float
    pushed: bool = False

    def __str__(self) -> str:
        if self.pushed:
            return (
                f"{self.shards} open shards, everything is read by enhanced fan-out, at no cost to other "
                f"readers: about {self.calls:.2f} calls of SubscribeToShard a second in all. AWS charges for "
                "a registered consumer by the hour and shard, and for what it reads"
            )
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
