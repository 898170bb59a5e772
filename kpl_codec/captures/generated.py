"""Generates any number of captured Kinesis records, always the same for the same recipe.

    generation = Generation(Recipe(16_000_000, shards=8), "capture/")
    LocalEngine().run_all(generation, generation.tasks)

The contents of a record depend only on the seed and its number, so tests and benchmarks on all machines see
the same bytes. An aggregate holds user records of one shard, as the KPL's do; ``mixed_every`` and
``broken_every`` add known faults.
"""

from __future__ import annotations

import random
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from ..format.codec import encode
from ..format.hash_keys import ALL_HASH_KEYS, partition_key_hash
from ..format.records import UserRecord
from ..format.size import field_size
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
    """What to generate: exactly ``user_records``. ``data_size`` is in bytes.

    ``mixed_every`` N: every Nth Kinesis record has user records of two shards; ``broken_every`` N: every Nth
    has a wrong digest; 0: none. Raises ValueError for what cannot be made.
    """

    user_records: int
    _: KW_ONLY
    shards: int = 4
    per_aggregate: int = 500
    data_size: int = 100
    seed: int = 0
    mixed_every: int = 0
    broken_every: int = 0
    stream_name: str = "generated"

    def __post_init__(self) -> None:
        if min(self.user_records, self.shards, self.per_aggregate) < 1:
            raise ValueError("user_records, shards and per_aggregate must be at least 1")
        if min(self.data_size, self.mixed_every, self.broken_every) < 0:
            raise ValueError("data_size, mixed_every and broken_every must be at least 0")
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
        """Even shards, all open."""
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


def kinesis_record(recipe: Recipe, keys: list[list[str]], number: int) -> tuple[str, bytes]:
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


def kinesis_batch(recipe: Recipe, numbers: range) -> pa.RecordBatch:
    """The Kinesis records with these numbers, in the columns SCHEMA that the Kinesis connectors give."""
    keys = _keys(recipe)
    made = [kinesis_record(recipe, keys, number) for number in numbers]
    columns = [
        [recipe.stream_name] * len(made),
        [f"shardId-{number % recipe.shards:012d}" for number in numbers],
        [_sequence_number(number) for number in numbers],
        [key for key, _ in made],
        [data for _, data in made],
        [_BEGIN + timedelta(milliseconds=10 * number) for number in numbers],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


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
        """How many files there will be."""
        return -(-self.recipe.kinesis_records // self._records_per_file)

    def run(self, number: int) -> int:
        """Writes a file; gives the number of its Kinesis records."""
        start = number * self._records_per_file
        stop = min(start + self._records_per_file, self.recipe.kinesis_records)
        batch = kinesis_batch(self.recipe, range(start, stop))
        with (self.folder / f"part-{number:05d}.parquet").whole_file() as out:
            pq.write_table(pa.Table.from_batches([batch]), out)
        return stop - start
