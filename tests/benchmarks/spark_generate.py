"""Captured Kinesis records of any number (`captures.generated`), made by the workers of Spark.

df = generated(spark, Recipe(16_000_000, shards=8))
df.write.parquet("capture/")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kpl_codec.captures.generated import SCHEMA, Recipe, kinesis_batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Kinesis records made by one number of the range.
_CHUNK = 20


def generated(spark: SparkSession, recipe: Recipe, *, tasks: int | None = None) -> DataFrame:
    """The Kinesis records of ``recipe``: the columns that the Kinesis connectors give."""
    from pyspark.sql.pandas.types import from_arrow_schema

    chunks = -(-recipe.kinesis_records // _CHUNK)
    numbers = spark.range(0, chunks, 1, min(tasks or chunks, chunks, 1000))
    return numbers.mapInArrow(_task(recipe), from_arrow_schema(SCHEMA))


def _task(recipe: Recipe) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for chunk in batch.column(0).to_pylist():
                last = min((chunk + 1) * _CHUNK, recipe.kinesis_records)
                yield kinesis_batch(recipe, range(chunk * _CHUNK, last))

    return run
