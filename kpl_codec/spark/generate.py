"""A stream's worth of captured Kinesis records, of any size, made on Spark and the same every time.

    df = generated(spark, user_records=16_000_000, shards=8)
    df.write.parquet("capture/")

What a record holds depends on the seed and its number only, not on how many tasks make it: tests and
benchmarks on other days and other machines see the same bytes. An aggregate holds user records of one shard,
as the KPL's do; ``mixed_every`` and ``broken_every`` put known faults among them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from ..format.codec import encode
from ..format.hash_keys import ALL_HASH_KEYS, partition_key_hash
from ..format.records import UserRecord
from ..shards.shard_map import Shard, ShardMap

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
#: Kinesis records made by one number of the range.
_CHUNK = 20
_KEYS_PER_SHARD = 64
_SCHEMA = (
    "streamName string, shardId string, sequenceNumber string, partitionKey string, data binary, "
    "approximateArrivalTimestamp timestamp"
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to make: exactly ``user_records``. ``data_size`` is in bytes.

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
        if min(self.user_records, self.shards, self.per_aggregate) < 1 or self.data_size < 0:
            raise ValueError("user_records, shards and per_aggregate must be at least 1")
        if self.mixed_every and self.shards < 2:
            raise ValueError("mixed aggregates need two shards")

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


def _keys(recipe: Recipe) -> list[list[str]]:
    """Partition keys of each shard, in the order of the shards."""
    shard_map = recipe.shard_map()
    keys: dict[str, list[str]] = {shard.shard_id: [] for shard in shard_map}
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


def generated(spark: SparkSession, recipe: Recipe, *, tasks: int | None = None) -> DataFrame:
    """The Kinesis records of ``recipe``: the columns that the Kinesis connectors give."""
    chunks = -(-recipe.kinesis_records // _CHUNK)
    return spark.range(0, chunks, 1, min(tasks or chunks, chunks, 1000)).mapInArrow(_task(recipe), _SCHEMA)


def _task(recipe: Recipe) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        keys = _keys(recipe)
        for batch in batches:
            for chunk in batch.column(0).to_pylist():
                numbers = range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, recipe.kinesis_records))
                made = [kinesis_record(recipe, keys, number) for number in numbers]
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.repeat(recipe.stream_name, len(made)),
                        pa.array([f"shardId-{number % recipe.shards:012d}" for number in numbers]),
                        pa.array([_sequence_number(number) for number in numbers]),
                        pa.array([key for key, _ in made]),
                        pa.array([data for _, data in made], pa.binary()),
                        pa.array(
                            [_BEGIN + timedelta(milliseconds=10 * number) for number in numbers],
                            pa.timestamp("us", "UTC"),
                        ),
                    ],
                    names=[
                        "streamName",
                        "shardId",
                        "sequenceNumber",
                        "partitionKey",
                        "data",
                        "approximateArrivalTimestamp",
                    ],
                )

    return run
