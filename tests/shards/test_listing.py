"""No listing takes long."""

from __future__ import annotations

import time

import pytest

from kpl_codec.format.hash_keys import ALL_HASH_KEYS, HashKeyRange
from kpl_codec.shards.live_shard_map import LiveShardMap
from kpl_codec.shards.shard import Shard


def splits(count: int) -> list[Shard]:
    """A stream after so many splits of its oldest open shard."""
    shards = [Shard("shardId-000000000000", ALL_HASH_KEYS, None, None, "1")]
    for oldest in range(count):
        shard = shards[oldest]
        shards[oldest] = shard.replace(ending_sequence_number="9")
        first, last = shard.hash_key_range
        middle = (first + last) // 2
        for half in (HashKeyRange(first, middle), HashKeyRange(middle + 1, last)):
            shards.append(Shard(f"shardId-{len(shards):012d}", half, shard.shard_id, None, "1"))
    return shards


def chain(count: int) -> list[Shard]:
    """Shards of one range, each the child of the one before, all listed as open."""
    return [
        Shard(f"shardId-{n:012d}", ALL_HASH_KEYS, f"shardId-{n - 1:012d}" if n else None, None, "1")
        for n in range(count)
    ]


def seconds_of(listings: list[list[Shard]]) -> float:
    """Processor time that a live map takes for these listings, one after the other."""
    live = LiveShardMap("s", describe=False, shard_filter="FROM_TRIM_HORIZON")
    pages = [{"Shards": [shard.to_aws() for shard in listing]} for listing in listings]
    started = time.process_time()
    for number, page in enumerate(pages):
        live.refresh(100.0 * number)
        request = live.next_request(100.0 * number)
        assert request is not None
        live.receive(request, page, 100.0 * number)
    return time.process_time() - started


@pytest.mark.parametrize("kind", ["older", "chain", "parents open"])
def test_listings_take_time_in_proportion_to_their_length(kind: str) -> None:
    def listings(count: int) -> list[list[Shard]]:
        if kind == "older":
            return [splits(count), splits(count // 2)]
        if kind == "chain":
            return [chain(count), chain(count)]
        return [[shard.replace(ending_sequence_number=None) for shard in splits(count)]]

    seconds_of(listings(200))
    short, long = (min(seconds_of(listings(count)) for _ in range(3)) for count in (400, 3200))
    assert long < 32 * short  # eight times the shards; quadratic would be 64
