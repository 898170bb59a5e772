"""`handled_runs`: makes a table of handled user records small, for an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .functions import name_folding

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
    types = {fold(name): kind for name, kind in df.dtypes}
    if fold(_LAST) not in types:
        df = df.withColumn(_LAST, F.lit(None).cast("long"))
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
            return value.cast("long").alias(name)
        # SPK-114: "A value that cannot be read as what its column holds MUST be refused with the column's
        # name, whatever the session makes of such a cast; null alone is null."
        refused = F.raise_error(F.concat(F.lit(f"column {name} is no number: "), F.substring(value, 1, 40)))
        # (\z: $ also matches before a line feed at the end.)
        whole = value.isNull() | value.rlike(r"^-?[0-9]{1,18}\z")
        return F.when(whole, value.cast("long")).otherwise(refused).alias(name)

    names = df.select(*place, number(_SUB), number(_LAST))
    ends = F.coalesce(_LAST, _SUB)
    backwards = F.raise_error(F.lit(f"column {_LAST} is before {_SUB}"))
    last = F.when(ends < F.col(_SUB), backwards).when(F.col(_SUB).isNotNull(), ends)
    runs = names.withColumn(_LAST, last)
    # SPK-113: "A function whose output has the form of its input MUST take its own output, and change nothing
    # in it, or refuse it."
    # AUD-18: "A table of what was handled MUST say the same after it was made small."
    # A run goes on with the next sub-sequence number of its Kinesis record. A negative number, and a row that
    # names no Kinesis record, name no user record: they stay rows of their own.
    of_record = Window.partitionBy(*place)
    before = F.lag(_LAST).over(of_record.orderBy(_SUB, _LAST))
    named = F.col("shardId").isNotNull() & F.col("sequenceNumber").isNotNull()
    goes_on = named & (before >= 0) & (F.col(_SUB) == before + 1)
    begins = runs.withColumn("_run", F.when(goes_on, 0).otherwise(1))
    # (Of equal rows the one that goes on comes first.)
    so_far = of_record.orderBy(_SUB, _LAST, "_run").rowsBetween(Window.unboundedPreceding, 0)
    numbered = begins.withColumn("_run", F.sum("_run").over(so_far))
    result = numbered.groupBy(*place, "_run").agg(F.min(_SUB).alias(_SUB), F.max(_LAST).alias(_LAST))
    return result.drop("_run")
