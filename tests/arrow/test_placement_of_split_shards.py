"""Where a shard's range is that of several open shards, each of its keys has an expected shard of its own."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import kpl_codec as kpl
from kpl_codec.arrow import deaggregate_table

HALVES, QUARTERS = kpl.ALL_HASH_KEYS.split(2), kpl.ALL_HASH_KEYS.split(4)
#: Two shards, of which the first was split; a parent of all.
MAP = kpl.ShardMap(
    [
        kpl.Shard("root", kpl.ALL_HASH_KEYS, ending_sequence_number="9"),
        kpl.Shard("left", HALVES[0], parent_shard_id="root", ending_sequence_number="9"),
        kpl.Shard("right", HALVES[1], parent_shard_id="root"),
        kpl.Shard("first", QUARTERS[0], parent_shard_id="left"),
        kpl.Shard("second", QUARTERS[1], parent_shard_id="left"),
    ]
)


@pytest.mark.parametrize("explicit", [False, True], ids=["partition keys", "explicit hash keys"])
def test_columns_have_the_expected_shard_of_each_key(explicit: bool) -> None:
    rng, records = random.Random(1), []
    for number in range(60):
        hash_keys = [str(rng.getrandbits(128)) if explicit else None for _ in range(9)]
        users = [kpl.UserRecord(f"{number} {i}", b"x", key) for i, key in enumerate(hash_keys)]
        data = kpl.encode(users) if number % 3 else b"plain"
        records.append(kpl.KinesisRecord(f"k{number}", data, str(number), rng.choice([*MAP, "unknown"])))
    table = pa.table(
        {
            "partitionKey": [record.partition_key for record in records],
            "data": [record.data for record in records],
            "sequenceNumber": [record.sequence_number for record in records],
            "shardId": [record.shard_id for record in records],
        }
    )
    users = deaggregate_table(table, "report", shard_map=MAP, threads=1).table
    keys = [int.from_bytes(key, "big") for key in users["hashKey"].to_pylist()]
    expected = [MAP.shard_for(key).shard_id for key in keys]
    assert users["expectedShardId"].to_pylist() == expected
    objects = [record.placement for record in kpl.deaggregate(records, "report", shard_map=MAP)]
    assert [placement.expected_shard_id for placement in objects] == expected
    assert [placement.verdict for placement in objects] == users["placement"].to_pylist()
    assert {"stray", "on-parent", "expected"} <= set(users["placement"].to_pylist())
