"""The table by which a live shard map predicts: for each hash key its open shard, or none.

A row is a range of hash keys: its last key and its shard, None where no shard can be predicted. The upper
bits of a hash key give the few rows to search, with 10,000 shards two or three.
Specification: spec/08-live-shard-map.md, MAP-21; spec/04-shards-and-placement.md, SHD-8.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ..errors import HashKeyError
from ..limits import HASH_KEY_BITS, MAX_HASH_KEY
from .shard import Shard


class Routes:
    """Immutable. ``open_shards``: in the order of their hash key ranges, which do not overlap."""

    __slots__ = ("_ends", "_first", "_ids", "_rows", "_shift")

    def __init__(self, open_shards: Iterable[Shard]) -> None:
        ends: list[int] = []
        ids: list[str | None] = []
        expected = 0
        for shard in open_shards:
            start, end = shard.hash_key_range
            if start > expected:
                ends.append(start - 1)
                ids.append(None)
            ends.append(end)
            ids.append(shard.shard_id)
            expected = end + 1
        if expected <= MAX_HASH_KEY:
            ends.append(MAX_HASH_KEY)
            ids.append(None)
        self._shift = 128 - len(ends).bit_length()
        first = array("I")  # by the upper bits of a hash key: the first row that may have it
        for row, end in enumerate(ends):
            first.extend([row] * ((end >> self._shift) + 1 - len(first)))
        first.append(len(ends))
        self._ends, self._ids, self._first = ends, ids, first
        self._rows: Mapping[str, int] = {id: row for row, id in enumerate(ids) if id is not None}

    def predict(self, hash_key: int) -> str | None:
        """The id of the shard, None where none can be predicted. Raises HashKeyError outside the space."""
        if hash_key >> HASH_KEY_BITS:
            raise HashKeyError(reason="outside 0 to 2^128 - 1")
        first, upper = self._first, hash_key >> self._shift
        # SHD-8: "A hash key belongs to the open shard whose range holds it, both ends included."
        return self._ids[bisect_left(self._ends, hash_key, first[upper], first[upper + 1])]

    def without(self, shard_ids: Iterable[str]) -> Routes:
        """The same table, in which these shards are not predicted."""
        rows = [row for shard_id in shard_ids if (row := self._rows.get(shard_id)) is not None]
        if not rows:
            return self
        new = Routes.__new__(Routes)
        new._ends, new._first, new._shift, new._rows = self._ends, self._first, self._shift, self._rows
        new._ids = self._ids.copy()
        for row in rows:
            new._ids[row] = None
        return new

    @property
    def shard_ids(self) -> tuple[str, ...]:
        """The shards that are predicted, in the order of their hash key ranges."""
        return tuple(shard_id for shard_id in self._ids if shard_id is not None)

    def __contains__(self, shard_id: str) -> bool:
        row = self._rows.get(shard_id)
        return row is not None and self._ids[row] is not None


#: Predicts nothing.
NO_ROUTES: Final = Routes(())


def undisputed(open_shards: Sequence[Shard]) -> tuple[list[Shard], frozenset[str]]:
    """The shards that may be predicted although a listing has a gap or an overlap, and the ids of the others.
    ``open_shards``: in the order of their ranges."""
    # MAP-21: "Of a listing with a gap or an overlap only the open shards that overlap no other MUST be
    # predicted;"
    disputed: set[str] = set()
    furthest: Shard | None = None  # of the shards so far the one that ends last
    for shard in open_shards:
        if furthest is not None and shard.hash_key_range.overlaps(furthest.hash_key_range):
            disputed |= {shard.shard_id, furthest.shard_id}
        ends = shard.hash_key_range.ending_hash_key
        if furthest is None or ends > furthest.hash_key_range.ending_hash_key:
            furthest = shard
    return [shard for shard in open_shards if shard.shard_id not in disputed], frozenset(disputed)
