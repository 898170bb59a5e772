"""What `deaggregate` and `verify` cost on Spark, beside what no function of Python can be quicker than.

    python -m tests.benchmarks --parts spark

ready: a `mapInArrow` function that reads its input and yields batches which were made before, those of
deaggregate or of verify: what Spark takes to hand records to Python and to take user records back. Whole jobs
on two cores, into a sink that keeps nothing, in turns: the table has the medians of each round's ratios, and
below it median seconds.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import kpl_codec as kpl
from kpl_codec.arrow import DEFAULT_BATCH_BYTES, coalesce
from kpl_codec.spark import deaggregate, local_session, verify
from kpl_codec.spark.functions import deaggregate_in_task

from .corpora import SHARD, Corpus, corpus

#: Tasks of a job; each reads one file.
_FILES = 4
MAP = kpl.ShardMap([kpl.Shard(SHARD, kpl.ALL_HASH_KEYS)])


def write(one: Corpus, folder: Path) -> None:
    """A Parquet file for each task: the corpus, over and over, dealt out."""
    records = one.kinesis_records()
    for number in range(_FILES):
        part = records[number::_FILES]
        table = pa.table(
            {
                "partitionKey": [record.partition_key for record in part],
                "data": [record.data for record in part],
                "shardId": [record.shard_id for record in part],
                "sequenceNumber": [record.sequence_number for record in part],
            }
        )
        pq.write_table(table, folder / f"{number}.parquet", compression="none", row_group_size=2000)


def make_ready(folder: Path, name: str, policy: Any, shard_map: kpl.ShardMap | None) -> None:
    """What a task on each file yields, as Arrow's file format: it is mapped into memory, not read."""
    for number in range(_FILES):
        batches = pq.read_table(folder / f"{number}.parquet").to_batches(max_chunksize=2000)
        rows = coalesce(deaggregate_in_task(iter(batches), policy, shard_map=shard_map), DEFAULT_BATCH_BYTES)
        first = next(rows)
        with pa.OSFile(f"{folder}.{name}.{number}", "wb") as sink, pa.ipc.new_file(sink, first.schema) as out:
            out.write_batch(first)
            for batch in rows:
                out.write_batch(batch)


def ready(start: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Reads what deaggregate would read, and yields what it would yield."""
    first_keys = [batch.column("partitionKey")[0].as_py() for batch in batches]
    # A task's first record has its file's number: the corpus may begin again later.
    file = pa.ipc.open_file(pa.memory_map(f"{start}.{int(first_keys[0].removeprefix('pk-'))}"))
    for at in range(file.num_record_batches):
        yield file.get_batch(at)


def jobs(spark: Any, folder: Path) -> dict[str, Any]:
    """The DataFrames of one corpus, by name."""
    frame = spark.read.parquet(str(folder))
    make_ready(folder, "deaggregate", "strict", None)
    make_ready(folder, "verify", "report", MAP)
    made = {"deaggregate": deaggregate(frame), "verify": verify(frame, MAP)}
    for name in list(made):
        function = partial(ready, f"{folder}.{name}")
        made[f"ready for {name}"] = frame.mapInArrow(function, made[name].schema)
    return made


def measure(spark: Any, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of each job, round by round. Raises AssertionError unless all give as many rows."""
    made = jobs(spark, folder)
    counts = {name: rows.count() for name, rows in made.items()}
    assert len(set(counts.values())) == 1, counts
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for number in range(rounds + 1):
        for name, rows in made.items():
            begun = time.perf_counter()
            rows.write.format("noop").mode("append").save()
            if number:  # the first round warms up
                seconds[name].append(time.perf_counter() - begun)
    return seconds


def main(corpora: str, mib: float, rounds: int) -> dict[str, dict[str, float]]:
    """Median seconds by corpus and job."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        # A task for each file: no two in one task, none in two.
        settings = {"spark.sql.files.openCostInBytes": "1g", "spark.sql.files.maxPartitionBytes": "512m"}
        spark = local_session("benchmark", cores=2, settings=settings)
        spark.sparkContext.setLogLevel("ERROR")
        pairs = [("deaggregate", "ready for deaggregate"), ("verify", "ready for verify")]
        print("| corpus | " + " | ".join(" / ".join(pair) for pair in pairs) + " |")
        for name in corpora:
            folder = Path(scratch, name)
            folder.mkdir()
            write(corpus(name, mib), folder)
            seconds = measure(spark, folder, rounds)
            ratios = [median(a / b for a, b in zip(seconds[x], seconds[y], strict=True)) for x, y in pairs]
            print(f"| {name} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")
            found[name] = {job: round(median(times), 3) for job, times in seconds.items()}
            print(found[name], flush=True)
        spark.stop()
    return found
