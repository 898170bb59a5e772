"""Explicit hash keys that stay balanced for any number of keys and through every split.

Halve the space; its middle is the first key. Halve each half; their middles are the next two; and so
on: a binary tree of ideal keys, here for the space [0, 127]:

    shards |                                64
       2   |                32                              96
       4   |        16              48              80              112
       8   |    8       24      40      56      72      88      104     120

Within a level each key goes into the side with fewer keys (8 72 40 104 24 88 56 120), so that the two sides
of a node never differ by more than one key. The same rule evens out an unbalanced set of keys.

The next key depends only on the keys in use, not on their order, nor on what was allocated before a restart.
Specification: spec/08-live-shard-map.md, HKA-1 to HKA-5, HKA-7.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from ..errors import HashKeyError
from ..format.hash_keys import HashKeyRange
from .skew import skew_of


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
