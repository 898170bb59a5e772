"""Explicit hash keys that stay balanced for any number of keys and through every split.

Halve the space; its middle is the first key. Halve each half; their middles are the next two; and so
on: a binary tree of ideal keys, here for the space [0, 127]:

    shards |                                64
       2   |                32                              96
       4   |        16              48              80              112
       8   |    8       24      40      56      72      88      104     120

There are three orders within a level: left to right, half to half, and tree: always into the side with fewer
keys, so that the two sides of a node never differ by more than one key. `nth_key` computes all three
directly. The allocators use the tree order, which also evens out an unbalanced set of keys.

The next key depends only on the set of keys in use, not on the order in which they were given, nor on what
was allocated before a restart. It takes about log2 of the number of keys in steps, at most 128.
Specification: spec/08-live-shard-map.md, HKA-1 to HKA-8.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal

from ..errors import HashKeyError
from ..format.hash_keys import ALL_HASH_KEYS, HashKeyRange

Order = Literal["left-to-right", "half-to-half", "tree"]

#: With more keys than this a half is cut.
_BUCKET: Final = 16


def _exhausted(space: HashKeyRange) -> HashKeyError:
    return HashKeyError(code="exhausted", reason=f"no free hash key among {space.size}")


def nth_key(n: int, space: HashKeyRange = ALL_HASH_KEYS, order: Order = "tree") -> int:
    """The ``n``-th balanced key (from 0) of a ``space`` without keys, computed without the keys before it.

    Each level of the tree is filled before the next; ``order`` is the order within a level:

    left-to-right   8 24 40 56 72 88 104 120   lopsided by up to twice while a level fills
    half-to-half    8 40 72 104 24 56 88 120   all left children, then all right ones
    tree            8 72 40 104 24 88 56 120   every node's thinner side first: never lopsided by more
                                               than one key, at any level

    Raises HashKeyError(code="exhausted") if the space has no more keys, and ValueError for a negative ``n``
    or an unknown order.
    """
    if n < 0:
        raise ValueError("n counts from 0")
    # HKA-1: "The space is halved at low + floor((high - low) / 2), and each half again; the middles of
    # the halves of one depth are a level, and a level is filled before the next."
    level = (n + 1).bit_length()
    if space.size < 1 << level:
        raise _exhausted(space)
    width = 1 << (level - 1)
    index = n + 1 - width
    if order == "left-to-right":
        position = index
    elif order == "half-to-half":
        half = width // 2
        position = 2 * index if index * 2 < width else 2 * (index - half) + 1
    elif order == "tree":
        position = int(f"{index:0{level - 1}b}"[::-1], 2) if level > 1 else 0
    else:
        raise ValueError(f"no such order: {order}")
    low, high = space.starting_hash_key, space.ending_hash_key + 1
    for bit in range(level - 2, -1, -1):
        middle = low + (high - low) // 2
        low, high = (middle, high) if position >> bit & 1 else (low, middle)
    return low + (high - low) // 2


class _Half:
    """The keys in use from ``low`` to before ``high``: a part of the space made by repeated halving.

    While they are few, ``keys`` holds them all, ascending. Later the part is cut at its middle: ``sides``
    hold the keys below and above it, and ``keys`` only the middle, if it is in use. ``count``: of all of
    them.
    """

    __slots__ = ("count", "high", "keys", "low", "middle", "sides")

    def __init__(self, low: int, high: int, keys: list[int]) -> None:
        self.low, self.high, self.keys = low, high, keys
        self.middle = low + (high - low) // 2
        self.count = len(keys)
        self.sides: tuple[_Half, _Half] | None = None

    def cut(self) -> tuple[_Half, _Half] | None:
        """Both sides, None while the keys are few."""
        if self.sides is None and self.count > _BUCKET:
            at = bisect_left(self.keys, self.middle)
            taken = self.keys[at] == self.middle if at < self.count else False
            below = _Half(self.low, self.middle, self.keys[:at])
            above = _Half(self.middle, self.high, self.keys[at + taken :])
            self.keys, self.sides = self.keys[at : at + taken], (below, above)
        return self.sides

    def find(self, key: int) -> tuple[list[_Half], int, bool]:
        """The path to ``key`` (this part, its side with the key, and so on), the index of the key in the list
        of the last part, and whether the key is there."""
        half = self
        way = [half]
        while (sides := half.sides or half.cut()) is not None and key != half.middle:
            half = sides[key > half.middle]
            way.append(half)
        keys = half.keys
        at = bisect_left(keys, key)
        return way, at, at < len(keys) and keys[at] == key

    def collect(self, first: int, last: int, found: list[int]) -> None:
        """Append the keys from ``first`` to ``last``, ascending."""
        if not self.count or self.low > last or self.high <= first:
            return
        if self.sides is not None:
            self.sides[0].collect(first, last, found)
        found += [key for key in self.keys if first <= key <= last]
        if self.sides is not None:
            self.sides[1].collect(first, last, found)


class HashKeyAllocator:
    """Balanced keys of one ``space``. Holds state: the set of keys in use.

    ``keys``: those in use already, in any order; one given twice counts once.
    Raises HashKeyError for a key outside the space.
    """

    def __init__(self, space: HashKeyRange = ALL_HASH_KEYS, keys: Iterable[int] = ()) -> None:
        self.space = space
        # HKA-5: "What is allocated MUST depend on the set of keys in use alone: not on their order, nor on
        # what was allocated before a restart."
        existing = sorted(set(keys))
        if existing and not (existing[0] in space and existing[-1] in space):
            raise HashKeyError(reason="outside the allocator's space")
        self._root = _Half(space.starting_hash_key, space.ending_hash_key + 1, existing)

    # -- the set of keys ----------------------------------------------------------------------

    def __len__(self) -> int:
        return self._root.count

    def __iter__(self) -> Iterator[int]:
        """The keys in use, ascending: all that has to be kept over a restart."""
        return iter(self.keys_between(self.space.starting_hash_key, self.space.ending_hash_key))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int) and key in self.space and self._root.find(key)[2]

    def keys_between(self, first: int, last: int) -> list[int]:
        """The keys in use from ``first`` to ``last``, both included, ascending."""
        found: list[int] = []
        self._root.collect(first, last, found)
        return found

    def add(self, key: int) -> bool:
        """Mark ``key`` as in use; False if it was already. Raises HashKeyError outside the space."""
        if key not in self.space:
            raise HashKeyError(reason="outside the allocator's space")
        way, at, there = self._root.find(key)
        if there:
            return False
        way[-1].keys.insert(at, key)
        for half in way:
            half.count += 1
        return True

    def release(self, key: int) -> None:
        """``key`` is free again. Raises HashKeyError(code="not-allocated") if it was not in use."""
        # HKA-6: "A released key MUST be free at once, and its side thinner by one."
        way, at, there = self._root.find(key)
        if not there:
            raise HashKeyError(code="not-allocated", reason="the key is not in use")
        del way[-1].keys[at]
        for half in way:
            half.count -= 1

    # -- the next key -------------------------------------------------------------------------

    def next_key(self) -> int:
        """Allocate the key that balances best. Raises HashKeyError(code="exhausted")."""
        key = self.peek()
        self.add(key)
        return key

    def peek(self) -> int:
        """What `next_key` would give. Raises what it would raise."""
        # HKA-2: "The next key is the middle of the space if that is free, else the next key of its
        # thinner half, the lower one if both hold as many keys."
        half = self._root
        low, high, sides = half.low, half.high, half.cut()
        # Of a part with few keys: those from `first` to before `last` are in what is left of it.
        first, last = 0, len(half.keys)
        lowest = low  # the lowest key of what is left: `low` itself is the middle where it was cut
        while low < high:
            middle = low + (high - low) // 2
            if sides is not None:
                taken, below, above = bool(half.keys), sides[0].count, sides[1].count
            else:
                at = bisect_left(half.keys, middle, first, last)
                taken = at < last and half.keys[at] == middle
                below, above = at - first, last - at - taken
            if not taken and middle >= lowest:
                return middle
            # HKA-7: "A half that is full MUST be passed over, and a full space MUST be an error: no
            # key is given out twice."
            below_is_full, above_is_full = below >= middle - lowest, above >= high - middle - 1
            if below_is_full and above_is_full:
                break
            go_below = not below_is_full and (above_is_full or below <= above)
            if go_below:
                high = middle
            else:
                low, lowest = middle, middle + 1
            if sides is not None:
                half = sides[not go_below]
                sides = half.sides or half.cut()
                first, last = 0, len(half.keys)
            elif go_below:
                last = at
            else:
                first = at + taken
        raise _exhausted(self.space)

    def __str__(self) -> str:
        """The tree as nested brackets. It shows unused middles, too, on the path to used ones: in "((16) 32
        ((48) 56)) 64" 16 and 48 are in use, the others may be. For small sets."""
        return _brackets(list(self), self.space.starting_hash_key, self.space.ending_hash_key + 1)


def _brackets(keys: Sequence[int], low: int, high: int) -> str:
    if not keys:
        return ""
    middle = low + (high - low) // 2
    below = _brackets([key for key in keys if key < middle], low, middle)
    above = _brackets([key for key in keys if key > middle], middle, high)
    return f"({' '.join(filter(None, (below, str(middle), above)))})"


class ShardKeyAllocator:
    """Balanced keys over the open shards of a stream, also after splits and merges.

    The next key goes to the shard with the fewest keys (of several, the lowest), and there to the place that
    balances best, so that a later split halves its keys. After a reshard give the new ranges to `reshard`:
    keys in use stay, new ones go to the shards with the fewest keys. ``ranges``: of the open shards; see
    `ShardMap.open_shards`. ``keys``: in use already, in any order.
    Raises HashKeyError for a key in none of the ranges, or ranges that overlap.
    """

    def __init__(self, ranges: Iterable[HashKeyRange], keys: Iterable[int] = ()) -> None:
        self._parts: list[HashKeyAllocator] = []
        self._starts: list[int] = []
        self._heap: list[tuple[int, int]] = []
        self._set(ranges, sorted(set(keys)), {})

    def _set(
        self, ranges: Iterable[HashKeyRange], keys: Sequence[int], kept: dict[HashKeyRange, HashKeyAllocator]
    ) -> None:
        """Make the parts, reusing ``kept`` ones; ``keys`` (ascending) are those outside the kept parts."""
        ordered = sorted(ranges)
        for one, other in pairwise(ordered):
            if one.overlaps(other):
                raise HashKeyError(code="overlap", reason="two ranges share a hash key")
        parts = []
        left = len(keys)
        for part_range in ordered:
            part = kept.get(part_range)
            if part is None:
                first = bisect_left(keys, part_range.starting_hash_key)
                last = bisect_left(keys, part_range.ending_hash_key + 1)
                left -= last - first
                part = HashKeyAllocator(part_range, keys[first:last])
            parts.append(part)
        if left:
            raise HashKeyError(code="outside", reason=f"{left} keys are in no range")
        self._parts = parts
        self._starts = [part.space.starting_hash_key for part in parts]
        self._heap = [(len(part), index) for index, part in enumerate(parts)]
        heapq.heapify(self._heap)

    def _part(self, key: int) -> int:
        index = bisect_left(self._starts, key + 1) - 1
        if index < 0 or key not in self._parts[index].space:
            raise HashKeyError(code="outside", reason="the key is in no range")
        return index

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[int]:
        """The keys in use, ascending."""
        for part in self._parts:
            yield from part

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int) and any(key in part for part in self._parts if key in part.space)

    @property
    def counts(self) -> list[tuple[HashKeyRange, int]]:
        """How many keys each range has, in order."""
        return [(part.space, len(part)) for part in self._parts]

    def next_key(self) -> int:
        """Allocate the key that balances best. Raises HashKeyError(code="exhausted")."""
        # HKA-3: "Over the shards of a stream the next key MUST go to the open shard with the fewest
        # keys, the lowest if several have as few, and within it as in a space of its own."
        while self._heap:
            count, index = heapq.heappop(self._heap)
            part = self._parts[index]
            if count != len(part):
                continue  # an old entry: its count has changed since, and a newer entry has it
            if count >= part.space.size:
                continue  # full: it comes back when one of its keys is released
            key = part.next_key()
            heapq.heappush(self._heap, (len(part), index))
            return key
        raise HashKeyError(code="exhausted", reason="every range is full")

    def add(self, key: int) -> bool:
        """Mark ``key`` as in use; False if it was already. Raises HashKeyError if in no range."""
        index = self._part(key)
        added = self._parts[index].add(key)
        if added:
            heapq.heappush(self._heap, (len(self._parts[index]), index))
        return added

    def release(self, key: int) -> None:
        """``key`` is free again. Raises HashKeyError(code="not-allocated") if it was not in use."""
        index = self._part(key)
        self._parts[index].release(key)
        heapq.heappush(self._heap, (len(self._parts[index]), index))

    def reshard(self, ranges: Iterable[HashKeyRange]) -> None:
        """The stream's open shards are now these. Every key in use must lie in one of them.

        Raises HashKeyError like the constructor; then nothing has changed.
        """
        # HKA-4: "A reshard MUST NOT move a key in use; it changes only how they are counted."
        wanted = list(ranges)
        kept = {part.space: part for part in self._parts if part.space in set(wanted)}
        moved = [key for part in self._parts if part.space not in kept for key in part]
        self._set(wanted, moved, kept)
