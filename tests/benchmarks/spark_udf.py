"""Our Spark functions against functions in Java that do the KCL's work, in whole jobs.

    python -m tests.benchmarks.spark_udf [--corpora abg] [--records 800000] [--rounds 15] [--shards 64]

* udf: `kcl` as a Java function of Spark SQL that gives an array of structs, and ``explode``;
* deaggregate: ours, the same four columns;
* verdict: the Java function, which also finds the expected shard (a TreeMap) and gives the verdict;
* verify: ours, the same seven columns; every: with all its columns;
* dropped: a function takes the frames and gives nothing;
* seven, all: a function hands out the rows of the two, made before. With dropped: Spark's own part.

The jobs alternate in one session of two cores; wall time, medians; the sink takes every row and keeps none.
All records lie on one shard that has the whole hash key space. With --shards it is closed, and has so many
children.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import kpl_codec as kpl

from . import kcl
from .corpora import SHARD, Corpus, corpus

FILES = 4
#: Rounds until Java has compiled both ways.
WARM_UP = 12
COLUMNS = ["partitionKey", "explicitHashKey", "subSequenceNumber", "data"]
VERDICT = [*COLUMNS, "expectedShardId", "placement", "kcl"]
#: The second is measured beside the first.
RATIOS = (("udf", "deaggregate"), ("verdict", "verify"), ("every", "verify"), ("all", "seven"))
_RESULT = "partitionKey: string, explicitHashKey: string, subSequenceNumber: bigint, data: binary"
_VERDICT = f"{_RESULT}, expectedShardId: string, placement: string, kcl: string"


def write(made: Corpus, folder: Path) -> None:
    """The Kinesis records of a corpus in so many files, with the columns of a connector."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    records = made.kinesis_records()
    size = -(-len(records) // FILES)
    for number in range(FILES):
        part = records[number * size : (number + 1) * size]
        table = pa.table(
            {
                "shardId": pa.array([record.shard_id for record in part], pa.string()),
                "sequenceNumber": pa.array([record.sequence_number for record in part], pa.string()),
                "partitionKey": pa.array([record.partition_key for record in part], pa.string()),
                "data": pa.array([record.data for record in part], pa.binary()),
            }
        )
        pq.write_table(table, folder / f"{number}.parquet", compression="none")


def shards(count: int) -> kpl.ShardMap:
    """One shard, or a closed one with ``count`` children."""
    if count == 1:
        return kpl.ShardMap([kpl.Shard(SHARD, kpl.ALL_HASH_KEYS)])
    children = [
        kpl.Shard(f"shardId-{1 + i:012d}", part, SHARD)
        for i, part in enumerate(kpl.ALL_HASH_KEYS.split(count))
    ]
    return kpl.ShardMap([kpl.Shard(SHARD, kpl.ALL_HASH_KEYS, ending_sequence_number="9" * 56), *children])


def dropped(batches: Iterator[Any]) -> Iterator[Any]:
    for _ in batches:
        yield from ()


def made_before(session: Any, job: Any, folder: Path) -> Callable[[], Any]:
    """A job whose function hands out the rows of ``job``: from memory-mapped files of Arrow."""
    import pyarrow as pa

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches)
        with pa.ipc.new_file(str(folder / uuid4().hex), first.schema) as out:
            for batch in chain([first], batches):
                out.write_batch(batch)
        yield from ()

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                with pa.ipc.open_file(pa.memory_map(str(folder / files[number]))) as file:
                    yield from map(file.get_batch, range(file.num_record_batches))

    folder.mkdir()
    job.mapInArrow(write, job.schema).count()
    files = sorted(path.name for path in folder.iterdir())
    return lambda: session.range(0, len(files), 1, len(files)).mapInArrow(read, job.schema)


def _counted(rows: Any) -> list[Any]:
    """How many rows have which verdict."""
    return sorted(rows.groupBy("expectedShardId", "placement", "kcl").count().collect())


def measure(jobs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each job."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(-WARM_UP, rounds):
        for name, job in jobs.items():
            start = time.perf_counter()
            job().write.format("noop").mode("overwrite").save()
            if turn >= 0:
                times[name].append(time.perf_counter() - start)
    return {name: median(seconds) for name, seconds in times.items()}


def main() -> None:
    from kpl_codec.spark import deaggregate, local_session, verify

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpora", default="abg")
    parser.add_argument("--records", type=int, default=800_000, help="user records of each corpus, about")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--shards", type=int, default=1, help="how many are open")
    parser.add_argument("--jobs", default="udf,deaggregate,verdict,verify,every,dropped,seven,all")
    options = parser.parse_args()
    shard_map = shards(options.shards)
    told = " ".join(f"{s.hash_key_range.ending_hash_key}={s.shard_id}" for s in shard_map.open_shards)
    with tempfile.TemporaryDirectory() as scratch:
        classes = Path(scratch, "classes")
        classes.mkdir()
        path = kcl.build(classes, spark=True)
        session = local_session("udf", cores=2, settings={"spark.driver.extraClassPath": path})
        session.udf.registerJavaFunction("kcl", "OpenerUdf", f"array<struct<{_RESULT}>>")
        session.udf.registerJavaFunction("verdict", "VerdictUdf", f"array<struct<{_VERDICT}>>")
        for name in options.corpora:
            sample = corpus(name, 1)
            made = corpus(name, options.records / sample.user_records)
            folder = Path(scratch, name)
            folder.mkdir()
            write(made, folder)
            frames = session.read.parquet(f"{folder}/*.parquet")
            verdict = f"explode(verdict(data, shardId, '{told}')) AS made"
            every: dict[str, Callable[[], Any]] = {
                "udf": lambda: frames.selectExpr("explode(kcl(data)) AS made").select("made.*"),  # noqa: B023
                "deaggregate": lambda: deaggregate(frames, columns=COLUMNS),  # noqa: B023
                "verdict": lambda: frames.selectExpr(verdict).select("made.*"),  # noqa: B023
                "verify": lambda: verify(frames, shard_map, columns=VERDICT),  # noqa: B023
                "every": lambda: verify(frames, shard_map),  # noqa: B023
                "dropped": lambda: frames.mapInArrow(dropped, frames.schema),  # noqa: B023
            }
            for part, whole in (("seven", "verify"), ("all", "every")):
                every[part] = made_before(session, every[whole](), folder / part)
            jobs = {job: every[job] for job in options.jobs.split(",")}
            counts = {job().count() for one, job in jobs.items() if one != "dropped"}
            if counts != {made.user_records}:
                raise SystemExit(f"corpus {name}: {counts} rows of {made.user_records}")
            if {"verdict", "verify"} <= jobs.keys():
                same = {tuple(map(str, _counted(jobs[job]()))) for job in ("verdict", "verify")}
                if len(same) > 1:
                    raise SystemExit(f"corpus {name}: the verdicts differ: {same}")
            seconds = measure(jobs, options.rounds)
            print(
                f"{name} {made.user_records:,}",
                *(f"{job} {took:.3f}" for job, took in seconds.items()),
                end="",
            )
            for one, other in RATIOS:
                if {one, other} <= jobs.keys():
                    print(f" {one}/{other} {seconds[one] / seconds[other]:.2f}", end="")
            print(flush=True)
        session.stop()


if __name__ == "__main__":
    main()
