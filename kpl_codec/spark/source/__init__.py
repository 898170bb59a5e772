"""The data source `kpl-kinesis` of Spark: its options, planning, reading, writing. See
spec/07-spark-source.md."""

from ...errors import KplError


class NoDataSource(KplError, ImportError):
    """This PySpark has no data sources in Python."""

    code = "no-data-source"
    text = "the data source kpl-kinesis needs PySpark 4.0 or newer; on 3.5 use kpl_codec.spark.deaggregate"
    concerns = "The Spark query, which did not start."
    todo = "Use PySpark 4.0 or newer for streams."
