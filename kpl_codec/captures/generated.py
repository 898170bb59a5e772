"""Generates any number of captured Kinesis records, always the same for the same recipe.

The contents of a record depend only on the seed and its number. An aggregate holds user records of one shard,
as the KPL's do; ``mixed_every`` and ``broken_every`` add known faults.
"""

from __future__ import annotations

import random
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache

import pyarrow as pa

from ..format.codec import encode
from ..format.hash_keys import ALL_HASH_KEYS, partition_key_hash
from ..format.message import field_size
from ..format.records import UserRecord
from ..limits import FRAME_OVERHEAD, LARGEST_MAX_RECORD_SIZE
from ..shards.shard import Shard
from ..shards.shard_map import ShardMap
from .location import Location

_BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
#: Bytes of data of a file, about.
_FILE_BYTES = 32 * 1024 * 1024
_KEYS_PER_SHARD = 64
#: Bytes of a partition key in the table of keys, at most.
_KEY_BYTES = 32
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("streamName", "shardId", "sequenceNumber", "partitionKey")),
        ("data", pa.binary()),
        ("approximateArrivalTimestamp", pa.timestamp("us", "UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to generate: exactly ``user_records``. ``data_size`` is in bytes. Of every so many Kinesis records
    one has user records of two shards (``mixed_every``) or a wrong digest (``broken_every``). Raises
    ValueError for what cannot be made."""

    user_records: int
    _: KW_ONLY
    shards: int = 4
    per_aggregate: int = 500
    data_size: int = 100
    seed: int = 0
    mixed_every: int = 0
    broken_every: int = 0

    def __post_init__(self) -> None:
        if self.mixed_every and self.shards < 2:
            raise ValueError("mixed aggregates need two shards")
        # A user record is its data and the index of its key; the table of 65 keys and the frame come once.
        room = LARGEST_MAX_RECORD_SIZE - FRAME_OVERHEAD - 65 * _KEY_BYTES
        most = room // field_size(2 + field_size(self.data_size))
        if min(self.per_aggregate, self.user_records) > most:
            raise ValueError(
                f"a Kinesis record holds at most {most:,} user records of {self.data_size:,} bytes: "
                "per_aggregate or data_size is too large"
            )

    @property
    def kinesis_records(self) -> int:
        return -(-self.user_records // self.per_aggregate)

    def shard_map(self) -> ShardMap:
        ranges = ALL_HASH_KEYS.split(self.shards)
        return ShardMap(
            Shard(f"shardId-{number:012d}", held, starting_sequence_number=_sequence_number(0))
            for number, held in enumerate(ranges)
        )


def _sequence_number(number: int) -> str:
    return str(10**55 + number)


@lru_cache(maxsize=1)
def _keys(recipe: Recipe) -> list[list[str]]:
    """Partition keys of each shard, in the order of the shards."""
    shard_map = recipe.shard_map()
    keys: dict[str, list[str]] = {shard_id: [] for shard_id in shard_map}
    missing, number = recipe.shards, 0
    while missing:
        key = f"customer-{number}"
        held = keys[shard_map.shard_for(partition_key_hash(key)).shard_id]
        if len(held) < _KEYS_PER_SHARD:
            held.append(key)
            missing -= len(held) == _KEYS_PER_SHARD
        number += 1
    return list(keys.values())


@dataclass(frozen=True)
class Generation:
    """A recipe and a folder that exists; each task writes one Parquet file."""

    recipe: Recipe
    folder: Location

    @property
    def _records_per_file(self) -> int:
        return max(1, _FILE_BYTES // (self.recipe.per_aggregate * (self.recipe.data_size + 10)))

    @property
    def tasks(self) -> int:
        return -(-self.recipe.kinesis_records // self._records_per_file)

    def run(self, number: int) -> None:
        """Writes a file, in the columns SCHEMA that the Kinesis connectors give."""
        recipe, start = self.recipe, number * self._records_per_file
        keys = _keys(recipe)
        rows = []
        for record in range(start, min(start + self._records_per_file, recipe.kinesis_records)):
            shard_id = f"shardId-{record % recipe.shards:012d}"
            arrival = _BEGIN + timedelta(milliseconds=10 * record)
            made = _kinesis_record(recipe, keys, record)
            rows.append(("generated", shard_id, _sequence_number(record), *made, arrival))
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        (self.folder / f"part-{number:05d}.parquet").write_table(pa.table(arrays, schema=SCHEMA))


def _kinesis_record(recipe: Recipe, keys: list[list[str]], number: int) -> tuple[str, bytes]:
    """The outer partition key and the data of the Kinesis record with that number."""
    chance = random.Random(f"{recipe.seed}/{number}")
    count = min(recipe.per_aggregate, recipe.user_records - number * recipe.per_aggregate)
    own = keys[number % recipe.shards]
    noise = chance.randbytes(recipe.data_size + 256)
    records = []
    for index in range(count):
        at = (number + index) & 0xFF
        records.append(UserRecord(own[chance.randrange(_KEYS_PER_SHARD)], noise[at : at + recipe.data_size]))
    if recipe.mixed_every and number % recipe.mixed_every == recipe.mixed_every - 1:
        records[-1] = records[-1]._replace(partition_key=keys[(number + 1) % recipe.shards][0])
    data = encode(records)
    if recipe.broken_every and number % recipe.broken_every == recipe.broken_every - 1:
        data = data[:-1] + bytes([data[-1] ^ 1])
    return records[0].partition_key, data
