"""Explicit hash keys that stay balanced, however many there are and however a stream is split.

Halve the space; its middle is the first key. Halve each half; their middles are the next two; and so
on: a binary tree of ideal keys, here for the space [0, 127]:

    shards |                                64
       2   |                32                              96
       4   |        16              48              80              112
       8   |    8       24      40      56      72      88      104     120

A level fills from left to right, or half to half, or as the tree does: always into the thinner side, so
that no node's two sides ever differ by more than one key (`nth_key` has all three in closed form). The
allocators take the tree's way, which also repairs a set of keys that became lopsided.

Their answers are a function of the set of keys they hold and of nothing else: not of the order in which
existing keys were given, nor of what was allocated before a restart. There is no tree in memory, only
keys, counted in the halves where there are many: a step per halving, of which there are about log2 of
the number of keys, and never more than 128.
Specification: spec/08-live-shard-map.md, HKA-1 to HKA-8.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal

from ..errors import HashKeyError
from ..format.hash_keys import ALL_HASH_KEYS, HashKeyRange

Order = Literal["left-to-right", "half-to-half", "tree"]

#: More keys than this in one half of a half ... and it is counted by halves itself.
_BUCKET: Final = 32


def _exhausted(space: HashKeyRange) -> HashKeyError:
    return HashKeyError(code="exhausted", reason=f"no free hash key among {space.size}")


def nth_key(n: int, space: HashKeyRange = ALL_HASH_KEYS, order: Order = "tree") -> int:
    """The ``n``-th balanced key, from 0, of an untouched ``space``, without those before it.

    Each level of the tree is filled before the next; ``order`` is the order within a level:

    left-to-right   8 24 40 56 72 88 104 120   lopsided by up to twice while a level fills
    half-to-half    8 40 72 104 24 56 88 120   all left children, then all right ones
    tree            8 72 40 104 24 88 56 120   every node's thinner side first: never lopsided by more
                                               than one key, at any level

    Raises HashKeyError(code="exhausted") where the levels would be finer than hash keys are, and
    ValueError for a negative ``n`` or an unknown order.
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
    """The keys of one halving, counted: the middle itself (``taken``), those below and those above."""

    __slots__ = ("above", "below", "count", "taken")

    def __init__(self, keys: list[int], middle: int) -> None:
        at = bisect_left(keys, middle)
        self.taken = at < len(keys) and keys[at] == middle
        self.count = len(keys)
        self.below: _Half | list[int] = keys[:at]
        self.above: _Half | list[int] = keys[at + self.taken :]


def _size(part: _Half | list[int]) -> int:
    return len(part) if isinstance(part, list) else part.count


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
        self._root: _Half | list[int] = existing

    # -- the set of keys ----------------------------------------------------------------------

    def __len__(self) -> int:
        return _size(self._root)

    def __iter__(self) -> Iterator[int]:
        """The keys in use, ascending: all that has to be kept over a restart."""
        return iter(self.keys_between(self.space.starting_hash_key, self.space.ending_hash_key))

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, int) or key not in self.space:
            return False
        low, high, part = self._bounds()
        while isinstance(part, _Half):
            middle = low + (high - low) // 2
            if key == middle:
                return part.taken
            if key < middle:
                high, part = middle, part.below
            else:
                low, part = middle, part.above
        at = bisect_left(part, key)
        return at < len(part) and part[at] == key

    def keys_between(self, first: int, last: int) -> list[int]:
        """The keys in use from ``first`` to ``last``, both included, ascending."""
        found: list[int] = []
        low, high, part = self._bounds()
        todo: list[tuple[int, int, _Half | list[int]] | int] = [(low, high, part)]
        while todo:
            item = todo.pop()
            if isinstance(item, int):
                found.append(item)
                continue
            low, high, part = item
            if high <= first or low > last or not _size(part):
                continue
            if isinstance(part, list):
                found += [key for key in part if first <= key <= last]
                continue
            middle = low + (high - low) // 2
            todo.append((middle, high, part.above))
            if part.taken and first <= middle <= last:
                todo.append(middle)
            todo.append((low, middle, part.below))
        return found

    def add(self, key: int) -> bool:
        """Take ``key`` as in use; False if it was already. Raises HashKeyError outside the space."""
        if key not in self.space:
            raise HashKeyError(reason="outside the allocator's space")
        if key in self:
            return False
        self._change(key, +1)
        return True

    def release(self, key: int) -> None:
        """``key`` is free again. Raises HashKeyError(code="not-allocated") if it was not in use."""
        # HKA-6: "A released key MUST be free at once, and its side thinner by one."
        if key not in self:
            raise HashKeyError(code="not-allocated", reason="the key is not in use")
        self._change(key, -1)

    # -- the next key -------------------------------------------------------------------------

    def next_key(self) -> int:
        """Allocate the key that balances best. Raises HashKeyError(code="exhausted")."""
        key = self.peek()
        self._change(key, +1)
        return key

    def peek(self) -> int:
        """What `next_key` would give. Raises what it would raise."""
        # HKA-2: "The next key is the middle of the space if that is free, else the next key of its
        # thinner half, the lower one if both hold as many keys."
        low, high, part = self._bounds()
        first, last = 0, len(part) if isinstance(part, list) else 0
        while high > low:
            middle = low + (high - low) // 2
            if isinstance(part, _Half):
                taken, below, above = part.taken, _size(part.below), _size(part.above)
            else:
                at = bisect_left(part, middle, first, last)
                taken = at < last and part[at] == middle
                below, above = at - first, last - at - taken
            if not taken and not self._is_floor_of_another(low, middle):
                return middle
            # The lowest key of a half is the middle above it, unless it is where the space begins.
            room_below = middle - low - (low != self.space.starting_hash_key)
            go_below = below <= above
            if below >= room_below:
                # HKA-7: "A half that is full MUST be passed over, and a full space MUST be an error: no
                # key is given out twice."
                go_below = False
            elif above >= high - middle - 1:
                go_below = True
            if go_below:
                high = middle
                if isinstance(part, _Half):
                    part = part.below
                    first, last = 0, len(part) if isinstance(part, list) else 0
                else:
                    last = at
            else:
                if above >= high - middle - 1:
                    break
                low = middle
                if isinstance(part, _Half):
                    part = part.above
                    first, last = 0, len(part) if isinstance(part, list) else 0
                else:
                    first = at + taken
        raise _exhausted(self.space)

    def _is_floor_of_another(self, low: int, middle: int) -> bool:
        return middle == low and low != self.space.starting_hash_key

    def __str__(self) -> str:
        """The tree as nested brackets, with the unused middles on the way to used ones:
        "((16) 32 ((48) 56)) 64" is 16, 48 and maybe others in use. For small sets."""
        return _brackets(list(self), self.space.starting_hash_key, self.space.ending_hash_key + 1)

    # -- inside -------------------------------------------------------------------------------

    def _bounds(self) -> tuple[int, int, _Half | list[int]]:
        return self.space.starting_hash_key, self.space.ending_hash_key + 1, self._root

    def _change(self, key: int, by: int) -> None:
        """Add (+1) a key that is free or remove (-1) one that is in use."""
        low, high, part = self._bounds()
        parent: _Half | None = None
        side = ""
        while True:
            middle = low + (high - low) // 2
            if isinstance(part, list):
                if len(part) <= _BUCKET:
                    if by > 0:
                        insort(part, key)
                    else:
                        del part[bisect_left(part, key)]
                    return
                part = _Half(part, middle)
                if parent is None:
                    self._root = part
                else:
                    setattr(parent, side, part)
            part.count += by
            if key == middle:
                part.taken = by > 0
                return
            parent = part
            if key < middle:
                high, part, side = middle, part.below, "below"
            else:
                low, part, side = middle, part.above, "above"


def _brackets(keys: Sequence[int], low: int, high: int) -> str:
    if not keys:
        return ""
    middle = low + (high - low) // 2
    below = _brackets([key for key in keys if key < middle], low, middle)
    above = _brackets([key for key in keys if key > middle], middle, high)
    return f"({' '.join(filter(None, (below, str(middle), above)))})"


class ShardKeyAllocator:
    """Balanced keys over the open shards of a stream, through its splits and merges.

    The next key goes to the shard that has the fewest (the lowest of them, if several do) and there to
    the place that balances best, so that a later split finds its keys halved. After a reshard give the
    new ranges to `reshard`: keys in use never move, new ones go where there are fewest.
    ``ranges``: of the open shards; see `ShardMap.open_shards`. ``keys``: in use already, in any order.
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
        """Make the parts, reusing ``kept`` ones; ``keys`` (ascending) are those of no kept part."""
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
                continue  # an old entry: the count has changed since, and has an entry of its own
            if count >= part.space.size:
                continue  # full: back in the heap when a key of it is released
            key = part.next_key()
            heapq.heappush(self._heap, (len(part), index))
            return key
        raise HashKeyError(code="exhausted", reason="every range is full")

    def add(self, key: int) -> bool:
        """Take ``key`` as in use; False if it was already. Raises HashKeyError if in no range."""
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

        Raises HashKeyError as the constructor; then nothing has changed.
        """
        # HKA-4: "A reshard MUST NOT move a key in use; it changes only how they are counted."
        wanted = list(ranges)
        kept = {part.space: part for part in self._parts if part.space in set(wanted)}
        moved = [key for part in self._parts if part.space not in kept for key in part]
        self._set(wanted, moved, kept)
