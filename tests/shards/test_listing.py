"""Superseded shards: the quick way is the plain one, and no listing takes long."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.format.hash_keys import ALL_HASH_KEYS, HashKeyRange
from kpl_codec.shards.listing import superseded_shards
from kpl_codec.shards.live_shard_map import LiveShardMap
from kpl_codec.shards.shard import Shard

from .model import ModelStream, replace


def plainly(listed: list[Shard]) -> frozenset[str]:
    """Of every open shard, all descendants; do the open ones cover it, key by key of all boundaries?"""
    found = set()
    for shard in listed:
        heirs: set[str] = set()
        while (
            more := {s.shard_id for s in listed if {shard.shard_id, *heirs} & {*s.parent_shard_ids}} - heirs
        ):
            heirs |= more
        keys = [s.hash_key_range for s in listed if s.shard_id in heirs and s.open]
        first, last = shard.hash_key_range
        edges = {first, last, *(k for r in keys for k in (r[0] - 1, r[1] + 1) if first <= k <= last)}
        if shard.open and all(any(edge in r for r in keys) for edge in edges):
            found.add(shard.shard_id)
    return frozenset(found)


@pytest.mark.requirement("MAP-12")
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=12), st.data())
def test_the_quick_way_is_the_plain_one(history: list[tuple[bool, int]], data: st.DataObject) -> None:
    stream = ModelStream(2, now=0)
    for merge, which in history:
        open_shards = stream.open_shards()
        if merge and len(open_shards) > 1:
            stream.merge(which % (len(open_shards) - 1))
        else:
            stream.split(which % len(open_shards))
    listed = [shard for shard in stream.shards if data.draw(st.integers(0, 9)) > 0]
    opened = [
        replace(shard, ending_sequence_number=None) if data.draw(st.booleans()) else shard for shard in listed
    ]
    shuffled = data.draw(st.permutations(opened))
    assert superseded_shards(shuffled) == plainly(opened)


def splits(count: int) -> list[Shard]:
    """A stream after so many splits of its oldest open shard."""
    shards = [Shard("shardId-000000000000", ALL_HASH_KEYS, None, None, "1")]
    for oldest in range(count):
        shard = shards[oldest]
        shards[oldest] = shard._replace(ending_sequence_number="9")
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
        return [[shard._replace(ending_sequence_number=None) for shard in splits(count)]]

    seconds_of(listings(200))
    short, long = (min(seconds_of(listings(count)) for _ in range(3)) for count in (400, 3200))
    assert long < 32 * short  # eight times the shards; quadratic would be 64
