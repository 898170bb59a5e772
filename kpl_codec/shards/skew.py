"""Finds skew (shards with far more load than others), and allocates explicit hash keys that stay balanced,
however many there are and however shards split and merge. spec/08-live-shard-map.md, 8.4, has the picture.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from ..errors import HashKeyError
from ..format.hash_keys import HashKeyRange

#: An overloaded shard has more than so many times the mean load; and the fewest user records a shard that are
#: needed to say so.
_OVERLOADED, _ENOUGH = 2.0, 100


def overloaded_shards(loads: Mapping[str, float], user_records: int) -> Iterator[tuple[str, float]]:
    """The shards far above the mean of ``loads``, each with its load divided by that mean; none if the loads
    were measured on too few ``user_records``."""
    mean = sum(loads.values()) / len(loads) if loads else 0.0
    if user_records < _ENOUGH * len(loads):
        return
    for shard_id, load in loads.items():
        if load > _OVERLOADED * mean:
            yield shard_id, load / mean


def allocate(space: HashKeyRange, keys: list[int]) -> int:
    """Adds the key that balances best to ``keys``, the keys in use, ascending; returns it. Raises
    HashKeyError(code="exhausted")."""
    # HKA-1: "The space is halved at low + floor((high - low) / 2), and each half again; the middles of
    # the halves of one depth are a level, and a level is filled before the next."
    # HKA-2: "The next key is the middle of the space if that is free, else the next key of its
    # thinner half, the lower one if both hold as many keys."
    low, high = space.starting_hash_key, space.ending_hash_key + 1
    lowest = low  # a range begins with a key in use, unless it is the lowest of its shard
    first, last = 0, len(keys)  # the keys from `lowest` to before `high`
    while low < high:
        middle = low + (high - low) // 2
        at = bisect_left(keys, middle, first, last)
        in_use = at < last and keys[at] == middle
        if not in_use and middle >= lowest:
            keys.insert(at, middle)
            return middle
        below, above = at - first, last - at - in_use
        # HKA-7: "A half that is full MUST be passed over, and a full space MUST be an error: no
        # key is given out twice."
        below_is_full, above_is_full = below >= middle - lowest, above >= high - middle - 1
        if below_is_full and above_is_full:
            break
        if above_is_full or (below <= above and not below_is_full):
            high, last = middle, at
        else:
            low, lowest, first = middle, middle + 1, at + in_use
    raise HashKeyError(code="exhausted", reason=f"no free hash key among {space.size}")


def balanced_keys(ranges: Iterable[HashKeyRange], keys: Iterable[int] = ()) -> Iterator[int]:
    """Balanced hash keys over the ``ranges`` of open shards, without end. ``keys``: hash keys in use already,
    in any order. Raises HashKeyError for a key in no range, for ranges that overlap, and when all are
    full."""
    # HKA-4: "A reshard MUST NOT move a key in use; it changes only how they are counted."
    # HKA-5: "What is allocated MUST depend on the set of keys in use alone: not on their order, nor on
    # what was allocated before a restart."
    parts: list[tuple[HashKeyRange, list[int]]] = [(space, []) for space in sorted(ranges)]
    if any(one.overlaps(other) for (one, _), (other, _) in pairwise(parts)):
        raise HashKeyError(code="overlap", reason="two ranges share a hash key")
    endings = [space.ending_hash_key for space, _ in parts]
    for key in sorted(set(keys)):
        # HKA-8: "A hash key counts for the range that holds it, both ends included; one in no range MUST
        # be an error."
        index = bisect_left(endings, key)
        if index == len(parts) or key not in parts[index][0]:
            raise HashKeyError(code="outside", reason="a hash key is in no range")
        parts[index][1].append(key)
    while True:
        # HKA-3: "Over the shards of a stream the next key MUST go to the open shard with the fewest
        # keys, the lowest if several have as few, and within it as in a space of its own."
        free = [(space, used) for space, used in parts if len(used) < space.size]
        if not free:
            raise HashKeyError(code="exhausted", reason="every range is full")
        yield allocate(*min(free, key=lambda part: len(part[1])))
