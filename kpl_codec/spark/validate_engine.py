"""The validate job on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ..validate.task import Job
from .functions import broadcast, context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkEngine:
    """Runs tasks on the workers of ``spark``. They write Parquet themselves: Spark would turn columns into
    rows first, which takes several times as long as the whole task."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @property
    def cores(self) -> int:
        """How many tasks run at a time; 8 on Spark Connect, which does not tell."""
        context = context_of(self.spark)
        return 8 if context is None else context.defaultParallelism

    def progress(self) -> tuple[int, int]:
        """How many tasks of the running stages are done, and how many they have; 0, 0 on Spark Connect."""
        context = context_of(self.spark)
        if context is None:
            return 0, 0
        tracker = context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage is not None]
        return sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)

    def run(self, job: Job) -> None:
        work = broadcast(self.spark, job)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    work().run(number)
                yield batch

        numbers = self.spark.range(0, len(job.tasks), 1, len(job.tasks))
        numbers.mapInArrow(run, numbers.schema).collect()
