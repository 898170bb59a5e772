"""Runs the tasks of a validate job on Spark; writes user records in any format of the session.

The tasks write Parquet directly from columns: Spark would make rows first, which takes several times as long
as all the rest. Spark writes other formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ...validation.check import checked_schema
from ...validation.results import FormatError
from ...validation.task import Job
from ..shared import Shared, shared

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

    def check_format(self, output_format: str) -> None:
        """Raises FormatError if this Spark does not know a format of that name."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if output_format == "parquet":
            return
        try:
            self.spark.read.format(output_format).load("/no-such-path")
        except (PySparkException, Py4JError) as error:  # "no such path" means that the format is known
            if "DATA_SOURCE_NOT_FOUND" in str(error):
                reason = (
                    "this Spark does not know it; its package is missing (for delta: spark-submit --packages "
                    "io.delta:..., and Delta Lake's two settings of the session)"
                )
                raise FormatError(format=output_format, reason=reason) from None

    def run(self, job: Job, output_format: str = "parquet") -> None:
        """Runs every task in one Spark job."""
        from pyspark.sql.pandas.types import from_arrow_schema

        numbers = self.spark.range(0, len(job.tasks), 1, len(job.tasks))
        if output_format == "parquet":
            numbers.mapInArrow(_each(shared(self.spark, job), _counted), WRITTEN).collect()
            return
        schema = from_arrow_schema(checked_schema(job.shard_map))
        rows = numbers.mapInArrow(_each(shared(self.spark, job), _plain_rows), schema)
        rows.write.format(output_format).mode("overwrite").save(f"{job.output}/user-records")


def count_batch(user_records: int) -> pa.RecordBatch:
    """A batch of WRITTEN."""
    return pa.RecordBatch.from_arrays([pa.array([user_records], pa.int64())], ["userRecords"])


def _counted(job: Job, number: int) -> Iterator[pa.RecordBatch]:
    yield count_batch(job.run(number))


def _plain_rows(job: Job, number: int) -> Iterator[pa.RecordBatch]:
    """The user records of a task without dictionary arrays: the JVM reads none."""
    schema = checked_schema(job.shard_map)
    return (batch.cast(schema) for batch in job.rows(number))


def _each(
    job: Shared[Job], work: Callable[[Job, int], Iterator[pa.RecordBatch]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow over the numbers of tasks."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(job.get(), number)

    return run
