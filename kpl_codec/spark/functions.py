"""DataFrame in, DataFrame out, by `kpl_codec.arrow`. PySpark 3.5 or newer, also Connect.

The DataFrame needs a binary column ``data``; ``streamName``, ``shardId``, ``sequenceNumber``,
``partitionKey``, ``explicitHashKey`` and ``approximateArrivalTimestamp`` are used if present. Other columns
are copied. kpl_codec must be installed where the workers run.
Specification: spec/07-spark.md, SPK-1 to SPK-9, SPK-77.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cache, reduce
from itertools import chain
from operator import and_
from typing import TYPE_CHECKING, Any, TypeVar

from ..arrow.layout import TYPES
from ..deaggregation.payload import version_ids
from ..deaggregation.policy_rules import Policy
from ..format.compression import check_max_size
from ..shards.shard_map import ShardMap
from ..shards.stream_name import StreamMatcher
from .columns import folding, matched, output_schema, result_with, with_shard_column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession

    from ..schema_registry import Unframe

_log = logging.getLogger("kpl_codec.spark")
_Value = TypeVar("_Value")
_Task = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


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
    """The user records of a DataFrame of Kinesis records.

    Columns: the nine of `kpl_codec.arrow.FIELDS`, ``tags`` if asked for, the other columns of
    ``df``, placement columns with a ``shard_map`` (a ShardMap, or the JSON that list-shards prints),
    and under the ``report`` policy ``kcl``, the error columns and those for counting. Works on streaming
    DataFrames. Names are matched as the session matches them: in any case, unless ``spark.sql.caseSensitive``
    is set.

    ``strict`` fails the job at the first defect (its place is in the error text); ``kcl`` gives what the
    KCL delivers and logs what it drops, per task; ``report`` gives everything, and ``kcl`` as a column.
    A ``shard_map`` that says which stream it is of (as `kpl_codec.aws.fetch_shard_map` gives it) judges the
    rows of that stream; others come as without a map. By one that does not say it rows of one stream can be
    judged: a worker process that sees a second ``streamName`` fails the job (SeveralStreams).
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
    size = max_decompressed_size
    return _deaggregate(df, policy, shard_map, columns, size, tags=tags, unframe=unframe)


def verify(
    df: DataFrame,
    shard_map: ShardMap | str,
    *,
    max_decompressed_size: int | None = None,
    unframe: Unframe = False,
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
    size = max_decompressed_size
    return _deaggregate(df, "report", shard_map, columns, size, find_shards, tags=tags, unframe=unframe)


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
    version_ids(unframe)
    frames_off = unframe is not False
    schema_of = result_with(policy, placement=shard_map is not None, tags=tags, unframe=frames_off)
    df = matched(df, schema_of)
    schema = output_schema(df.schema, schema_of, columns)
    if columns is not None:
        columns = list(columns)
        # Columns that are only copied stay out, but the two of `with_shard_column`.
        used = TYPES.keys() - {"approximateArrivalTimestamp"} | {"shardIdFrom", *columns}
        if shard_map is None and "streamName" not in columns:
            used -= {"streamName"}
        df = df.select(*[f"`{name}`" for name in df.columns if name in used])
    find_map = shared(df.sparkSession, shard_map)
    # A worker process remembers the streams of the records that it has read.
    streams = shared(df.sparkSession, StreamMatcher(None if shard_map is None else shard_map.stream))
    work = _task(
        policy,
        find_map,
        max_decompressed_size,
        find_shards,
        streams,
        columns=columns,
        tags=tags,
        unframe=unframe,
    )
    return df.mapInArrow(work, schema)


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
    unframe: Unframe = False,
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
    schema = output_schema(data, result_with(policy, unframe=unframe is not False))
    work = _task(policy, lambda: None, max_decompressed_size, columns=schema.names, unframe=unframe)
    fold = folding(spark)
    standard = {fold(column): column for column in schema.names}

    class Deaggregate:
        # SPK-77: "A table function of SQL MUST give what `deaggregate` gives, without the other columns of
        # its table."
        def eval(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            names = [standard.get(fold(column), column) for column in batch.schema.names]
            twice = [column for column in standard.values() if names.count(column) > 1]
            if twice:
                raise ValueError(f"column {twice[0]} is there {names.count(twice[0])} times")
            yield from work(iter([batch.rename_columns(names)]))

    function: Any = arrow_udtf(Deaggregate, returnType=schema)
    spark.udtf.register(name, function)


def _task(
    policy: Policy,
    find_map: Callable[[], ShardMap | None],
    max_decompressed_size: int | None = None,
    find_shards: bool = False,
    streams: Callable[[], StreamMatcher | None] = lambda: None,
    **options: Any,
) -> _Task:
    """``options``: of `Deaggregator`."""
    if max_decompressed_size is not None:
        check_max_size(max_decompressed_size)
        options["max_decompressed_size"] = max_decompressed_size

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from ..arrow import DEFAULT_BATCH_BYTES, coalesce
        from ..captures.capture_rows import with_shards

        _keep_modules()
        shard_map = find_map()
        if find_shards:
            batches = (with_shards(batch, shard_map, batch.schema) for batch in batches)
        rows = deaggregate_in_task(batches, policy, shard_map=shard_map, streams=streams(), **options)
        yield from coalesce(rows, DEFAULT_BATCH_BYTES)

    return run


def context_of(spark: SparkSession) -> SparkContext | None:
    """None for Spark Connect, which has none."""
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext
    except PySparkException:
        return None


def shared(spark: SparkSession, value: _Value) -> Callable[[], _Value]:
    """Gives ``value`` in tasks of ``spark``. Spark Connect has no broadcasts: there it is sent with every
    task."""
    context = context_of(spark)
    if context is None:
        return lambda: value
    # SPK-8: "The shard map MUST be sent to each worker once, whatever the number of tasks."
    broadcast = context.broadcast(value)
    return lambda: broadcast.value  # a worker process unpickles it when it asks for the first time


@cache
def _keep_modules() -> None:
    """Freezes the objects loaded so far (`gc.freeze`): Spark collects garbage after each task, and walking
    the modules took 30 ms, where a task on 40 MB took 80."""
    gc.freeze()


def deaggregate_in_task(
    batches: Iterator[pa.RecordBatch], policy: Policy, **options: Any
) -> Iterator[pa.RecordBatch]:
    """The user records of Kinesis records. ``options``: of `Deaggregator`."""
    from ..arrow import Deaggregator

    for first in batches:  # runs once: the inner loop takes all other batches
        deaggregator = Deaggregator(first.schema, policy, dictionaries=False, **options)
        for batch in chain([first], batches):
            yield from deaggregator.process(batch)
        if deaggregator.counts.dropped:
            # SPK-6: "What the kcl policy drops MUST be logged by each task, by reason."
            _log.warning("dropped as the KCL does: %s", dict(deaggregator.counts.dropped))


_PLACE = ["shardId", "sequenceNumber"]
_SUB, _LAST = "subSequenceNumber", "lastSubSequenceNumber"
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def handled_runs(df: DataFrame) -> DataFrame:
    """The names in ``df`` (``shardId``, ``sequenceNumber``, ``subSequenceNumber``; with ``streamName`` where
    it has that) as runs, ``subSequenceNumber`` to ``lastSubSequenceNumber``; other columns are left out. What
    is there twice stays twice. A sub-sequence number that is null stays null, in a row of its own: it means 0
    for a record that is no aggregate, and nothing for an aggregate.

    Rows of ``df`` may be runs already, with ``lastSubSequenceNumber``: those of several days can be put
    together and made small again. A Kinesis record of which all user records are there once is one row, so
    the result is about as large as the ledgers of the producers.

    Raises TypeError for a column of a type that cannot hold its values, before a job starts. A text that is
    no number fails the job (USER_RAISED_EXCEPTION names the column), and so does a run that ends before it
    begins.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    fold = folding(df.sparkSession)
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
    # A run goes on with the next sub-sequence number of its Kinesis record. A negative one, and a row that
    # names no Kinesis record, say nothing of a user record: they stay rows of their own.
    before = F.lag(_LAST).over(Window.partitionBy(*place).orderBy(_SUB, _LAST))
    named = reduce(and_, [F.col(name).isNotNull() for name in _PLACE])
    goes_on = F.coalesce(named & (before >= 0) & (F.col(_SUB) == before + 1), F.lit(False))
    begins = runs.withColumn("_run", F.when(goes_on, 0).otherwise(1))
    # (Of equal rows the one that goes on comes first.)
    so_far = Window.partitionBy(*place).orderBy(_SUB, _LAST, "_run").rowsBetween(Window.unboundedPreceding, 0)
    numbered = begins.withColumn("_run", F.sum("_run").over(so_far))
    result = numbered.groupBy(*place, "_run").agg(F.min(_SUB).alias(_SUB), F.max(_LAST).alias(_LAST))
    return result.drop("_run")


__all__ = ["deaggregate", "handled_runs", "is_aggregated", "register_table_function", "verify"]
