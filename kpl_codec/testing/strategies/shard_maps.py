"""Hypothesis strategies for shard maps, and for the splits and merges of a stream."""

from __future__ import annotations

from hypothesis import strategies as st

from ...base.values import Value
from ...format.hash_keys import ALL_HASH_KEYS, HashKeyRange
from ...format.limits import MAX_HASH_KEY
from ...shards.shard import Distribution, Shard
from ...shards.shard_map import ShardMap
from .aggregates import hash_keys


def _shard_id(number: int) -> str:
    return f"shardId-{number:012d}"


def _sequence_number(created: int, written: int, index: int, shard: int) -> str:
    """The 56 digits of version 2: creation and write time in seconds, a counter, the shard's number."""
    parts = f"2{created:09x}{shard & 15:x}{index:016x}{0:02x}{written:09x}{shard:08x}2"
    return str(int(parts, 16))


def _tiles(draw: st.DrawFn, max_shards: int) -> list[HashKeyRange]:
    if draw(st.booleans()):  # as CreateStream cuts
        return ALL_HASH_KEYS.split(draw(st.integers(1, max_shards)))
    starts = sorted({0, *draw(st.lists(hash_keys(), max_size=max_shards - 1))})
    ends = [start - 1 for start in starts[1:]] + [MAX_HASH_KEY]
    return [HashKeyRange(start, end) for start, end in zip(starts, ends, strict=True)]


class ReshardHistory(Value):
    """A stream through its splits and merges. ``maps[n]`` is its shard map after ``n`` of them, every
    closed shard listed; ``times[n]`` is when that was, in seconds since 1970."""

    maps: tuple[ShardMap, ...]
    times: tuple[int, ...]

    @property
    def now(self) -> ShardMap:
        """The last shard map."""
        return self.maps[-1]

    def sequence_number(self, shard_id: str, generation: int, *, index: int = 0) -> str:
        """A sequence number such as a record gets that is put on ``shard_id`` between two reshards."""
        number = int(shard_id.rpartition("-")[2])
        born = next(i for i, shard_map in enumerate(self.maps) if shard_id in shard_map)
        return _sequence_number(self.times[born], self.times[generation] + 1, index + 1, number)


@st.composite
def reshard_histories(draw: st.DrawFn, *, max_shards: int = 4, max_reshards: int = 4) -> ReshardHistory:
    """Histories of 0 to ``max_reshards`` splits and merges, from 1 to ``max_shards`` shards on."""
    time = draw(st.integers(1_500_000_000, 1_800_000_000))
    shards: dict[str, Shard] = {}
    times = [time]

    def open_new(keys: HashKeyRange, *parents: str) -> None:
        number = len(shards)
        parent, adjacent = (*parents, None, None)[:2]
        start = _sequence_number(time, time, 0, number)
        shards[_shard_id(number)] = Shard(
            _shard_id(number),
            keys,
            parent_shard_id=parent,
            adjacent_parent_shard_id=adjacent,
            starting_sequence_number=start,
        )

    def close(shard: Shard) -> None:
        number = int(shard.shard_id[-12:])
        born = next(t for t, m in zip(times, maps, strict=False) if shard.shard_id in m)
        end = _sequence_number(born, time, 2**63 - 1, number)
        shards[shard.shard_id] = shard.replace(ending_sequence_number=end)

    for keys in _tiles(draw, max_shards):
        open_new(keys)
    maps = [ShardMap(shards.values())]
    for _ in range(draw(st.integers(0, max_reshards))):
        time += draw(st.integers(60, 100_000))
        open_shards = maps[-1].open_shards
        at = draw(st.integers(0, len(open_shards) - 1))
        shard = open_shards[at]
        if draw(st.booleans()) and at + 1 < len(open_shards):
            other = open_shards[at + 1]
            close(shard)
            close(other)
            merged = HashKeyRange(
                shard.hash_key_range.starting_hash_key, other.hash_key_range.ending_hash_key
            )
            open_new(merged, shard.shard_id, other.shard_id)
        elif shard.hash_key_range.size > 1:
            start, end = shard.hash_key_range.starting_hash_key, shard.hash_key_range.ending_hash_key
            middle = (start + end) // 2 + 1
            cut = draw(st.just(middle) | st.integers(start + 1, end))
            close(shard)
            open_new(HashKeyRange(start, cut - 1), shard.shard_id)
            open_new(HashKeyRange(cut, end), shard.shard_id)
        else:
            continue  # a shard of one hash key cannot be split
        maps.append(ShardMap(shards.values()))
        times.append(time)
    return ReshardHistory(tuple(maps), tuple(times))


@st.composite
def shard_maps(
    draw: st.DrawFn, *, max_shards: int = 8, distribution: Distribution = "USER_PARTITION_KEY"
) -> ShardMap:
    """Shard maps as ListShards gives them today: tiles that are open, closed ancestors, some expired."""
    history = draw(reshard_histories(max_shards=max_shards, max_reshards=3))
    closed = [shard_id for shard_id, shard in history.now.items() if not shard.open]
    expired = draw(st.sets(st.sampled_from(closed))) if closed else set()
    shards = [shard for shard_id, shard in history.now.items() if shard_id not in expired]
    return ShardMap(shards, distribution=distribution)
