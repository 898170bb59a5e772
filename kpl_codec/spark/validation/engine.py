"""Runs the tasks of a validate job on Spark. They write Parquet themselves: Spark would make rows first,
which takes several times as long as all the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ...validation.task import Job
from ..shared import shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The result of a task that writes its user records itself.
WRITTEN = "userRecords long"


class SparkEngine:
    """Runs tasks on the workers of ``spark``."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @property
    def cores(self) -> int:
        """How many tasks run side by side; 8 where Spark Connect does not tell."""
        from pyspark.errors import PySparkException

        try:
            return int(self.spark.sparkContext.defaultParallelism)
        except PySparkException:
            return 8

    def progress(self) -> tuple[int, int]:
        """Tasks done, and tasks known, of the running stages; none where Spark Connect does not tell."""
        from pyspark.errors import PySparkException

        try:
            tracker = self.spark.sparkContext.statusTracker()
        except PySparkException:
            return 0, 0
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)

    def run(self, job: Job) -> None:
        work = shared(self.spark, job)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield count_batch(work().run(number))

        numbers = self.spark.range(0, len(job.tasks), 1, len(job.tasks))
        numbers.mapInArrow(run, WRITTEN).collect()


def count_batch(user_records: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([user_records], pa.int64())], ["userRecords"])
