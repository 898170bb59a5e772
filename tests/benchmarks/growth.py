"""How the time grows: `python -m tests.benchmarks.growth` (about two minutes).

Nanoseconds of CPU time a user record, the best of some passes in one process. Linear means that a row of the
table stays level, or falls. For threads milliseconds of wall time, in turns: the best and (the median).
"""

from __future__ import annotations

import random
import sys
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

import pyarrow as pa

import kpl_codec as kpl
from kpl_codec.arrow import Deaggregator, deaggregate_table
from kpl_codec.format.hash_keys import partition_key_hash

from .corpora import user_records

KIB = 1024
FRAMES = (1, 10, 100, 1024, 10 * 1024)  # KiB
RECORDS = (1, 10, 100, 1000, 10_000)
SHARDS = (1, 10, 100, 1000, 10_000)
THREADS = (1, 2, 3, 4)
TURNS = 60


def made(frame_kib: int, frames: int) -> tuple[list[bytes], int]:
    """Aggregates of about so many KiB, of user records of about 100 bytes, and how many these are."""
    rng = random.Random(f"{frame_kib} {frames}")
    keys = [f"device-{number:05d}" for number in range(512)]
    source = user_records(rng, 70, 130, keys)
    per = max(1, frame_kib * KIB // 108)
    return [kpl.encode([next(source) for _ in range(per)]) for _ in range(frames)], per * frames


def repeated(data: list[bytes], frames: int) -> list[bytes]:
    return [data[number % len(data)] for number in range(frames)]


def batch(data: list[bytes], shards: int = 1) -> pa.RecordBatch:
    """Kinesis records, one after the other from each shard."""
    count = range(len(data))
    return pa.RecordBatch.from_pydict(
        {
            "shardId": [f"shardId-{number % shards:012d}" for number in count],
            "sequenceNumber": [str(10**55 + number) for number in count],
            "partitionKey": ["outer"] * len(data),
            "data": pa.array(data, pa.binary()),
        }
    )


def shard_map(shards: int) -> kpl.ShardMap:
    ranges = kpl.ALL_HASH_KEYS.split(shards)
    return kpl.ShardMap(kpl.Shard(f"shardId-{i:012d}", held) for i, held in enumerate(ranges))


def placed(known: kpl.ShardMap) -> tuple[pa.RecordBatch, kpl.ShardMap]:
    """1,000 Kinesis records of 48 user records with one key, on the shard of that key."""
    keys = [f"device-{number}" for number in range(1000)]
    data = [kpl.encode([kpl.UserRecord(key, bytes(100))] * 48) for key in keys]
    shards = [known.shard_for(partition_key_hash(key)).shard_id for key in keys]
    source = batch(data)
    at = source.schema.get_field_index("shardId")
    return source.set_column(at, "shardId", pa.array(shards)), known


def columns(source: pa.RecordBatch, known: kpl.ShardMap | None = None) -> Callable[[], Any]:
    deaggregator = Deaggregator(source.schema, shard_map=known)
    return lambda: deque(deaggregator.process(source), maxlen=0)


def objects(source: pa.RecordBatch, known: kpl.ShardMap | None = None) -> Callable[[], Any]:
    names = ("partitionKey", "data", "sequenceNumber", "shardId")
    records = [kpl.KinesisRecord(*row) for row in zip(*(source[n].to_pylist() for n in names), strict=True)]
    return lambda: deque(kpl.deaggregate(records, shard_map=known), maxlen=0)


def best(run: Callable[[], Any], user_records: int) -> float:
    """Nanoseconds a user record."""
    run()
    times = []
    until = time.perf_counter() + 0.5
    while len(times) < 3 or time.perf_counter() < until:
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times) / user_records * 1e9


def in_turns(runs: list[Callable[[], Any]]) -> list[str]:
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(TURNS):
        for run, taken in zip(runs, times, strict=True):
            start = time.perf_counter()
            made = run()
            taken.append((time.perf_counter() - start) * 1000)
            del made  # not a part of it
    return [f"{min(taken):.1f} ({median(taken):.1f})" for taken in times]


def row(name: str, cells: list[float] | list[str]) -> None:
    texts = [cell if isinstance(cell, str) else f"{cell:.0f}" for cell in cells]
    print(f"| {name} | " + " | ".join(texts) + " |", flush=True)


def head(name: str, points: tuple[int, ...]) -> None:
    print(
        f"\n| {name} | " + " | ".join(f"{point:,}" for point in points) + " |\n|---|" + "---|" * len(points)
    )


def main() -> None:
    kinds = {"columns": columns, "objects": objects}
    head("KiB a frame", FRAMES)
    for name, kind in kinds.items():
        cells = []
        for kib in FRAMES:
            data, count = made(kib, 4)
            times = max(8, 2 * KIB // kib)  # 8 MiB at least, and a frame for each of 32 lanes
            cells.append(best(kind(batch(repeated(data, len(data) * times))), count * times))
        row(name, cells)
    data, count = made(50, 64)
    each = count // len(data)
    head("Kinesis records of 50 KiB in a batch", RECORDS[:-1])
    for name, kind in kinds.items():
        row(name, [best(kind(batch(repeated(data, n))), n * each) for n in RECORDS[:-1]])
    small, count = made(1, 1000)
    head("Kinesis records of 1 KiB in a batch", RECORDS)
    for name, kind in kinds.items():
        row(name, [best(kind(batch(repeated(small, n))), n * count // len(small)) for n in RECORDS])
    head("shards in the map, 1,000 Kinesis records of 5 KiB, each on its shard", SHARDS)
    for name, kind in kinds.items():
        cells = []
        for shards in SHARDS:
            known = shard_map(shards)
            cells.append(best(kind(*placed(known)), 48_000))
        row(name, cells)
    data, _ = made(50, 1000)
    head("threads, 50 MiB, ms of wall time", THREADS)
    table = pa.Table.from_batches([batch(data)])
    for name, names in (("all columns", None), ("partitionKey and data", ["partitionKey", "data"])):
        runs = [lambda n=n: deaggregate_table(table, threads=n, columns=names) for n in THREADS]  # noqa: B023
        row(name, in_turns(runs))


if __name__ == "__main__":
    sys.exit(main())
