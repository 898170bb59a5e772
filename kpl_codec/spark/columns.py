"""Columns of a user's DataFrame: which are Kinesis columns, which conflict with the result's."""

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


#: A function from an input's Arrow schema, and the ``columns`` to make, to the result's Arrow schema.
SchemaMaker = Callable[..., pa.Schema]


def schema_maker(policy: Policy, **kinds: Any) -> SchemaMaker:
    """``kinds``: placement, tags, unframe. Raises ValueError for an unknown policy."""
    rules_of(policy)
    return partial(arrow.output_schema, policy=policy, dictionaries=False, **kinds)


def _added_fields(schema_of: SchemaMaker) -> list[pa.Field]:
    return list(schema_of(pa.schema([("data", pa.binary())])))[len(FIELDS) :]


def with_standard_names(df: DataFrame, schema_of: SchemaMaker) -> DataFrame:
    """``df`` with each column that the session takes for one of the result's spelt as there. Raises
    ValueError for a column that conflicts with one to be added."""
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
        standard |= {name: field.name for name in same}
    # The result of an earlier run has these two.
    from_earlier_run = {"aggregated", "subSequenceNumber"} <= set(standard.values())
    types = {field.name: field.dataType.simpleString() for field in df.schema.fields}
    added_types = {f.name: f.dataType.simpleString() for f in from_arrow_schema(pa.schema(added)).fields}
    conflicts = [
        f"{name} ({types[name]})"
        for name, standard_name in standard.items()
        if standard_name in added_types
        and not (from_earlier_run and types[name] == added_types[standard_name])
    ]
    if conflicts:
        text = ", ".join(conflicts)
        raise ValueError(f"the result has columns of the same name: {text}. Rename yours first")
    return df.withColumnsRenamed(standard)


def name_folding(spark: SparkSession) -> Callable[[str], str]:
    """A function that gives equal texts for column names that the session takes for the same."""
    exact = (spark.conf.get("spark.sql.caseSensitive") or "false").lower() == "true"  # Spark takes TRUE
    return str if exact else str.lower


def with_shard_column(df: DataFrame) -> tuple[DataFrame, bool]:
    """``df`` with other connectors' columns renamed as `validate` renames them, and whether `add_shards` has
    to fill the empty columns ``shardId`` and ``shardIdFrom`` that were added. Raises ValueError."""
    from pyspark.sql import functions as f

    fold = name_folding(df.sparkSession)
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
    """The Arrow schema that Spark uses for one of its own."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # (Spark's versions have other arguments.)
    named: Any = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    arrow: pa.Schema = to_arrow_schema(schema, **named)
    return arrow
