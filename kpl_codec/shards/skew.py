"""Skew: how unevenly hash keys are spread over shards.

    skew_of(map(partition_key_hash, ["1", ..., "14"]), ALL_HASH_KEYS.split(2)).counts  ->  (3, 11)

Specification: spec/08-live-shard-map.md, HKA-8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from ..errors import HashKeyError
from ..format.hash_keys import HashKeyRange


@dataclass(frozen=True, slots=True)
class Skew:
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


def skewed(loads: Mapping[str, float], user_records: int) -> Iterator[tuple[str, float]]:
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
