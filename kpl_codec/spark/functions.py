"""DataFrame in, DataFrame out, by `kpl_codec.arrow`. PySpark 3.5 or newer, also Connect.

The DataFrame needs a binary column ``data``; ``streamName``, ``shardId``, ``sequenceNumber``,
``partitionKey``, ``explicitHashKey`` and ``approximateArrivalTimestamp`` are used if present. Other columns
are copied. kpl_codec must be installed where the workers run.
Specification: spec/07-spark.md, SPK-1 to SPK-9, SPK-77.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..deaggregation.policies import Policy
from ..format.compression import check_max_size
from ..shards.shard_map import ShardMap
from .columns import Kinds, folding, matched, output_schema, with_shard_column, without_others
from .shared import keep_modules, opened, shared

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

_Task = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def deaggregate(
    df: DataFrame,
    policy: Policy = "strict",
    *,
    shard_map: ShardMap | str | None = None,
    max_decompressed_size: int | None = None,
    unframe: bool = False,
    tags: bool = False,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """The user records of a DataFrame of Kinesis records.

    Columns: the nine of `kpl_codec.arrow.FIELDS`, ``tags`` if asked for, the other columns of
    ``df``, placement columns with a ``shard_map`` (a ShardMap, or the JSON that list-shards prints),
    and under the ``report`` policy ``kcl``, the error columns and those for counting. Works on streaming
    DataFrames. Names are matched as the session matches them: in any case, unless ``spark.sql.caseSensitive``
    is set.

    ``strict`` fails the job at the first defect (its place is in the error text); ``kcl`` gives what the
    KCL delivers and logs what it drops, per task; ``report`` gives everything, and ``kcl`` as a column.
    Rows that were opened before stay unchanged. ``max_decompressed_size``: as in `kpl_codec.deaggregate`; of
    rows that were opened before, too. ``unframe``: takes the Schema Registry's frames off, as there, and adds
    ``schemaVersionId``; rows that have one stay.

    ``columns``: the names of the columns that are wanted, in that order. Others are not made and do not cross
    from Python to the JVM.

    A column of ``df`` that has a name the result needs is refused; columns from an earlier run of these
    functions are not.

    Raises TypeError for a column of the wrong type, CaptureError without ``data``, ValueError for an
    unknown policy, an ambiguous, a conflicting or (in ``columns``) an unknown column, ShardMapError for an
    invalid listing: all before a job starts.
    """
    options = {"max_decompressed_size": max_decompressed_size, "unframe": unframe, "tags": tags}
    return _deaggregated(df, policy, shard_map, columns, options)


def verify(
    df: DataFrame,
    shard_map: ShardMap | str,
    *,
    max_decompressed_size: int | None = None,
    unframe: bool = False,
    tags: bool = False,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Every user record of ``df`` with its placement, what the KCL does with it, and every defect.

    `deaggregate` under the ``report`` policy with a shard map. Without a column ``shardId`` (the awslabs
    connector gives none) the shard is taken from the hint in the sequence number; the column ``shardIdFrom``
    is then "sequence-number", or without a hint "map" if the map has one shard, else null. ``stream``
    (Databricks) counts as ``streamName``.
    Raises what `deaggregate` raises, and ValueError with neither ``shardId`` nor ``sequenceNumber``.
    """
    df, find_shards = with_shard_column(df)
    options = {"max_decompressed_size": max_decompressed_size, "unframe": unframe, "tags": tags}
    return _deaggregated(df, "report", shard_map, columns, options, find_shards=find_shards)


def _deaggregated(
    df: DataFrame,
    policy: Policy,
    shard_map: ShardMap | str | None,
    columns: Sequence[str] | None,
    options: dict[str, Any],
    *,
    find_shards: bool = False,
) -> DataFrame:
    # SPK-5: "The DataFrame functions MUST give what the Arrow functions give, and MUST refuse columns,
    # policies and shard maps that cannot be used before a job is started."
    if isinstance(shard_map, str):
        shard_map = ShardMap.from_json(shard_map)
    kinds = Kinds(policy, shard_map is not None, options["tags"], options["unframe"])
    df = matched(df, kinds)
    schema = output_schema(df.schema, kinds, columns)
    if columns is not None:
        df = without_others(df, columns)
    options = {**options, "columns": None if columns is None else list(columns)}
    known = shared(df.sparkSession, shard_map)
    return df.mapInArrow(_task(policy, known, options, find_shards=find_shards), schema)


def is_aggregated(column: Column | str) -> Column:
    """Whether consumers open a binary column as an aggregated record: magic, length, digest.

    Plain Spark SQL, about twice as fast as Python; it does not check whether the message is sound. Null for
    null. Spark refuses a column of another type than binary (AnalysisException) before a job starts;
    ``unbase64`` makes binary of base64 text.
    """
    from pyspark.sql import functions as f

    data = f.col(column) if isinstance(column, str) else column
    size = f.length(data)
    # SPK-7: "Whether a column holds aggregated records MUST be answerable in SQL alone, by magic, length
    # and digest." (FRM-1, FRM-2, FRM-3; the rules' home is frame.py.)
    message = data.substr(f.lit(5), size - f.lit(20))
    answer = f.coalesce(
        (size > 20)
        & (data.substr(f.lit(1), f.lit(4)) == f.unhex(f.lit("F3899AC2")))
        & (f.unhex(f.md5(message)) == data.substr(size - f.lit(15), f.lit(16))),
        f.when(data.isNotNull(), f.lit(False)),
    )
    # No row gets to bitmap_count. It is here because Spark takes it for binary columns only, and casts none.
    return f.when(f.lit(False), f.bitmap_count(data) < 0).otherwise(answer)


def register_table_function(
    spark: SparkSession,
    name: str = "kpl_deaggregate",
    *,
    policy: Policy = "strict",
    max_decompressed_size: int | None = None,
    unframe: bool = False,
) -> None:
    """Make `deaggregate` a table function of SQL, until the session ends. PySpark 4.1 or newer.

        SELECT partitionKey, data FROM kpl_deaggregate(TABLE(SELECT * FROM records))

    ``name``: of the function. It gives the nine columns of `kpl_codec.arrow.FIELDS`, and those that
    ``policy`` adds; other columns of the table are not copied. ``max_decompressed_size``,
    ``unframe``: as in `deaggregate`. Raises ValueError for an unknown policy or a size below 1, and
    ImportError with an older PySpark. A table without a binary column ``data`` fails the job, not before.
    """
    from pyspark.sql.functions import arrow_udtf
    from pyspark.sql.types import BinaryType, StructField, StructType

    data = StructType([StructField("data", BinaryType())])
    schema = output_schema(data, Kinds(policy, placement=False, tags=False, unframe=unframe))
    options = {"columns": schema.names, "max_decompressed_size": max_decompressed_size, "unframe": unframe}
    work = _task(policy, lambda: None, options)
    fold = folding(spark)
    standard = {fold(known): known for known in schema.names}

    class Deaggregate:
        # SPK-77: "A table function of SQL MUST give what `deaggregate` gives, without the other columns of
        # its table."
        def eval(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            names = [standard.get(fold(given), given) for given in batch.schema.names]
            twice = [known for known in standard.values() if names.count(known) > 1]
            if twice:
                raise ValueError(f"column {twice[0]} is there {names.count(twice[0])} times")
            yield from work(iter([batch.rename_columns(names)]))

    function: Any = arrow_udtf(Deaggregate, returnType=schema)
    spark.udtf.register(name, function)


def _task(
    policy: Policy,
    known: Callable[[], ShardMap | None],
    options: dict[str, Any],
    *,
    find_shards: bool = False,
) -> _Task:
    """``options``: of `Deaggregator`."""
    if (size := options["max_decompressed_size"]) is not None:
        check_max_size(size)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from ..arrow import DEFAULT_BATCH_BYTES, coalesce
        from ..captures.rows import with_shards

        keep_modules()
        shard_map = known()
        if find_shards:
            batches = (with_shards(batch, shard_map, batch.schema) for batch in batches)
        rows = opened(batches, policy, shard_map=shard_map, **options)
        yield from coalesce(rows, DEFAULT_BATCH_BYTES)

    return run


__all__ = ["deaggregate", "is_aggregated", "register_table_function", "verify"]
