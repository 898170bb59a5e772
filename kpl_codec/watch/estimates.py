"""Estimates the whole stream from a sample: how many user records were lost in all (spec/10-watch.md, 10.3),
and which partition keys and shards get far more user records than others (WCH-19).

estimate   sum of n * y: y lost user records in one slot of n
interval   that of Fay and Feuer (1997) for a weighted sum of Poisson counts: a gamma distribution with the
           mean and the variance of the estimate, its upper end with one more poll as bad as the worst
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from heapq import nlargest
from operator import itemgetter
from statistics import NormalDist
from typing import Any, NamedTuple

from ..format.hash_keys import partition_key_hash
from ..rendering.labels import plural
from ..shards.skew import overloaded_shards

#: The confidence of an interval, and its end in standard deviations of a normal distribution.
CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
#: How many partition keys are counted, and seconds after which counting starts again.
_MOST_KEYS, _RESTART_AFTER = 256, 3600
#: A hot key has at least this part of the mean shard's user records, and this part of all user records.
_HOT_OF_SHARD, _HOT_OF_ALL = 0.5, 0.05
#: How many user records, and polls of each shard, are needed to tell hot keys and skew from a burst.
_ENOUGH_USER_RECORDS, _ENOUGH_POLLS = 1000, 10


class Sample(NamedTuple):
    """``scale``: the time that the polls stand for, divided by the time that was read. ``polls``: the lost
    user records of each poll. ``certain``: lost user records that are not extrapolated."""

    scale: float = 1.0
    polls: Collection[int] = ()
    certain: int = 0


class Estimate(NamedTuple):
    """``seen``: how many were read. ``estimate``: how many there are; in 95 of 100 cases from ``low`` to
    ``high``, both included."""

    seen: int
    estimate: int
    low: int
    high: int

    @property
    def user_records(self) -> str:
        if self.low == self.high:
            return plural(self.estimate, "user record")
        interval = f"{self.low:,} to {self.high:,} with {CONFIDENCE:.0%} confidence"
        return f"about {plural(self.estimate, 'user record')} ({interval})"

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.estimate:,}"
        return f"about {self.estimate:,} ({self.low:,} to {self.high:,})"


def _gamma_quantile(shape: float, z: float) -> float:
    """By Wilson and Hilferty's approximation, for scale 1. ``z``: the same quantile of the normal
    distribution."""
    root = 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))
    return shape * max(0.0, root) ** 3


def estimate(samples: Iterable[Sample]) -> Estimate:
    """The estimated total from ``samples`` of different shards."""
    mean = variance = heaviest = 0.0
    seen = certain = 0
    for sample in samples:
        total = sum(sample.polls)
        seen += total + sample.certain
        certain += sample.certain
        if sample.scale > 1.0:
            mean += total * sample.scale
            variance += sum(count**2 for count in sample.polls) * sample.scale**2
            heaviest = max([heaviest, *(count * sample.scale for count in sample.polls)])
        else:
            # WCH-16: "Where all of a shard's time was read, the estimate MUST be what was seen, without an
            # interval."
            certain += total
    if not mean:
        return Estimate(seen, certain, certain, certain)
    low = variance / mean * _gamma_quantile(mean**2 / variance, -_Z)
    # WCH-15: "The interval MUST cover the truth at least as often as it says."
    upper_mean, upper_variance = mean + heaviest, variance + heaviest**2
    high = upper_variance / upper_mean * _gamma_quantile(upper_mean**2 / upper_variance, _Z)
    # WCH-14: "The lower end of an interval MUST NOT be below what was seen."
    return Estimate(
        seen,
        max(seen, round(certain + mean)),
        max(seen, math.floor(certain + low)),
        max(seen, math.ceil(certain + high)),
    )


class Load(NamedTuple):
    """The load of a shard: ``user_records``, ``bytes``, ``kinesis_records`` that arrive in a second.
    ``polls``: how often it was read; ``seen``: the user records that were read."""

    user_records: float
    bytes: float
    polls: int
    seen: int
    kinesis_records: float


class HeavyHitters:
    """Counts keys by Space-Saving (Metwally, Agrawal, El Abbadi 2005). Of ``n`` items it keeps every key with
    more than ``n / capacity``; no count is too high by more than that."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        #: Of each key a count, and by how much it may be too high.
        self._counts: dict[Any, tuple[int, int]] = {}

    def add(self, key: Hashable, count: int = 1) -> None:
        counts = self._counts
        most = error = 0
        if key in counts:
            most, error = counts[key]
        elif len(counts) >= self._capacity:
            # WCH-19: "Keys MUST be counted in bounded memory, and a key with more than 1/capacity of
            # everything counted MUST be among those kept."
            most, _ = counts.pop(min(counts, key=counts.__getitem__))
            error = most
        counts[key] = most + count, error

    def top(self, count: int = 10) -> list[tuple[Any, int, int]]:
        """At most ``count`` of the most frequent keys, each with its highest and lowest possible count."""
        best = nlargest(count, self._counts.items(), key=itemgetter(1))
        return [(key, most, most - error) for key, (most, error) in best]


class HotKeys:
    """Counts user records by shard and partition key; starts again every hour. ``names``: see `LastHour`."""

    def __init__(self, *, names: bool) -> None:
        self._names = names
        self.clear()

    def clear(self) -> None:
        self._keys = HeavyHitters(_MOST_KEYS)
        self._since: float | None = None
        self._counted: Counter[str | None] = Counter()
        self._polls: Counter[str | None] = Counter()
        self._user_records = 0

    def count(self, shard_id: str | None, keys: Mapping[str, int], now: float, *, scale: float = 1.0) -> None:
        """Count the user records of one poll by partition key. Each stands for ``scale`` user records: time
        that was read whole has no more weight than time that was sampled."""
        if self._since is None or now - self._since > _RESTART_AFTER:
            self.clear()
            self._since = now
        self._polls[shard_id] += bool(keys)
        for key, count in keys.items():
            weight = round(count * scale)
            self._user_records += count
            self._counted[shard_id] += weight
            self._keys.add((shard_id, key), weight)

    def hot(self, loads: Mapping[str, Load]) -> Iterator[tuple[str, str]]:
        """The shards with hot keys, each with a text about its keys. ``loads``: of every open shard."""
        if not loads:
            return
        # WCH-36: "The load of a key MUST be its part of its shard, times the shard's rate: a key MUST NOT be
        # hot only because more of its shard was read."
        rates: Mapping[str | None, float] = {one: load.user_records for one, load in loads.items()}
        polls: Mapping[str | None, int] = {one: load.polls for one, load in loads.items()}
        if not any(polls.values()):  # not sampled: a consumer gets all records of the shards that it reads
            rates, polls = self._counted, self._polls
        total = sum(rates.values())
        if not total or self._user_records < _ENOUGH_USER_RECORDS or min(polls.values()) < _ENOUGH_POLLS:
            return
        hot = max(_HOT_OF_SHARD / len(rates), _HOT_OF_ALL)
        texts: dict[str, list[str]] = {}
        for (shard_id, key), _, at_least in self._keys.top(5):
            part = at_least / self._counted[shard_id] * rates.get(shard_id, 0.0) / total
            if part > hot and shard_id is not None:
                # WCH-23: "A finding MUST hold no record data and no credentials; a partition key only where
                # the caller asked for names."
                name = repr(key) if self._names else f"hash key {partition_key_hash(key)}"
                texts.setdefault(shard_id, []).append(f"{name}: {part:.0%}")
        for shard_id, parts in texts.items():
            yield shard_id, f"{'; '.join(parts)} of the user records"


def skewed_shards(loads: Mapping[str, Load]) -> Iterator[tuple[str, str]]:
    """The shards far above the mean, each with a text. ``loads``: of every open shard."""
    if min((load.polls for load in loads.values()), default=0) < _ENOUGH_POLLS:
        return
    rates = {shard_id: load.bytes for shard_id, load in loads.items()}
    for shard_id, times in overloaded_shards(rates, sum(load.seen for load in loads.values())):
        yield shard_id, f"{times:.1f} times the mean of the open shards, {rates[shard_id] / 1000:,.0f} kB/s"
