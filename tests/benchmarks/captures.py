"""Captures of any size. A record depends only on the recipe and on the record's number. An aggregate has user
records of one shard, like the KPL's.
"""

from __future__ import annotations

import random
import sys
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from kpl_codec import ALL_HASH_KEYS, Shard, ShardMap, UserRecord, encode, partition_key_hash
from kpl_codec.captures import Location

_BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
#: About how many bytes of data a file has.
_FILE_BYTES = 32 * 1024 * 1024
_KEYS_PER_SHARD = 64


class Recipe(NamedTuple):
    """What to generate. ``user_records``: exactly so many. ``data_size``: in bytes."""

    user_records: int = 1_000_000
    shard_count: int = 4
    per_aggregate: int = 500
    data_size: int = 100

    @property
    def kinesis_records(self) -> int:
        return -(-self.user_records // self.per_aggregate)

    def shard_map(self) -> ShardMap:
        ranges = ALL_HASH_KEYS.split(self.shard_count)
        return ShardMap(
            Shard(f"shardId-{number:012d}", hash_keys, starting_sequence_number=_sequence_number(0))
            for number, hash_keys in enumerate(ranges)
        )


def write_generated(recipe: Recipe, output: Location) -> None:
    """Write ``capture/`` and its ``shards.json`` to a new folder."""
    write_capture(recipe, (output / "capture").make_folder())
    (output / "shards.json").write(recipe.shard_map().to_json().encode())


def _sequence_number(number: int) -> str:
    return str(10**55 + number)


@lru_cache(maxsize=1)
def _keys(recipe: Recipe) -> list[list[str]]:
    shard_map = recipe.shard_map()
    keys: dict[str, list[str]] = {shard_id: [] for shard_id in shard_map}
    missing, number = recipe.shard_count, 0
    while missing:
        key = f"customer-{number}"
        of_shard = keys[shard_map.shard_for(partition_key_hash(key)).shard_id]
        if len(of_shard) < _KEYS_PER_SHARD:
            of_shard.append(key)
            missing -= len(of_shard) == _KEYS_PER_SHARD
        number += 1
    return list(keys.values())


def write_capture(recipe: Recipe, folder: Location) -> None:
    """Write Parquet files, with the columns of the Kinesis connectors of Spark, to an existing folder."""
    per_file = max(1, _FILE_BYTES // (recipe.per_aggregate * (recipe.data_size + 10)))
    for number, start in enumerate(range(0, recipe.kinesis_records, per_file)):
        records = range(start, min(start + per_file, recipe.kinesis_records))
        keys, data = zip(*(_kinesis_record(recipe, record) for record in records), strict=True)
        table = {
            "streamName": pa.repeat("generated", len(records)),
            "shardId": [f"shardId-{record % recipe.shard_count:012d}" for record in records],
            "sequenceNumber": [_sequence_number(record) for record in records],
            "partitionKey": keys,
            "data": data,
            "approximateArrivalTimestamp": [
                _BEGIN + timedelta(milliseconds=10 * record) for record in records
            ],
        }
        (folder / f"part-{number:05d}.parquet").write_table(pa.table(table))


def _kinesis_record(recipe: Recipe, number: int) -> tuple[str, bytes]:
    """The outer partition key and the data of the Kinesis record with that number."""
    keys = _keys(recipe)
    chance = random.Random(number)
    count = min(recipe.per_aggregate, recipe.user_records - number * recipe.per_aggregate)
    own = keys[number % recipe.shard_count]
    # Nothing begins like a frame of the Schema Registry, which would be a finding.
    noise = chance.randbytes(recipe.data_size + 256).replace(b"\x03", b"\x04")
    records = []
    for index in range(count):
        at = (number + index) & 0xFF
        records.append(UserRecord(own[chance.randrange(_KEYS_PER_SHARD)], noise[at : at + recipe.data_size]))
    return records[0].partition_key, encode(records)


if __name__ == "__main__":
    write_generated(Recipe(), Location(sys.argv[1]).make_folder())
