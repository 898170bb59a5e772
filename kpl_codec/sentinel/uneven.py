"""Finds uneven load: partition keys and shards that get far more than their share.

A partition key often is a customer's number, and what is found goes to logs, chats and monitoring systems.
So a hot key is told by its hash key, which `kpl-codec keys hash KEY` prints too, unless names are asked for.
Specification: spec/10-sentinel.md, SEN-19, SEN-23.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ..format.hash_keys import partition_key_hash
from ..shards.shard_map import ShardMap
from .heavy_hitters import HeavyHitters
from .kept import Minute

#: Partition keys that are counted, and for how many seconds.
_KEYS, _COUNTED_FOR = 256, 3600
#: A hot key has this part of what the mean shard gets, and this part of all, at least.
_HOT_OF_SHARD, _HOT_OF_ALL = 0.5, 0.05
_ENOUGH_FOR_KEYS: Final = 1000
#: An open shard above this many times the mean is skewed; user records per shard needed to tell.
SKEWED: Final = 2.0
_ENOUGH: Final = 100
#: Looks it takes to tell skew and hot keys from a burst.
_ENOUGH_LOOKS: Final = 10


class HotKeys:
    """Counts user records by partition key, anew every hour. ``names``: tell keys, not their hash keys."""

    def __init__(self, *, names: bool) -> None:
        self._names = names
        self.clear()

    def clear(self) -> None:
        """Forget all counts."""
        self._keys: HeavyHitters[str] = HeavyHitters(_KEYS)
        self._since: float | None = None
        self._looks = self._seen = 0

    def count(self, keys: Mapping[str, int], now: float, *, stands_for: float = 1.0) -> None:
        """Count the user records of one look by partition key. Each stands for ``stands_for`` of them: so a
        shard that is read whole weighs no more than one that is sampled."""
        if self._since is None or now - self._since > _COUNTED_FOR:
            self.clear()
            self._since = now
        self._looks += bool(keys)
        for key, count in keys.items():
            self._seen += count
            self._keys.add(key, round(count * stands_for))

    def hot(self, shard_map: ShardMap) -> Iterator[tuple[str, str]]:
        """Shards with hot keys, and what to say of these."""
        total = self._keys.total
        if self._seen < _ENOUGH_FOR_KEYS or self._looks < _ENOUGH_LOOKS:
            return
        hot = max(_HOT_OF_SHARD / len(shard_map.open_shards), _HOT_OF_ALL)
        said: dict[str, list[str]] = {}
        for hitter in self._keys.top(5):
            if hitter.at_least > hot * total:
                hash_key = partition_key_hash(hitter.key)
                # SEN-23: "A finding MUST hold no record data and no credentials; a partition key only where
                # the caller asked for names."
                name = repr(hitter.key) if self._names else f"hash key {hash_key}"
                shard_id = shard_map.shard_for(hash_key).shard_id
                said.setdefault(shard_id, []).append(f"{name}: {hitter.at_least / total:.0%}")
        for shard_id, parts in said.items():
            yield shard_id, f"{'; '.join(parts)} of the user records seen"


def per_second(minutes: Iterable[Minute]) -> tuple[float, float]:
    """User records and bytes a second, of the time that was read."""
    read = [minute for minute in minutes if minute.read_ms]
    seconds = sum(minute.read_ms for minute in read) / 1000 or 1.0
    user_records = sum(minute.slot_user_records for minute in read)
    return user_records / seconds, sum(minute.slot_bytes for minute in read) / seconds


def skewed(minutes: Mapping[str, Iterable[Minute]]) -> Iterator[tuple[str, str]]:
    """Shards far above the mean of these, and what to say of each. ``minutes``: of every open shard."""
    by_shard = {shard_id: list(some) for shard_id, some in minutes.items()}
    if len(by_shard) < 2:
        return
    seen = sum(minute.slot_user_records for some in by_shard.values() for minute in some)
    looks = min(sum(minute.looks for minute in some) for some in by_shard.values())
    rates = {shard_id: per_second(some)[1] for shard_id, some in by_shard.items()}
    mean = sum(rates.values()) / len(rates)
    if seen < _ENOUGH * len(rates) or looks < _ENOUGH_LOOKS or not mean:
        return
    for shard_id, rate in rates.items():
        if rate > SKEWED * mean:
            yield shard_id, f"{rate / mean:.1f} times the mean of the open shards, {rate / 1000:,.0f} kB/s"
