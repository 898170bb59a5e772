"""Estimates the whole stream from a sample: how many user records were lost in all (spec/10-watch.md, 10.3),
and which partition keys and shards get far more user records than others (WCH-19).

estimate   sum of n * y: y lost user records in one slot of n
lower end  the total that a bet against every lower one has not ruled out; a sample has no upper end
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import Any, Final, NamedTuple

from ..format.hash_keys import partition_key_hash
from ..rendering.labels import plural
from ..shards.skew import overloaded_shards

#: The confidence of a lower end; and the parts of the money that the bets for it put on the next poll.
CONFIDENCE: Final = 0.95
_STAKES: Final = (0.01, 0.03, 0.1, 0.3, 0.6, 0.9)
#: The relative precision of a lower end.
_PRECISION: Final = 0.01
#: How many partition keys are counted, and seconds after which counting starts again.
_MOST_KEYS, _RESTART_AFTER = 256, 3600
#: A hot key has at least this part of the mean shard's user records, and this part of all user records.
_HOT_OF_SHARD, _HOT_OF_ALL = 0.5, 0.05
#: How many user records, and polls of each shard, are needed to tell hot keys and skew from a burst.
_ENOUGH_USER_RECORDS, _ENOUGH_POLLS = 1000, 10


class Sample(NamedTuple):
    """What was read of one shard. ``slots`` of each period, one of which was read; 1 where all was read.
    ``polls``: the lost user records of each slot that had some; ``empty``: how many slots had none.
    ``certain``: lost user records that are not extrapolated. ``scale``: the time that the polls stand for,
    divided by the time that was read: above ``slots`` where periods were skipped."""

    slots: float = 1.0
    polls: Sequence[int] = ()
    empty: int = 0
    certain: int = 0
    scale: float = 1.0


class Estimate(NamedTuple):
    """``seen``: how many were read. ``estimate``: how many there are, without bias. There are at least
    ``low``, in 95 of 100 cases; at most ``high``: infinite, unless everything was read."""

    seen: int
    estimate: int
    low: int
    high: float

    @property
    def exact(self) -> bool:
        return self.low == self.high

    @property
    def user_records(self) -> str:
        if self.exact:
            return plural(self.estimate, "user record")
        if self.estimate == self.seen:
            return f"at least {plural(self.seen, 'user record')}"
        least = f"at least {self.low:,} with {CONFIDENCE:.0%} confidence" if self.low > self.seen else ""
        known = "; ".join(filter(None, (least, f"{self.seen:,} were seen", "no upper end is known")))
        return f"about {plural(self.estimate, 'user record')} ({known})"

    def __str__(self) -> str:
        if self.exact:
            return f"{self.estimate:,}"
        return f"about {self.estimate:,} ({self.low:,} or more)"

    def to_json(self) -> dict[str, int | None]:
        """``high`` is None where no upper end is known."""
        return self._asdict() | {"high": self.low if self.exact else None}


def estimate(samples: Sequence[Sample], *, has_gaps: bool = False) -> Estimate:
    """The estimated total from ``samples`` of different shards. ``has_gaps``: there is more of which nothing
    was read."""
    sampled = [sample for sample in samples if sample.slots > 1]
    certain = sum(sample.certain for sample in samples)
    # WCH-16: "Where all of a shard's time was read, the estimate MUST be what was seen, without an interval."
    certain += sum(sum(sample.polls) for sample in samples if sample.slots <= 1)
    in_slots = sum(sum(sample.polls) for sample in sampled)
    seen = certain + in_slots
    # WCH-41: "A figure MUST have an upper end only where everything that it is about was read; then it is
    # exact."
    high = math.inf if sampled or has_gaps else seen
    if not in_slots:
        return Estimate(seen, seen, seen, high)
    total = sum(sum(sample.polls) * sample.scale for sample in sampled)
    # WCH-14: "The lower end of an interval MUST NOT be below what was seen."
    # WCH-15: "The lower end MUST NOT be above the truth in more than 5 of 100 cases, however the losses are
    # spread over time."
    return Estimate(
        seen,
        max(seen, round(certain + total)),
        max(seen, math.floor(certain + lowest_total(sampled))),
        high,
    )


def lowest_total(samples: Sequence[Sample]) -> float:
    """How many user records the slots of all periods that were polled have lost at least, in 95 of 100 cases.

    Who holds that the mean slot loses ``m`` must accept a bet on each poll: a stake of the part ``c`` of the
    money becomes ``c * y / m``, for ``y`` lost user records. If the mean is ``m`` or less, the money does not
    grow on average, whatever the losses are and however they change with time. So it becomes 20 times as much
    in one case of 20 at most (Markov). The lowest ``m`` against which it has not is the lower end. The money
    is split between several ``c``, which together are one bet (Waudby-Smith, Ramdas 2024).
    """
    counts = Counter(count for sample in samples for count in sample.polls)
    polls = counts.total() + sum(sample.empty for sample in samples)
    needed = math.log(len(_STAKES) / (1 - CONFIDENCE))

    def ruled_out(mean: float) -> bool:
        logs = [
            (polls - counts.total()) * math.log1p(-stake)
            + sum(times * math.log1p(stake * (count / mean - 1)) for count, times in counts.items())
            for stake in _STAKES
        ]
        most = max(logs)
        return most + math.log(sum(math.exp(one - most) for one in logs)) > needed

    mean = sum(count * times for count, times in counts.items()) / polls
    # Nothing below the mean of the polls divided by this can be the end: what was seen is more.
    slots = max(sample.slots for sample in samples)
    low, high = mean / slots, mean
    while high > low * (1 + _PRECISION):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if ruled_out(middle) else (low, middle)
    return low * polls * slots


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

    def shift(self, seconds: float) -> None:
        self._since = None if self._since is None else self._since + seconds

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
