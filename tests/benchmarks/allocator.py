"""What a hash key costs: ``python tests/benchmarks/allocator.py [keys]`` (a million by default).

Everything is measured side by side in this run. The claim to check: the time per key grows like the
number of halvings (log2 of the number of keys), and from 100,000 keys on by what an insertion into a sorted
list moves: 0.1 ms at a million. The tree of the article, which counts its subtrees anew for every key, is
measured beside it as far as it is bearable.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable

from kpl_codec.format.hash_keys import ALL_HASH_KEYS, MAX_HASH_KEY
from kpl_codec.shards.allocation import HashKeyAllocator, ShardKeyAllocator


def seconds_per_key(begin: Callable[[], HashKeyAllocator | ShardKeyAllocator], keys: int) -> float:
    allocator = begin()
    started = time.perf_counter()
    for _ in range(keys):
        allocator.next_key()
    return (time.perf_counter() - started) / keys


def plain_tree(existing: Iterable[int], keys: int) -> float:
    """The article's rule with nothing kept: the keys of every half on the way are counted."""
    held = set(existing)
    started = time.perf_counter()
    for _ in range(keys):
        low, high, inside = 0, MAX_HASH_KEY + 1, list(held)
        while (middle := low + (high - low) // 2) in held:
            below = [key for key in inside if key < middle]
            above = [key for key in inside if key > middle]
            low, high, inside = (low, middle, below) if len(below) <= len(above) else (middle, high, above)
        held.add(middle)
    return (time.perf_counter() - started) / keys


def main(most: int) -> None:
    rng = random.Random(1)
    print("microseconds a key")
    print(f"{'keys':>10} {'from nothing':>14} {'1000 shards':>14} {'after as many random keys':>26}")
    sizes = [size for size in (1_000, 10_000, 100_000, 1_000_000) if size <= most]
    rows = []
    for size in sizes:
        random_keys = [rng.getrandbits(128) for _ in range(size)]
        row = (
            seconds_per_key(HashKeyAllocator, size),
            seconds_per_key(lambda: ShardKeyAllocator(ALL_HASH_KEYS.split(1000)), size),
            seconds_per_key(lambda keys=random_keys: HashKeyAllocator(keys=keys), size),  # type: ignore[misc]
        )
        rows.append(row)
        print(f"{size:>10,} {row[0] * 1e6:>14.1f} {row[1] * 1e6:>14.1f} {row[2] * 1e6:>26.1f}")
    growth = rows[-1][0] / rows[0][0]
    print(f"{sizes[-1] // sizes[0]:,} times as many keys cost {growth:.1f} times as much each")
    plain, ours = plain_tree((), 1000), rows[0][0]
    print(f"counting anew at 1,000 keys: {plain * 1e6:.0f} µs a key, {plain / ours:.0f} times as much")


if __name__ == "__main__":
    main(int(sys.argv[1].replace(",", "").replace("_", "")) if len(sys.argv) > 1 else 1_000_000)
