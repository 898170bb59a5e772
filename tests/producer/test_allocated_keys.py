"""Allocated hash keys on a real stream: even over its shards, before and after splits and merges."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from kpl_codec.aws import fetch_shard_map
from kpl_codec.shards.skew import balanced_keys

pytestmark = [pytest.mark.server, pytest.mark.timeout(60)]


@pytest.mark.requirement("HKA-3", "HKA-4")
def test_as_many_records_on_every_shard(kinesalite, stream_name):
    kinesalite.create_stream(stream_name, shards=3)
    client = kinesalite.client()

    def landed(keys) -> Counter[str]:
        """One record for every key in use: how many the server put on which shard."""
        entries = [{"Data": b"x", "PartitionKey": "p", "ExplicitHashKey": str(key)} for key in keys]
        answer = client.put_records(StreamName=stream_name, Records=entries)
        return Counter(record["ShardId"][-2:] for record in answer["Records"])

    def ranges():
        return [shard.hash_key_range for shard in fetch_shard_map(client, stream_name).open_shards]

    keys = list(islice(balanced_keys(ranges()), 90))
    assert landed(keys) == {"00": 30, "01": 30, "02": 30}

    whole = fetch_shard_map(client, stream_name)["shardId-000000000001"].hash_key_range
    client.split_shard(
        StreamName=stream_name,
        ShardToSplit="shardId-000000000001",
        NewStartingHashKey=str(whole.split(2)[1].starting_hash_key),
    )
    kinesalite.wait_active(stream_name)
    assert landed(keys) == {"00": 30, "03": 15, "04": 15, "02": 30}
    keys += islice(balanced_keys(ranges(), keys), 30)
    assert landed(keys) == {"00": 30, "03": 30, "04": 30, "02": 30}

    client.merge_shards(
        StreamName=stream_name,
        ShardToMerge="shardId-000000000000",
        AdjacentShardToMerge="shardId-000000000003",
    )
    kinesalite.wait_active(stream_name)
    # a restart meanwhile: the keys are all there is to keep
    keys.reverse()
    assert landed(keys) == {"05": 60, "04": 30, "02": 30}
    keys += islice(balanced_keys(ranges(), keys), 60)
    assert landed(keys) == {"05": 60, "04": 60, "02": 60}
