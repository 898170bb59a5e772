"""Skew: how unevenly hash keys are spread over shards; and explicit hash keys that stay balanced, for any
number of keys and through every split.

    skew_of(map(partition_key_hash, ["1", ..., "14"]), ALL_HASH_KEYS.split(2)).counts  ->  (3, 11)

Halve the space; its middle is the first key. Halve each half; their middles are the next two; and so
on: a binary tree of ideal keys, here for the space [0, 127]:

    shards |                                64
       2   |                32                              96
       4   |        16              48              80              112
       8   |    8       24      40      56      72      88      104     120

Within a level each key goes into the side with fewer keys (8 72 40 104 24 88 56 120), so that the two sides
of a node never differ by more than one key. The same rule evens out an unbalanced set of keys.

Specification: spec/08-live-shard-map.md, HKA-1 to HKA-5, HKA-7 and HKA-8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from ..errors import HashKeyError
from ..format.hash_keys import HashKeyRange


class Skew(NamedTuple):
    """``counts``: hash keys (or weights) on each of ``ranges``, in the order of the ranges."""

    ranges: tuple[HashKeyRange, ...]
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """The mean count of a range."""
        return self.total / len(self.counts)

    @property
    def ratio(self) -> float:
        """The highest count divided by the mean: 1.0 if all are even, the number of ranges if one has all.

        0.0 if all counts are 0. A stream with this ratio can use only 1/ratio of its shards' total capacity.
        """
        return max(self.counts) / self.mean if self.total else 0.0


#: A shard that gets more than this times the mean is skewed, if there is enough to tell: so many user
#: records a shard, on the mean.
_SKEWED, _ENOUGH = 2.0, 100


def overloaded_shards(loads: Mapping[str, float], user_records: int) -> Iterator[tuple[str, float]]:
    """The shards far above the mean of ``loads``, and how many times that mean is on each.

    ``user_records``: how many the loads are of. Too few of them tell nothing."""
    mean = sum(loads.values()) / len(loads) if loads else 0.0
    if user_records < _ENOUGH * len(loads):
        return
    for shard_id, load in loads.items():
        if load > _SKEWED * mean:
            yield shard_id, load / mean


def skew_of(hash_keys: Iterable[int] | Iterable[tuple[int, int]], ranges: Iterable[HashKeyRange]) -> Skew:
    """Count ``hash_keys``, or ``(hash key, weight)`` pairs, on ``ranges``. O(log n) a key. Raises
    HashKeyError if there are no ranges, if ranges overlap, or for a hash key in no range."""
    ordered = tuple(sorted(ranges))
    if not ordered:
        raise HashKeyError(code="outside", reason="no ranges")
    for one, other in pairwise(ordered):
        if one.overlaps(other):
            raise HashKeyError(code="overlap", reason="two ranges share a hash key")
    endings = [one.ending_hash_key for one in ordered]
    counts = [0] * len(ordered)
    for item in hash_keys:
        hash_key, weight = item if isinstance(item, tuple) else (item, 1)
        # HKA-8: "A hash key counts for the range that holds it, both ends included; one in no range MUST
        # be an error."
        index = bisect_left(endings, hash_key)
        if index == len(ordered) or hash_key not in ordered[index]:
            raise HashKeyError(code="outside", reason="a hash key is in no range")
        counts[index] += weight
    return Skew(ordered, tuple(counts))


def allocate(space: HashKeyRange, keys: list[int]) -> int:
    """Adds the key that balances best to ``keys``, those of ``space`` that are in use, ascending. Raises
    HashKeyError(code="exhausted")."""
    # HKA-1: "The space is halved at low + floor((high - low) / 2), and each half again; the middles of
    # the halves of one depth are a level, and a level is filled before the next."
    # HKA-2: "The next key is the middle of the space if that is free, else the next key of its
    # thinner half, the lower one if both hold as many keys."
    low, high = space.starting_hash_key, space.ending_hash_key + 1
    lowest = low  # what was cut at `low` is in use, unless it is the lowest of all
    first, last = 0, len(keys)  # the keys from `lowest` to before `high`
    while low < high:
        middle = low + (high - low) // 2
        at = bisect_left(keys, middle, first, last)
        taken = at < last and keys[at] == middle
        if not taken and middle >= lowest:
            keys.insert(at, middle)
            return middle
        below, above = at - first, last - at - taken
        # HKA-7: "A half that is full MUST be passed over, and a full space MUST be an error: no
        # key is given out twice."
        below_is_full, above_is_full = below >= middle - lowest, above >= high - middle - 1
        if below_is_full and above_is_full:
            break
        if above_is_full or (below <= above and not below_is_full):
            high, last = middle, at
        else:
            low, lowest, first = middle, middle + 1, at + taken
    raise HashKeyError(code="exhausted", reason=f"no free hash key among {space.size}")


def balanced_keys(ranges: Iterable[HashKeyRange], keys: Iterable[int] = ()) -> Iterator[int]:
    """Balanced keys over open shards (``ranges``), one after the other.

    Each goes to the shard with the fewest keys (of several, the lowest), and there to the place that balances
    best. ``keys``: in use already, in any order. Raises HashKeyError for a key in none of the ranges, for
    ranges that overlap, and where all are full.
    """
    # HKA-4: "A reshard MUST NOT move a key in use; it changes only how they are counted."
    # HKA-5: "What is allocated MUST depend on the set of keys in use alone: not on their order, nor on
    # what was allocated before a restart."
    existing, parts, first = sorted(set(keys)), [], 0
    skew = skew_of(existing, ranges)
    for space, count in zip(skew.ranges, skew.counts, strict=True):
        parts.append((space, existing[first : first + count]))
        first += count
    while True:
        # HKA-3: "Over the shards of a stream the next key MUST go to the open shard with the fewest
        # keys, the lowest if several have as few, and within it as in a space of its own."
        free = [(space, used) for space, used in parts if len(used) < space.size]
        if not free:
            raise HashKeyError(code="exhausted", reason="every range is full")
        yield allocate(*min(free, key=lambda part: len(part[1])))
