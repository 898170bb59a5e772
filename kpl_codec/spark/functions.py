"""DataFrame in, DataFrame out: thin adapters over `kpl_codec.arrow`. PySpark 3.5 or newer, Connect too.

    deaggregate(df)                          # user records; the job fails at the first broken frame
    deaggregate(df, "report")                # user records and every defect, as rows
    verify(df, shard_map)                    # the same, and where each user record lies
    df.where(is_aggregated("data"))          # in the JVM, without Python

The DataFrame needs a binary column ``data``; ``streamName``, ``shardId``, ``sequenceNumber``,
``partitionKey``, ``explicitHashKey`` and ``approximateArrivalTimestamp`` are used where they are there.
Other columns are carried along. kpl_codec must be installed where the workers run.
Specification: spec/07-spark.md, SPK-1 to SPK-7.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..deaggregation.policies import Policy
from ..shards.shard_map import ShardMap

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_log = logging.getLogger("kpl_codec.spark")


def deaggregate(
    df: DataFrame,
    policy: Policy = "strict",
    *,
    shard_map: ShardMap | str | None = None,
    tags: bool = False,
) -> DataFrame:
    """The user records of a DataFrame of Kinesis records.

    Columns: the nine of `kpl_codec.arrow.FIELDS`, ``tags`` if asked for, the other columns of
    ``df``, placement columns with a ``shard_map`` (a ShardMap, or the JSON that list-shards prints),
    and under the ``report`` policy ``kcl``, the error columns and those that counting needs. Works on
    streaming DataFrames.

    ``strict`` fails the job at the first defect (its place is in the error text); ``kcl`` gives what the
    KCL delivers and logs what it drops, per task; ``report`` gives everything, and ``kcl`` as a column.
    Rows that came out of an aggregate already pass unopened.

    Raises TypeError for a column of the wrong type, CaptureError without ``data``, ValueError for an
    unknown policy, ShardMapError for a listing that cannot be trusted: all before a job is started.
    """
    # SPK-5: "The DataFrame functions MUST give what the Arrow functions give, and MUST refuse columns,
    # policies and shard maps that cannot be used before a job is started."
    if isinstance(shard_map, str):
        shard_map = ShardMap.from_json(shard_map)
    return df.mapInArrow(_task(policy, shard_map, tags), _output(df.schema, policy, shard_map, tags))


def _output(schema: StructType, policy: Policy, shard_map: ShardMap | None, tags: bool) -> StructType:
    """The Spark schema of the result; the workers see the real Arrow one."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    from ..arrow import COUNTING_FIELDS, ERROR_FIELDS, FIELDS, PLACEMENT_FIELDS, TAGS_FIELD, Deaggregator

    known = {
        "string": pa.string(),
        "binary": pa.binary(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    named = (*FIELDS, TAGS_FIELD, *PLACEMENT_FIELDS, *ERROR_FIELDS, *COUNTING_FIELDS)
    ours = {field.name for field in named}
    stand_ins = pa.schema(
        # A carried column keeps its Spark type; one of ours must have a type that fits.
        (
            field.name,
            known.get(field.dataType.simpleString(), pa.struct([])) if field.name in ours else pa.null(),
        )
        for field in schema.fields
    )
    out = Deaggregator(stand_ins, policy, shard_map=shard_map, tags=tags).schema
    types = {field.name: field.dataType for field in schema.fields}
    made = from_arrow_schema(pa.schema(field for field in out if field.name in ours))
    return StructType(
        [
            made[field.name] if field.name in ours else StructField(field.name, types[field.name])
            for field in out
        ]
    )


def verify(df: DataFrame, shard_map: ShardMap | str, *, tags: bool = False) -> DataFrame:
    """Every user record of ``df`` with its placement, what the KCL does with it, and every defect.

    `deaggregate` under the ``report`` policy with a shard map. Judging needs ``shardId``; without that
    column ValueError is raised, because every verdict would be "unknown-shard".
    """
    if "shardId" not in df.columns:
        raise ValueError("verify needs a column shardId: a verdict is about the shard a record lies on")
    return deaggregate(df, "report", shard_map=shard_map, tags=tags)


def is_aggregated(column: Column | str) -> Column:
    """Whether consumers open a binary column as an aggregated record: magic, length, digest.

    Plain Spark SQL, about twice as fast as asking Python; it cannot tell whether the message is sound.
    Null for null.
    """
    from pyspark.sql import functions as f

    data = f.col(column) if isinstance(column, str) else column
    size = f.length(data)
    # SPK-7: "Whether a column holds aggregated records MUST be answerable in SQL alone, by magic, length
    # and digest." (FRM-1, FRM-2, FRM-3; the rules' home is frame.py.)
    message = data.substr(f.lit(5), size - f.lit(20))
    return f.coalesce(
        (size > 20)
        & (data.substr(f.lit(1), f.lit(4)) == f.unhex(f.lit("F3899AC2")))
        & (f.unhex(f.md5(message)) == data.substr(size - f.lit(15), f.lit(16))),
        f.when(data.isNotNull(), f.lit(False)),
    )


def _task(
    policy: Policy, shard_map: ShardMap | None, tags: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from ..arrow import DEFAULT_BATCH_BYTES, Deaggregator, coalesce

        deaggregator: Deaggregator | None = None

        def process() -> Iterator[pa.RecordBatch]:
            nonlocal deaggregator
            for batch in batches:
                if deaggregator is None:
                    deaggregator = Deaggregator(batch.schema, policy, shard_map=shard_map, tags=tags)
                yield from deaggregator.process(batch)

        yield from coalesce(process(), DEFAULT_BATCH_BYTES)
        if deaggregator is not None and deaggregator.counts.dropped:
            # SPK-6: "What the kcl policy drops MUST be logged by each task, by reason."
            _log.warning("dropped as the KCL does: %s", dict(deaggregator.counts.dropped))

    return run


__all__ = ["deaggregate", "is_aggregated", "verify"]
