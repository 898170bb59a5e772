"""Our Spark functions against a function in Java that does the KCL's work, in whole jobs.

    python -m tests.benchmarks.spark_udf [--corpora abg] [--records 800000] [--rounds 15] [--columns NAMES]

* udf: `kcl` as a Java function of Spark SQL that gives an array of structs, and ``explode``;
* deaggregate, verify: ours, the same four columns (--columns: others).

The jobs alternate in one session of two cores; wall time, medians; the sink takes every row and keeps none.
The Java function looks at the hash key of every user record, as `verify` does and `deaggregate` does not.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import kpl_codec as kpl

from . import kcl
from .corpora import SHARD, Corpus, corpus

FILES = 4
#: Rounds until Java has compiled both ways.
WARM_UP = 12
COLUMNS = "partitionKey,explicitHashKey,subSequenceNumber,data"
_RESULT = "struct<partitionKey: string, explicitHashKey: string, subSequenceNumber: bigint, data: binary>"


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
    parser.add_argument("--columns", default=COLUMNS)
    options = parser.parse_args()
    columns = options.columns.split(",")
    shard_map = kpl.ShardMap([kpl.Shard(SHARD, kpl.ALL_HASH_KEYS)])
    with tempfile.TemporaryDirectory() as scratch:
        classes = Path(scratch, "classes")
        classes.mkdir()
        path = kcl.build(classes, spark=True)
        session = local_session("udf", cores=2, settings={"spark.driver.extraClassPath": path})
        session.udf.registerJavaFunction("kcl", "OpenerUdf", f"array<{_RESULT}>")
        print("corpus  user records     udf  deaggregate  verify   udf / deaggregate, udf / verify")
        for name in options.corpora:
            sample = corpus(name, 1)
            made = corpus(name, options.records / sample.user_records)
            folder = Path(scratch, name)
            folder.mkdir()
            write(made, folder)
            frames = session.read.parquet(str(folder))
            jobs: dict[str, Callable[[], Any]] = {
                "udf": lambda: frames.selectExpr("explode(kcl(data)) AS made").select("made.*"),  # noqa: B023
                "deaggregate": lambda: deaggregate(frames, columns=columns),  # noqa: B023
                "verify": lambda: verify(frames, shard_map, columns=columns),  # noqa: B023
            }
            counts = {job().count() for job in jobs.values()}
            if counts != {made.user_records}:
                raise SystemExit(f"corpus {name}: {counts} rows of {made.user_records}")
            seconds = measure(jobs, options.rounds)
            udf, ours, checked = seconds.values()
            print(
                f"{name:6} {made.user_records:>13,} {udf:>7.3f} {ours:>12.3f} {checked:>7.3f} "
                f"{udf / ours:>9.2f} {udf / checked:>18.2f}",
                flush=True,
            )
        session.stop()


if __name__ == "__main__":
    main()
