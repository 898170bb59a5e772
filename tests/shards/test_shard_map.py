"""Shard maps: what is reported, and the forms of a listing."""

from __future__ import annotations

import json

import pytest

import kpl_codec as kpl

MAX = 2**128 - 1


def shard(number: int, start: int, end: int, *parents: int, closed: bool = False) -> kpl.Shard:
    ids = [f"shardId-{p:012d}" for p in parents]
    return kpl.Shard(
        f"shardId-{number:012d}",
        kpl.HashKeyRange(start, end),
        parent_shard_id=ids[0] if ids else None,
        adjacent_parent_shard_id=ids[1] if len(ids) > 1 else None,
        starting_sequence_number=str(100 * number),
        ending_sequence_number=str(100 * number + 50) if closed else None,
    )


HALF = 2**127
SPLIT = [shard(0, 0, MAX, closed=True), shard(1, 0, HALF - 1, 0), shard(2, HALF, MAX, 0)]
MERGED = [
    *SPLIT[:1],
    shard(1, 0, HALF - 1, 0, closed=True),
    shard(2, HALF, MAX, 0, closed=True),
    shard(3, 0, MAX, 1, 2),
]


@pytest.mark.requirement("SHD-4")
def test_a_shard_that_is_not_listed_is_unknown() -> None:
    shard_map = kpl.ShardMap(MERGED[1:])
    with pytest.raises(kpl.UnknownShard) as caught:
        shard_map["shardId-000000000000"]
    assert caught.value.fields == {"shard_id": "shardId-000000000000", "shard_ids": ("shardId-000000000000",)}
    assert caught.value.requirement == "SHD-4"
    assert shard_map not in (kpl.ShardMap(MERGED), "other")


@pytest.mark.requirement("SHD-7")
def test_pages() -> None:
    pages = [{"Shards": [s.to_aws()], "NextToken": "t"} for s in SPLIT]
    pages[-1].pop("NextToken")
    shard_map = kpl.ShardMap.from_list_shards(pages)
    assert shard_map == kpl.ShardMap(SPLIT)
    assert hash(shard_map) == hash(kpl.ShardMap(SPLIT))
    described = {"StreamDescription": {"Shards": [s.to_aws() for s in SPLIT], "HasMoreShards": False}}
    for text in (
        shard_map.to_json(),
        json.dumps(pages),
        "\n".join(map(json.dumps, pages)),
        json.dumps([s.to_aws() for s in SPLIT]),
        "\ufeff" + shard_map.to_json(),
        json.dumps(described),
    ):
        assert kpl.ShardMap.from_json(text) == kpl.ShardMap.from_json(text.encode()) == shard_map
        assert (
            kpl.ShardMap.from_json(text.encode(), distribution="AUTO")
            == kpl.ShardMap(SPLIT, distribution="AUTO")
            != shard_map
        )
