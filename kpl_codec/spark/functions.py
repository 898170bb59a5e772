"""DataFrame functions that call `kpl_codec.arrow` in the workers, for PySpark 3.5 or newer and Spark Connect.

A DataFrame needs a binary column ``data``; the other columns of `kpl_codec.arrow.FIELDS` are used if present,
and all further ones are copied. The workers need kpl_codec. Specification: spec/07-spark.md, SPK-1 to SPK-9.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from ..adapters.shapes import standard_name
from ..arrow import DEFAULT_BATCH_BYTES, FIELDS, coalesce, process_all, schema_of
from ..arrow.layout import TYPES
from ..base.arguments import check_arguments
from ..captures.capture_rows import add_shards
from ..deaggregation.deaggregated_record import Counts
from ..deaggregation.payload import PayloadDecoder
from ..deaggregation.policy_rules import Policy, rules_of
from ..errors import KplError
from ..shards.shard_map import ShardMap
from ..shards.stream_name import StreamMatcher

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


_log = logging.getLogger("kpl_codec.spark")
_Value = TypeVar("_Value")
#: Bytes of Kinesis records that a task opens together at most. PySpark hands over batches of about 1 MiB, and
#: to begin one takes a millisecond.
_INPUT_BYTES = 8 * 1024 * 1024
#: The one column of a streaming DynamicFrame of AWS Glue whose format was not given.
_GLUE_TEXT = "$json$data_infer_schema$_temporary$"


def deaggregate(
    df: DataFrame,
    policy: Policy = "strict",
    *,
    shard_map: ShardMap | None = None,
    max_decompressed_size: int | None = None,
    tags: bool = False,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """The user records of a DataFrame of Kinesis records, which may be a streaming one.

    Its columns are those of `kpl_codec.arrow.schema_of`. ``columns``: the names of the columns to make,
    in their order; no other columns leave Python. ``policy``, ``max_decompressed_size`` (bytes): as for
    `kpl_codec.deaggregate`. A defect that the policy raises fails the job, with its place; each task logs
    what the policy drops.

    ``shard_map``: a ShardMap. One that says its stream, as
    `kpl_codec.aws.fetch_shard_map` gives it, judges the rows of that stream alone. With any other map, a
    worker process that sees a second ``streamName`` fails the job (SeveralStreams).

    Rows that are user records already stay as they are, but for the compression of their data.
    Column names match in any case, unless ``spark.sql.caseSensitive`` is set. A column with the name of one
    to be added is refused, unless an earlier run of these functions added it.

    Raises, before a job starts: TypeError for a column of the wrong type, CaptureError without ``data``,
    ValueError for an unknown policy, an ambiguous, a conflicting or (in ``columns``) an unknown column,
    ShardMapError for an invalid listing.
    """
    check_arguments("deaggregate", locals())
    options: dict[str, Any] = {"max_decompressed_size": max_decompressed_size, "tags": tags}
    return _deaggregate(df, policy, shard_map, columns, **options)


def verify(
    df: DataFrame,
    shard_map: ShardMap,
    *,
    max_decompressed_size: int | None = None,
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
    check_arguments("verify", locals(), required=("shard_map",))
    df, find_shards = with_shard_column(df)
    options: dict[str, Any] = {"max_decompressed_size": max_decompressed_size}
    return _deaggregate(df, "report", shard_map, columns, find_shards, tags=tags, **options)


def _deaggregate(
    df: DataFrame,
    policy: Policy,
    shard_map: ShardMap | None,
    columns: Sequence[str] | None,
    find_shards: bool = False,
    **options: Any,
) -> DataFrame:
    # SPK-5: "The DataFrame functions MUST give what the Arrow functions give, and MUST refuse columns,
    # policies and shard maps that cannot be used before a job is started."
    names = None if columns is None else list(columns)
    kinds = {"placement": shard_map is not None, "tags": options["tags"]}
    schema_for = partial(schema_of, policy=policy, **kinds)
    df = with_standard_names(df, schema_for)
    schema = result_schema(df.schema, schema_for, names)
    if names is not None:
        # Columns that would only be copied are not sent to the workers, except the two that
        # `with_shard_column` adds.
        used = TYPES.keys() - {"approximateArrivalTimestamp"} | {"shardIdFrom", *names}
        if shard_map is None and "streamName" not in names:
            used -= {"streamName"}
        df = df.drop(*[name for name in df.columns if name not in used])
    # Each worker process remembers which streams it has seen.
    streams = broadcast(df.sparkSession, StreamMatcher(None if shard_map is None else shard_map.stream))
    find_map = broadcast(df.sparkSession, shard_map)
    # Spark's mapInArrow takes a dot or backtick in a name for syntax, and matches columns by position.
    other = {name: f"_kpl_codec_{at}" for at, name in enumerate(df.columns) if set(name) & set(".`")}
    df = df.withColumnsRenamed(other)
    names = names and [other.get(name, name) for name in names]
    return df.mapInArrow(_task(policy, find_map, streams, find_shards, columns=names, **options), schema)


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


def _task(
    policy: Policy,
    find_map: Callable[[], ShardMap | None] = lambda: None,
    streams: Callable[[], StreamMatcher | None] = lambda: None,
    find_shards: bool = False,
    **options: Any,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that each task runs. ``find_shards``: fill the empty columns of `with_shard_column`.
    Raises ValueError."""
    # Raises ValueError for invalid values.
    PayloadDecoder(options.get("max_decompressed_size"), rules_of(policy), Counts())

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _freeze_gc()
        shard_map = find_map()
        batches = coalesce(batches, _INPUT_BYTES)
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
    """A function that returns ``value`` in tasks of ``spark``. Spark Connect has no broadcasts: there each
    task gets ``value`` with its code."""
    context = context_of(spark)
    if context is None:
        return lambda: value
    # SPK-8: "The shard map MUST be sent to each worker once, whatever the number of tasks."
    variable = context.broadcast(value)
    return lambda: variable.value


@contextmanager
def plain_errors() -> Iterator[None]:
    """In a worker process, pass errors of kpl_codec and botocore to Spark without a traceback. The process
    ends with the error, so the environment variable that Spark reads affects no other error."""
    try:
        yield
    except Exception as error:
        ours = isinstance(error, KplError) or type(error).__module__ == "botocore.exceptions"
        if ours and "pyspark.worker_util" in sys.modules:  # a driver loads no such module
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


@cache
def _freeze_gc() -> None:
    """Take the loaded objects out of garbage collection, which Spark runs after each task: it took 30 ms, and
    a whole task on 40 MB 80 ms."""
    gc.freeze()


def deaggregate_in_task(
    batches: Iterator[pa.RecordBatch], policy: Policy, **options: Any
) -> Iterator[pa.RecordBatch]:
    """The user records of Kinesis records. ``options``: of `Deaggregator`."""
    counts = Counts()
    yield from process_all(batches, policy, counts, **options)
    if counts.dropped:
        # SPK-6: "What a policy drops MUST be logged by each task, by reason."
        _log.warning("user records dropped under the policy %s: %s", policy, dict(counts.dropped))


#: A function from an input's Arrow schema, and the ``columns`` to make, to the result's Arrow schema.
SchemaMaker = Callable[..., pa.Schema]


def _added_fields(schema_of: SchemaMaker) -> list[pa.Field]:
    return list(schema_of(pa.schema([("data", pa.binary())])))[len(FIELDS) :]


def with_standard_names(df: DataFrame, schema_of: SchemaMaker) -> DataFrame:
    """``df`` with its columns renamed to the result's spelling, if the session treats the two names as equal.
    Raises ValueError for a column with the name of one that is to be added."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # SPK-9: "Column names MUST match as the session matches them; a column of the input that has the name
    # of one to be added MUST be refused, unless an earlier run added it."
    added = _added_fields(schema_of)
    fold, names = name_folding(df.sparkSession), df.columns
    standard: dict[str, str] = {}
    for field in (*FIELDS, *added):
        same = [name for name in names if fold(name) == fold(field.name)]
        if len(same) > 1:
            raise ValueError(f"column {field.name} is there {len(same)} times: {', '.join(same)}")
        standard |= dict.fromkeys(same, field.name)
    types = dict(df.dtypes)
    text = next((name for name in standard if standard[name] == "data"), _GLUE_TEXT)
    if types.get(text) == "string":
        todo = f"select cast(`{text}` as binary) as data, or unbase64(`{text}`) if it is base64"
        raise TypeError(f"column {text} is text, and records are bytes: {todo}")
    # Only the result of an earlier run has both columns.
    from_earlier_run = {"aggregated", "subSequenceNumber"} <= set(standard.values())
    added_types = {field.name: field.dataType.simpleString() for field in from_arrow_schema(pa.schema(added))}
    conflicts = [
        f"{name} ({types[name]})"
        for name, field_name in standard.items()
        if field_name in added_types and not (from_earlier_run and types[name] == added_types[field_name])
    ]
    if conflicts:
        text = ", ".join(conflicts)
        raise ValueError(f"the result has columns of the same name: {text}. Rename yours first")
    return df.withColumnsRenamed(standard)


def name_folding(spark: SparkSession) -> Callable[[str], str]:
    """A function that maps column names to the same text if the session treats them as equal."""
    exact = (spark.conf.get("spark.sql.caseSensitive") or "false").lower() == "true"  # Spark takes TRUE, too
    return str if exact else str.lower


def with_shard_column(df: DataFrame) -> tuple[DataFrame, bool]:
    """``df`` with other connectors' columns renamed as `validate` renames them, and whether `add_shards` has
    to fill the empty columns ``shardId`` and ``shardIdFrom`` that were added. Raises ValueError."""
    from pyspark.sql import functions as f

    fold = name_folding(df.sparkSession)
    present = {fold(name) for name in df.columns}
    for name, kind in df.dtypes:
        standard = standard_name(name)
        if standard is None or fold(standard) in present or name == "shard":
            continue
        fits = {"data": "binary", "approximateArrivalTimestamp": "timestamp"}.get(standard, "string")
        # If the session distinguishes case, shardid is another column than shardId.
        if kind == fits and name.lower() != standard.lower():
            df = df.withColumnRenamed(name, standard)
            present.add(fold(standard))
    if fold("shardId") in present:
        return df, False
    if fold("sequenceNumber") not in present:
        raise ValueError(
            "verify needs a column shardId or sequenceNumber: a verdict is about the shard a record lies on"
        )
    empty = f.lit(None).cast("string")
    return df.withColumn("shardId", empty).withColumn("shardIdFrom", empty), True


def result_schema(
    schema: StructType, schema_of: SchemaMaker, columns: Sequence[str] | None = None
) -> StructType:
    """The Spark schema of the result. Raises TypeError, CaptureError, ValueError."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    out = schema_of(arrow_schema_of(schema), columns=columns)
    # A copied column keeps its Spark type, also one with one of our names that this run does not add.
    added = {field.name for field in (*FIELDS, *_added_fields(schema_of))}
    fields = {field.name: StructField(field.name, field.dataType) for field in schema.fields}
    fields |= {f.name: f for f in from_arrow_schema(pa.schema(f for f in out if f.name in added)).fields}
    return StructType([fields[field.name] for field in out])


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark uses for a Spark schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # (The arguments differ between versions of Spark.)
    named: Any = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    arrow: pa.Schema = to_arrow_schema(schema, **named)
    return arrow
