"""The Spark deaggregate function against identity: what of a job's time is ours, and what is Spark's.

* identity: mapInArrow that gives every batch back as it came (50 KiB frames in, 50 KiB frames out);
* replay: mapInArrow that takes the same frames and gives the user records' batches made before, byte for
  byte what `deaggregate` gives: moving those bytes through Spark, and nothing else.

Wall time of whole jobs, alternating, medians; the sink takes everything and keeps nothing.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from .corpora import SHARD, corpus

FILES, MIB = 4, 32
#: Batches made before, in the worker's own process, by what they were made of.
_made: dict[tuple[str, int], list[Any]] = {}


def _identity(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _replay(batches: Iterator[Any]) -> Iterator[Any]:
    from kpl_codec.arrow import Deaggregator

    for batch in batches:
        key = batch.column("sequenceNumber")[0].as_py(), batch.num_rows
        if key not in _made:
            _made[key] = list(Deaggregator(batch.schema).process(batch))
        yield from _made[key]


def _write(directory: Path) -> int:
    """The same frames under as many file names, so that every task does the same; user records in all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = corpus("a", MIB)
    records = made.kinesis_records()
    table = pa.table(
        {
            "shardId": pa.array([SHARD] * len(records)),
            "sequenceNumber": pa.array([record.sequence_number for record in records]),
            "partitionKey": pa.array([record.partition_key for record in records]),
            "data": pa.array([record.data for record in records], pa.binary()),
        }
    )
    for number in range(FILES):
        pq.write_table(
            table, directory / f"{number}.parquet", compression="none", row_group_size=len(records)
        )
    return FILES * made.user_records


def show(rounds: int = 5) -> None:
    """Print the table."""
    from kpl_codec.spark import deaggregate
    from kpl_codec.spark.session import local_session

    session = local_session("kpl-codec benchmark", cores=2)
    with tempfile.TemporaryDirectory() as scratch:
        user_records = _write(Path(scratch))
        frames = session.read.parquet(scratch)
        opened = deaggregate(frames, tags=False)
        jobs: dict[str, Callable[[], Any]] = {
            "identity": lambda: frames.mapInArrow(_identity, frames.schema),
            "replay": lambda: frames.mapInArrow(_replay, opened.schema),
            "deaggregate": lambda: deaggregate(frames, tags=False),
        }
        setting = "spark.sql.execution.arrow.maxBytesPerBatch"
        default = session.conf.get(setting)
        print(
            f"\nSpark: {FILES * MIB} MiB of corpus a, {user_records} user records; seconds a job, alternating"
        )
        for batch_bytes in (default, "1m", "16m", "64m"):
            session.conf.set(setting, batch_bytes)
            times: dict[str, list[float]] = {name: [] for name in jobs}
            for turn in range(rounds + 1):
                for name, job in jobs.items():
                    start = time.perf_counter()
                    job().write.format("noop").mode("overwrite").save()
                    if turn:  # the first one warms up
                        times[name].append(time.perf_counter() - start)
            seconds = {name: median(all_) for name, all_ in times.items()}
            print(
                f"  {batch_bytes + (' (default)' if batch_bytes == default else ''):14}"
                + "".join(f"{name} {seconds[name]:6.2f}   " for name in jobs)
                + f"deaggregate: {seconds['deaggregate'] / seconds['identity']:.2f} x identity, "
                f"{seconds['deaggregate'] / seconds['replay']:.2f} x replay, "
                f"{user_records / seconds['deaggregate'] / 1e6:.2f} M user records/s",
                flush=True,
            )
        session.conf.set(setting, default)
    session.stop()
