"""Chapter 4, executable: find a shard by looking at every one, follow lineage by trying every path."""

from __future__ import annotations

from typing import NamedTuple


class Shard(NamedTuple):
    shard_id: str
    start: int
    end: int
    parents: tuple[str, ...] = ()
    open: bool = True


def problem(shards: list[Shard]) -> str | None:
    """What is wrong with a listing without duplicates: "empty", "cycle", "gap", "overlap", or None."""
    if not shards:
        return "empty"
    if any(descends(shards, shard.shard_id, shard.shard_id) for shard in shards):  # SHD-6
        return "cycle"
    # SHD-2. How many open shards hold a hash key changes only at a start or just after an end, so
    # these hash keys stand for all.
    open_shards = [shard for shard in shards if shard.open]
    corners = {0, *(s.start for s in open_shards), *(s.end + 1 for s in open_shards)}
    for hash_key in sorted(corner for corner in corners if corner < 2**128):
        holders = sum(shard.start <= hash_key <= shard.end for shard in open_shards)
        if holders != 1:
            return "gap" if holders == 0 else "overlap"
    return None


def shard_for(shards: list[Shard], hash_key: int) -> Shard:
    """SHD-8, by linear search in a sound listing."""
    (found,) = [shard for shard in shards if shard.open and shard.start <= hash_key <= shard.end]
    return found


def descends(
    shards: list[Shard], shard_id: str, ancestor_id: str, seen: frozenset[str] = frozenset()
) -> bool:
    """Whether ``ancestor_id`` is a parent of ``shard_id``, or of a parent, and so on."""
    for shard in shards:
        if shard.shard_id == shard_id and shard_id not in seen:
            for parent in shard.parents:
                if parent == ancestor_id or descends(shards, parent, ancestor_id, seen | {shard_id}):
                    return True
    return False


def verdict(
    shards: list[Shard], shard_id: str | None, hash_key: int | None, *, aggregated: bool, auto: bool = False
) -> str:
    """The table of section 4.2, row by row."""
    lies_on = next((shard for shard in shards if shard.shard_id == shard_id), None)
    if auto:
        return "distribution-auto"
    if lies_on is None or hash_key is None:
        return "unknown-shard"
    if not lies_on.start <= hash_key <= lies_on.end:
        return "stray" if aggregated else "explicit-hash-key-implied"
    expected = shard_for(shards, hash_key).shard_id
    if lies_on.shard_id == expected:
        return "expected"
    if descends(shards, lies_on.shard_id, expected):
        return "on-child"
    return "on-parent"


def opened_before(siblings: list[tuple[int | None, bool | None]], *, by_kcl: bool) -> str:
    """PLC-7: what the KCL has done with each user record that is here of an aggregated record that was opened
    before, by the sub-sequence number of each, and whether its hash key is in the range of their shard."""
    if by_kcl:
        return "delivered"
    if any(within is False for _, within in siblings):
        return "dropped"
    numbers = [sub for sub, _ in siblings]
    all_there = all(sub in numbers for sub in range(max((sub or 0 for sub in numbers), default=0)))
    known = all(sub is not None and within is not None for sub, within in siblings)
    return "delivered" if all_there and known else "unknown"
