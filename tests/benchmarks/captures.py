"""Captures of any size. A record depends only on its number. An aggregate has user records of one shard, like
the KPL's.

    python -m tests.benchmarks.captures FOLDER    a million user records
"""

from __future__ import annotations

import random
import sys
from datetime import datetime, timedelta, timezone

import pyarrow as pa

from kpl_codec import ALL_HASH_KEYS, Shard, ShardMap, UserRecord, encode, partition_key_hash
from kpl_codec.captures import Location

_BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
_PER_AGGREGATE, _PER_FILE = 500, 610
#: Bytes of a user record's data.
_DATA_SIZE = 100
_KEYS_PER_SHARD = 64
SHARD_MAP = ShardMap(
    Shard(f"shardId-{number:012d}", hash_keys, starting_sequence_number=str(10**55))
    for number, hash_keys in enumerate(ALL_HASH_KEYS.split(4))
)


def write_generated(user_records: int, output: Location) -> None:
    """Write to an existing folder ``capture/``, Parquet files with the columns of the Kinesis connectors of
    Spark, and its ``shards.json``."""
    (output / "shards.json").write(SHARD_MAP.to_json().encode())
    folder = (output / "capture").make_folder()
    keys_of_shards = list(_keys().values())
    count = -(-user_records // _PER_AGGREGATE)
    for number, start in enumerate(range(0, count, _PER_FILE)):
        records = range(start, min(start + _PER_FILE, count))
        keys, data = [], []
        for record in records:
            held = min(_PER_AGGREGATE, user_records - record * _PER_AGGREGATE)
            aggregate = _user_records(record, held, keys_of_shards[record % len(SHARD_MAP)])
            keys.append(aggregate[0].partition_key)
            data.append(encode(aggregate))
        table = {
            "streamName": pa.repeat("generated", len(records)),
            "shardId": [f"shardId-{record % len(SHARD_MAP):012d}" for record in records],
            "sequenceNumber": [str(10**55 + record) for record in records],
            "partitionKey": keys,
            "data": data,
            "approximateArrivalTimestamp": [_BEGIN + timedelta(seconds=record / 100) for record in records],
        }
        (folder / f"part-{number:05d}.parquet").write_table(pa.table(table))


def _keys() -> dict[str, list[str]]:
    """The first partition keys of each shard."""
    keys: dict[str, list[str]] = {shard_id: [] for shard_id in SHARD_MAP}
    number = 0
    while min(map(len, keys.values())) < _KEYS_PER_SHARD:
        key = f"customer-{number}"
        of_shard = keys[SHARD_MAP.shard_for(partition_key_hash(key)).shard_id]
        if len(of_shard) < _KEYS_PER_SHARD:
            of_shard.append(key)
        number += 1
    return keys


def _user_records(number: int, count: int, keys: list[str]) -> list[UserRecord]:
    """What the Kinesis record with that number holds."""
    chance = random.Random(number)
    # Nothing begins like a frame of the Schema Registry, which would be a finding.
    noise = chance.randbytes(_DATA_SIZE + 256).replace(b"\x03", b"\x04")
    records = []
    for index in range(count):
        at = (number + index) & 0xFF
        data = noise[at : at + _DATA_SIZE]
        records.append(UserRecord(keys[chance.randrange(_KEYS_PER_SHARD)], data))
    return records


if __name__ == "__main__":
    write_generated(1_000_000, Location(sys.argv[1]).make_folder())
