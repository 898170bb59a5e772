"""DataFrame functions, by `kpl_codec.arrow`, for PySpark 3.5 or newer and Spark Connect.

A DataFrame needs a binary column ``data``. ``streamName``, ``shardId``, ``sequenceNumber``, ``partitionKey``,
``explicitHashKey`` and ``approximateArrivalTimestamp`` are used if present; other columns are copied. The
workers need kpl_codec. Specification: spec/07-spark.md, SPK-1 to SPK-9.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, TypeVar

from ..arrow import DEFAULT_BATCH_BYTES, coalesce, process_all
from ..arrow.layout import TYPES
from ..captures.capture_rows import add_shards
from ..deaggregation.deaggregated_record import Counts
from ..deaggregation.payload import version_ids
from ..deaggregation.policy_rules import Policy
from ..errors import KplError
from ..format.compression import check_max_size
from ..shards.shard_map import ShardMap
from ..shards.stream_name import StreamMatcher
from .columns import name_folding, result_schema, schema_maker, with_shard_column, with_standard_names

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession

    from ..schema_registry import Unframe

_log = logging.getLogger("kpl_codec.spark")
_Value = TypeVar("_Value")


def deaggregate(
    df: DataFrame,
    policy: Policy = "strict",
    *,
    shard_map: ShardMap | str | None = None,
    max_decompressed_size: int | None = None,
    unframe: Unframe = False,
    tags: bool = False,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """The user records of a DataFrame of Kinesis records, which may be a streaming one.

    Its columns: the nine of `kpl_codec.arrow.FIELDS`, ``tags`` if asked for, the other columns of ``df``,
    placement columns with a ``shard_map``, and under the ``report`` policy ``kcl``, the error columns and
    those for counting. ``columns`` names those to be made, in its order; others do not leave Python.

    ``policy``: as for `kpl_codec.deaggregate`. A defect that it raises fails the job, with its place; what it
    drops is logged by each task. ``shard_map``: a ShardMap, or the JSON that list-shards prints. A map that
    says its stream, as `kpl_codec.aws.fetch_shard_map` gives it, judges the rows of that stream alone. With
    any other map, a worker process that sees a second ``streamName`` fails the job (SeveralStreams).
    ``max_decompressed_size`` (bytes), ``unframe``: as for `kpl_codec.deaggregate`; ``unframe`` adds
    ``schemaVersionId``, and a row that has a value there keeps its data.

    Rows that are user records already stay as they are, but for the compression and frame of their data.
    Column names match in any case, unless ``spark.sql.caseSensitive`` is set. A column with the name of one
    to be added is refused, unless an earlier run of these functions added it.

    Raises, before a job starts: TypeError for a column of the wrong type, CaptureError without ``data``,
    ValueError for an unknown policy, an ambiguous, a conflicting or (in ``columns``) an unknown column,
    ShardMapError for an invalid listing.
    """
    return _deaggregate(df, policy, shard_map, columns, max_decompressed_size, unframe=unframe, tags=tags)


def verify(
    df: DataFrame,
    shard_map: ShardMap | str,
    *,
    max_decompressed_size: int | None = None,
    unframe: Unframe = False,
    tags: bool = False,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Every user record of ``df`` with its placement, the KCL's outcome, and every defect.

    It is `deaggregate` under the ``report`` policy. Without a column ``shardId`` the shard is the one that
    the sequence number hints at, and the added column ``shardIdFrom`` is "sequence-number"; without a hint it
    is "map" if the map has one shard, else null. A column ``stream``, as Databricks has it, counts as
    ``streamName``.
    Raises what `deaggregate` raises, and ValueError with neither ``shardId`` nor ``sequenceNumber``.
    """
    df, find_shards = with_shard_column(df)
    size = max_decompressed_size
    return _deaggregate(df, "report", shard_map, columns, size, find_shards, unframe=unframe, tags=tags)


def _deaggregate(
    df: DataFrame,
    policy: Policy,
    shard_map: ShardMap | str | None,
    columns: Sequence[str] | None,
    max_decompressed_size: int | None,
    find_shards: bool = False,
    *,
    tags: bool,
    unframe: Unframe,
) -> DataFrame:
    # SPK-5: "The DataFrame functions MUST give what the Arrow functions give, and MUST refuse columns,
    # policies and shard maps that cannot be used before a job is started."
    if isinstance(shard_map, str):
        shard_map = ShardMap.from_json(shard_map)
    names = None if columns is None else list(columns)
    kinds = {"placement": shard_map is not None, "tags": tags, "unframe": unframe is not False}
    schema_of = schema_maker(policy, **kinds)
    df = with_standard_names(df, schema_of)
    schema = result_schema(df.schema, schema_of, names)
    if names is not None:
        # Columns that would only be copied are not sent to the workers, but the two of `with_shard_column`.
        used = TYPES.keys() - {"approximateArrivalTimestamp"} | {"shardIdFrom", *names}
        if shard_map is None and "streamName" not in names:
            used -= {"streamName"}
        df = df.select(*[f"`{name}`" for name in df.columns if name in used])
    # Each worker process remembers which streams it has seen.
    streams = broadcast(df.sparkSession, StreamMatcher(None if shard_map is None else shard_map.stream))
    find_map = broadcast(df.sparkSession, shard_map)
    options = {"columns": names, "tags": tags}
    task = _task(policy, max_decompressed_size, unframe, find_map, streams, find_shards, **options)
    return df.mapInArrow(task, schema)


def is_aggregated(column: Column | str) -> Column:
    """Whether consumers open a binary column as an aggregated record, by magic, length and digest; null for
    null. Plain Spark SQL, about twice as fast as Python; whether the message is sound is not checked. Spark
    refuses another type than binary (AnalysisException) before a job starts.
    """
    from pyspark.sql import functions as f

    data = f.col(column) if isinstance(column, str) else column
    size = f.length(data)
    # SPK-7: "Whether a column holds aggregated records MUST be answerable in SQL alone, by magic, length
    # and digest." (FRM-1, FRM-2, FRM-3; the rules' home is frame.py.)
    message = data.substr(f.lit(5), size - f.lit(20))
    result = f.coalesce(
        (size > 20)
        & (data.substr(f.lit(1), f.lit(4)) == f.unhex(f.lit("F3899AC2")))
        & (f.unhex(f.md5(message)) == data.substr(size - f.lit(15), f.lit(16))),
        f.when(data.isNotNull(), f.lit(False)),
    )
    # bitmap_count never runs. It is here because Spark takes it for binary columns only, and casts none.
    return f.when(f.lit(False), f.bitmap_count(data) < 0).otherwise(result)


def register_table_function(
    spark: SparkSession,
    name: str = "kpl_deaggregate",
    *,
    policy: Policy = "strict",
    max_decompressed_size: int | None = None,
    unframe: Unframe = False,
) -> None:
    """Make `deaggregate` a table function of SQL, until the session ends. PySpark 4.1 or newer.

        SELECT partitionKey, data FROM kpl_deaggregate(TABLE(SELECT * FROM records))

    ``name``: of the function. Its columns are the nine of `kpl_codec.arrow.FIELDS` and those that ``policy``
    and ``unframe`` add; other columns of the table are not copied. Options: as for `deaggregate`. Raises
    ValueError for an unknown policy or a size below 1, ImportError with an older PySpark. A table without a
    binary column ``data`` fails the job.
    """
    from pyspark.sql.functions import arrow_udtf
    from pyspark.sql.types import BinaryType, StructField, StructType

    data = StructType([StructField("data", BinaryType())])
    schema = result_schema(data, schema_maker(policy, unframe=unframe is not False))
    task = _task(policy, max_decompressed_size, unframe, columns=schema.names)
    fold = name_folding(spark)
    standard = {fold(column): column for column in schema.names}

    class Deaggregate:
        # SPK-77: "A table function of SQL MUST give what `deaggregate` gives, without the other columns of
        # its table."
        def eval(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            names = [standard.get(fold(column), column) for column in batch.schema.names]
            for column in standard.values():
                if (times := names.count(column)) > 1:
                    raise ValueError(f"column {column} is there {times} times")
            yield from task(iter([batch.rename_columns(names)]))

    function: Any = arrow_udtf(Deaggregate, returnType=schema)
    spark.udtf.register(name, function)


def _task(
    policy: Policy,
    max_decompressed_size: int | None = None,
    unframe: Unframe = False,
    find_map: Callable[[], ShardMap | None] = lambda: None,
    streams: Callable[[], StreamMatcher | None] = lambda: None,
    find_shards: bool = False,
    **options: Any,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What each task runs. ``find_shards``: fill in the empty columns of `with_shard_column`. Raises
    ValueError."""
    version_ids(unframe)
    if max_decompressed_size is not None:
        check_max_size(max_decompressed_size)
    options |= {"max_decompressed_size": max_decompressed_size, "unframe": unframe}

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _freeze_gc()
        shard_map = find_map()
        if find_shards:
            batches = (add_shards(batch, shard_map, batch.schema) for batch in batches)
        with plain_errors():
            rows = deaggregate_in_task(batches, policy, shard_map=shard_map, streams=streams(), **options)
            yield from coalesce(rows, DEFAULT_BATCH_BYTES)

    return run


def context_of(spark: SparkSession) -> SparkContext | None:
    """The context of a session; None for Spark Connect, which has none."""
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext
    except PySparkException:
        return None


def broadcast(spark: SparkSession, value: _Value) -> Callable[[], _Value]:
    """A function that gives ``value`` in tasks of ``spark``. Spark Connect has no broadcasts: there each task
    gets it anew."""
    context = context_of(spark)
    if context is None:
        return lambda: value
    # SPK-8: "The shard map MUST be sent to each worker once, whatever the number of tasks."
    variable = context.broadcast(value)
    return lambda: variable.value


@contextmanager
def plain_errors() -> Iterator[None]:
    """In a worker process: Spark gets our errors and botocore's without a traceback. The process ends with
    the error, so the variable that Spark reads concerns no other."""
    try:
        yield
    except Exception as error:
        ours = isinstance(error, KplError) or type(error).__module__ == "botocore.exceptions"
        if ours and "pyspark.worker_util" in sys.modules:  # a driver loads no such module
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


@cache
def _freeze_gc() -> None:
    """Take the loaded objects out of garbage collection, which Spark runs after each task: it took 30 ms,
    where a task on 40 MB took 80."""
    gc.freeze()


def deaggregate_in_task(
    batches: Iterator[pa.RecordBatch], policy: Policy, **options: Any
) -> Iterator[pa.RecordBatch]:
    """The user records of Kinesis records. ``options``: of `Deaggregator`."""
    counts = Counts()
    yield from process_all(batches, policy, counts, dictionaries=False, **options)
    if counts.dropped:
        # SPK-6: "What a policy drops MUST be logged by each task, by reason."
        _log.warning("user records dropped under the policy %s: %s", policy, dict(counts.dropped))


_PLACE = ["shardId", "sequenceNumber"]
_SUB, _LAST = "subSequenceNumber", "lastSubSequenceNumber"
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def handled_runs(df: DataFrame) -> DataFrame:
    """A table of handled user records, made small: one row for each run of consecutive sub-sequence numbers.

    ``df`` names each user record by ``shardId``, ``sequenceNumber`` and ``subSequenceNumber``, and by
    ``streamName`` where it has that. The result has these columns and ``lastSubSequenceNumber``, the end of
    the run (included). A user record that ``df`` names twice is in two runs. A null sub-sequence number stays
    null, in a row of its own: for an audit it means 0 for a record that is no aggregate, and nothing for an
    aggregate. Rows of ``df`` may be runs already: a union of several days' runs can be made small again.

    Raises TypeError for a column of a type that cannot hold its values, before a job starts. A text that is
    no number fails the job (USER_RAISED_EXCEPTION names the column), as does a run that ends before it
    begins.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    fold = name_folding(df.sparkSession)
    types = {fold(field.name): field.dataType.simpleString() for field in df.schema.fields}
    place = [*(["streamName"] if fold("streamName") in types else ()), *_PLACE]
    for name in (*place, _SUB, _LAST):
        kind = types.get(fold(name), "string")
        # A double has lost the digits of a sequence number.
        if kind != "string" and not (name in (_SUB, _LAST) and kind in _INTEGERS):
            expected = "string" if name in place else "an integer"
            raise TypeError(f"column {name} is {kind}, not {expected}")

    def number(name: str) -> Column:
        value = F.col(name)
        if types.get(fold(name)) != "string":
            return value.cast("long")
        # SPK-114: "A value that cannot be read as what its column holds MUST be refused with the column's
        # name, whatever the session makes of such a cast; null alone is null."
        refused = F.raise_error(F.concat(F.lit(f"column {name} is no number: "), F.substring(value, 1, 40)))
        # (\z: $ also matches before a line feed at the end.)
        whole = value.isNull() | value.rlike(r"^-?[0-9]{1,18}\z")
        return F.when(whole, value.cast("long")).otherwise(refused)

    names = df.select(*place, number(_SUB).alias(_SUB), *([_LAST] if fold(_LAST) in types else ()))
    ends = F.coalesce(number(_LAST), F.col(_SUB)) if fold(_LAST) in types else F.col(_SUB)
    backwards = F.raise_error(F.lit(f"column {_LAST} is before {_SUB}"))
    last = F.when(ends < F.col(_SUB), backwards).when(F.col(_SUB).isNotNull(), ends)
    runs = names.select(*place, _SUB, last.alias(_LAST))
    # SPK-113: "A function whose output has the form of its input MUST take its own output, and change nothing
    # in it, or refuse it."
    # AUD-18: "A table of what was handled MUST say the same after it was made small."
    # A run goes on with the next sub-sequence number of its Kinesis record. A negative number, and a row that
    # names no Kinesis record, name no user record: they stay rows of their own.
    before = F.lag(_LAST).over(Window.partitionBy(*place).orderBy(_SUB, _LAST))
    named = reduce(and_, [F.col(name).isNotNull() for name in _PLACE])
    goes_on = F.coalesce(named & (before >= 0) & (F.col(_SUB) == before + 1), F.lit(False))
    begins = runs.withColumn("_run", F.when(goes_on, 0).otherwise(1))
    # (Of equal rows the one that goes on comes first.)
    so_far = Window.partitionBy(*place).orderBy(_SUB, _LAST, "_run").rowsBetween(Window.unboundedPreceding, 0)
    numbered = begins.withColumn("_run", F.sum("_run").over(so_far))
    result = numbered.groupBy(*place, "_run").agg(F.min(_SUB).alias(_SUB), F.max(_LAST).alias(_LAST))
    return result.drop("_run")
