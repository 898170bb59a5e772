"""The columns of a user's DataFrame: which have our names, which conflict, and the result's columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .. import arrow
from ..adapters.shapes import standard_name
from ..arrow.layout import FIELDS
from ..deaggregation.policy_rules import Policy, rules_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


#: The Arrow schema of a result: of the input's, and of the chosen columns.
SchemaOf = Callable[..., pa.Schema]


def result_with(policy: Policy, **kinds: Any) -> SchemaOf:
    """``kinds``: placement, tags, unframe. Raises ValueError for an unknown policy."""
    rules_of(policy)
    return partial(arrow.output_schema, policy=policy, dictionaries=False, **kinds)


def _added_fields(schema_of: SchemaOf) -> list[pa.Field]:
    return list(schema_of(pa.schema([("data", pa.binary())])))[len(FIELDS) :]


def matched(df: DataFrame, schema_of: SchemaOf) -> DataFrame:
    """``df`` with our names for columns that the session matches with them. Raises ValueError for a column
    that conflicts with one to be added."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # SPK-9: "Column names MUST match as the session matches them; a column of the input that has the name
    # of one to be added MUST be refused, unless an earlier run added it."
    added = _added_fields(schema_of)
    fold, names = folding(df.sparkSession), df.columns
    new: dict[str, str] = {}
    for field in (*FIELDS, *added):
        same = [name for name in names if fold(name) == fold(field.name)]
        if len(same) > 1:
            raise ValueError(f"column {field.name} is there {len(same)} times: {', '.join(same)}")
        new |= {name: field.name for name in same}
    # Columns of an earlier run come with these two, which say that a row was opened.
    from_earlier_run = {"aggregated", "subSequenceNumber"} <= set(new.values())
    types = {field.name: field.dataType.simpleString() for field in df.schema.fields}
    ours = {f.name: f.dataType.simpleString() for f in from_arrow_schema(pa.schema(added)).fields}
    in_the_way = [
        name
        for name, standard in new.items()
        if standard in ours and not (from_earlier_run and types[name] == ours[standard])
    ]
    if in_the_way:
        conflicts = ", ".join(f"{name} ({types[name]})" for name in in_the_way)
        raise ValueError(f"the result has columns of the same name: {conflicts}. Rename yours first")
    return df.withColumnsRenamed(new)


def folding(spark: SparkSession) -> Callable[[str], str]:
    """A function that gives equal texts for names that the session takes for the same."""
    exact = (spark.conf.get("spark.sql.caseSensitive") or "false").lower() == "true"  # Spark takes TRUE
    return str if exact else str.lower


def with_shard_column(df: DataFrame) -> tuple[DataFrame, bool]:
    """``df`` with the names that `validate` gives to connectors' columns. Where it has no ``shardId``, also
    with empty columns ``shardId`` and ``shardIdFrom`` for `captures.capture_rows` to fill, and True.
    Raises ValueError."""
    from pyspark.sql import functions as f

    fold = folding(df.sparkSession)
    present = {fold(name) for name in df.columns}
    for field in df.schema.fields:
        standard = standard_name(field.name)
        if standard is None or fold(standard) in present or field.name == "shard":
            continue
        fits = {"data": "binary", "approximateArrivalTimestamp": "timestamp"}.get(standard, "string")
        # Where case counts, shardid is not our shardId.
        if field.dataType.simpleString() == fits and field.name.lower() != standard.lower():
            df = df.withColumnRenamed(field.name, standard)
            present.add(fold(standard))
    if fold("shardId") in present:
        return df, False
    if fold("sequenceNumber") not in present:
        raise ValueError(
            "verify needs a column shardId or sequenceNumber: a verdict is about the shard a record lies on"
        )
    empty = f.lit(None).cast("string")
    return df.withColumn("shardId", empty).withColumn("shardIdFrom", empty), True


def output_schema(
    schema: StructType, schema_of: SchemaOf, columns: Sequence[str] | None = None
) -> StructType:
    """The Spark schema of the result; the workers use the real Arrow schema. Raises TypeError, CaptureError,
    ValueError."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    out = schema_of(arrow_schema_of(schema), columns=columns)
    # A copied column keeps its Spark type, also one with one of our names that this run does not add.
    added = {field.name for field in (*FIELDS, *_added_fields(schema_of))}
    fields = {field.name: StructField(field.name, field.dataType) for field in schema.fields}
    fields |= {f.name: f for f in from_arrow_schema(pa.schema(f for f in out if f.name in added)).fields}
    return StructType([fields[field.name] for field in out])


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects for one of its own: the names of its arguments have changed."""
    from pyspark.sql.pandas.types import to_arrow_schema

    named: Any = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    arrow: pa.Schema = to_arrow_schema(schema, **named)
    return arrow
