"""Explicit hash keys that stay balanced for any number of keys and through every split.

Halve the space; its middle is the first key. Halve each half; their middles are the next two; and so
on: a binary tree of ideal keys, here for the space [0, 127]:

    shards |                                64
       2   |                32                              96
       4   |        16              48              80              112
       8   |    8       24      40      56      72      88      104     120

Within a level each key goes into the side with fewer keys (8 72 40 104 24 88 56 120), so that the two sides
of a node never differ by more than one key. The same rule evens out an unbalanced set of keys.

The next key depends only on the set of keys in use, not on the order in which they were given, nor on what
was allocated before a restart. It is found in about log2 of the number of keys steps, at most 128. The keys
are one sorted list: with a million of them an insertion moves half of it, 0.1 ms.
Specification: spec/08-live-shard-map.md, HKA-1 to HKA-8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from ..errors import HashKeyError
from ..format.hash_keys import ALL_HASH_KEYS, HashKeyRange
from .skew import skew_of


class HashKeyAllocator:
    """Balanced keys of one ``space``. Holds state: the set of keys in use.

    ``keys``: those in use already, in any order; one given twice counts once.
    Raises HashKeyError for a key outside the space.
    """

    def __init__(self, space: HashKeyRange = ALL_HASH_KEYS, keys: Iterable[int] = ()) -> None:
        self.space = space
        # HKA-5: "What is allocated MUST depend on the set of keys in use alone: not on their order, nor on
        # what was allocated before a restart."
        self._keys = sorted(set(keys))
        if self._keys and not (self._keys[0] in space and self._keys[-1] in space):
            raise HashKeyError(reason="outside the allocator's space")

    # -- the set of keys ----------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[int]:
        """The keys in use, ascending: all that has to be kept over a restart."""
        return iter(self._keys)

    def _find(self, key: int) -> tuple[int, bool]:
        """The place of ``key`` in the list, and whether it is there."""
        at = bisect_left(self._keys, key)
        return at, at < len(self._keys) and self._keys[at] == key

    def add(self, key: int) -> bool:
        """Mark ``key`` as in use; False if it was already. Raises HashKeyError outside the space."""
        if key not in self.space:
            raise HashKeyError(reason="outside the allocator's space")
        at, there = self._find(key)
        if not there:
            self._keys.insert(at, key)
        return not there

    def release(self, key: int) -> None:
        """``key`` is free again. Raises HashKeyError(code="not-allocated") if it was not in use."""
        # HKA-6: "A released key MUST be free at once, and its side thinner by one."
        at, there = self._find(key)
        if not there:
            raise HashKeyError(code="not-allocated", reason="the key is not in use")
        del self._keys[at]

    # -- the next key -------------------------------------------------------------------------

    def next_key(self) -> int:
        """Allocate the key that balances best. Raises HashKeyError(code="exhausted")."""
        # HKA-1: "The space is halved at low + floor((high - low) / 2), and each half again; the middles of
        # the halves of one depth are a level, and a level is filled before the next."
        # HKA-2: "The next key is the middle of the space if that is free, else the next key of its
        # thinner half, the lower one if both hold as many keys."
        low, high = self.space.starting_hash_key, self.space.ending_hash_key + 1
        lowest = low  # what was cut at `low` is in use, unless it is the lowest of all
        first, last = 0, len(self._keys)  # the keys from `lowest` to before `high`
        while low < high:
            middle = low + (high - low) // 2
            at = bisect_left(self._keys, middle, first, last)
            taken = at < last and self._keys[at] == middle
            if not taken and middle >= lowest:
                self._keys.insert(at, middle)
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
        raise HashKeyError(code="exhausted", reason=f"no free hash key among {self.space.size}")


def balanced_keys(ranges: Iterable[HashKeyRange], keys: Iterable[int] = ()) -> Iterator[int]:
    """Balanced keys over the open shards of a stream, one after the other.

    Each goes to the shard with the fewest keys (of several, the lowest), and there to the place that balances
    best, so that a later split halves its keys. ``ranges``: of the open shards; see `ShardMap.open_shards`.
    ``keys``: in use already, in any order. Raises HashKeyError for a key in none of the ranges, for ranges
    that overlap, and where all are full.
    """
    # HKA-4: "A reshard MUST NOT move a key in use; it changes only how they are counted."
    existing, parts, first = sorted(set(keys)), [], 0
    skew = skew_of(existing, ranges)
    for space, count in zip(skew.ranges, skew.counts, strict=True):
        parts.append(HashKeyAllocator(space, existing[first : first + count]))
        first += count
    while True:
        # HKA-3: "Over the shards of a stream the next key MUST go to the open shard with the fewest
        # keys, the lowest if several have as few, and within it as in a space of its own."
        free = [part for part in parts if len(part) < part.space.size]
        if not free:
            raise HashKeyError(code="exhausted", reason="every range is full")
        yield min(free, key=len).next_key()
