"""What a job has handled, made small for `kpl-codec audit`: a row a Kinesis record, not a user record."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = ["shardId", "sequenceNumber"]
_SUB, _LAST = "subSequenceNumber", "lastSubSequenceNumber"


def handled_runs(df: DataFrame) -> DataFrame:
    """The names in ``df`` (``shardId``, ``sequenceNumber``, ``subSequenceNumber``; others are left out)
    as runs, ``subSequenceNumber`` to ``lastSubSequenceNumber``. What is there twice stays twice.

    A Kinesis record of which all user records from the first to the last are there once is one row. So the
    result is about as large as the ledgers of the producers.
    """
    from pyspark.sql import functions as F

    names = df.select(*_PLACE, F.coalesce(F.col(_SUB).cast("long"), F.lit(0)).alias(_SUB))
    sums = [F.count(_SUB).alias("n"), F.count_distinct(_SUB).alias("distinct")]
    ends = [F.min(_SUB).alias("first"), F.max(_SUB).alias("last")]
    records = names.groupBy(*_PLACE).agg(*sums, *ends)
    # AUD-18: "A table of what was handled MUST say the same after it was made small."
    gapless = (F.col("n") == F.col("distinct")) & (F.col("n") == F.col("last") - F.col("first") + 1)
    whole = records.where(gapless).select(*_PLACE, F.col("first").alias(_SUB), F.col("last").alias(_LAST))
    broken = records.where(~gapless).select([F.col(name).alias(f"_{name}") for name in _PLACE])
    same = reduce(and_, [names[name].eqNullSafe(broken[f"_{name}"]) for name in _PLACE])
    others = names.join(broken, same, "left_semi")
    return whole.unionByName(others.withColumn(_LAST, F.col(_SUB)))
