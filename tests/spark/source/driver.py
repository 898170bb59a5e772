"""A streaming query as a process of its own, to be killed: what the kill tests run.

    python -m tests.spark.source.driver '{"options": {...}, "checkpoint": ..., "sink": ..., ...}'

The sink is idempotent by batch: a batch's rows are one file, written whole or not at all, and written
again when the batch is. A batch that is not the same the second time is written to ``changed``.
With ``slow``, a folder, the first attempt at a partition of a batch with rows takes for ever once it has
read them, and every attempt at it notes what it read in the folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def rows_of(frame: Any) -> list[str]:
    return sorted(
        json.dumps(
            [row.shardId, row.sequenceNumber, row.subSequenceNumber, row.partitionKey, row.data.decode()]
        )
        for row in frame.collect()
    )


def slow_at_first(folder: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """For mapInArrow: the batches as they are, from partition 0 only by its second attempt."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        read = list(batches)
        numbers = [number for batch in read for number in batch["sequenceNumber"].to_pylist()]
        if context.partitionId() == 0 and numbers:
            batch = context.getLocalProperty("streaming.sql.batchId")
            note = Path(folder, f"{batch}-{context.attemptNumber()}-{context.taskAttemptId()}")
            note.write_text(json.dumps(numbers))
            if context.attemptNumber() == 0:
                time.sleep(600)
        yield from read

    return run


def speculative_attempts(spark: Any, query: Any) -> int:
    """How many tasks of the query Spark started because another attempt took long."""
    tracker = spark.sparkContext.statusTracker()
    store = spark.sparkContext._jsc.sc().statusStore()
    found = 0
    for job in tracker.getJobIdsForGroup(str(query.runId)):
        for stage in tracker.getJobInfo(job).stageIds:
            tasks = store.taskList(stage, 0, 1000)
            found += sum(tasks.apply(index).speculative() for index in range(tasks.size()))
    return found


def main(settings: dict[str, Any]) -> None:
    from kpl_codec.spark.session import local_session
    from kpl_codec.spark.source.datasource import KinesisDataSource

    sink = Path(settings["sink"])
    # A task fails with each of its workers that is killed, and may fail more often than workers are killed.
    more = {"spark.master": "local[2,6]", **(settings.get("spark") or {})}
    spark = local_session("kpl-codec kill test", cores=2, memory="768m", settings=more)
    spark.dataSource.register(KinesisDataSource)

    def die(point: str, batch: int) -> None:
        if settings.get("die") == [point, batch]:
            os.killpg(os.getpgrp(), signal.SIGKILL)

    def write(frame: Any, batch: int) -> None:
        (sink / "at").write_text(str(batch))
        with (sink / "attempts").open("a") as attempts:
            attempts.write(f"{batch}\n")
        die("before-read", batch)
        rows = rows_of(frame)
        die("before-sink", batch)
        target = sink / f"{batch}.rows"
        text = "".join(f"{row}\n" for row in rows)
        if target.exists() and target.read_text() != text:
            (sink / "changed").write_text(str(batch))
        part = sink / f"{batch}.part"
        part.write_text(text)
        part.rename(target)
        die("after-sink", batch)

    frame = spark.readStream.format("kpl-kinesis").options(**settings["options"]).load()
    if "slow" in settings:
        frame = frame.mapInArrow(slow_at_first(settings["slow"]), frame.schema)
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", settings["checkpoint"])
    if settings.get("available_now"):
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    (sink / "speculative").write_text(str(speculative_attempts(spark, query)))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
