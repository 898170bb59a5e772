"""The data source `kpl-kinesis`: a stream's user records as a DataFrame, batch or streaming, and back.

    spark.dataSource.register(KinesisDataSource)
    df = spark.readStream.format("kpl-kinesis").options(stream="orders", region="eu-west-1").load()

Batch reads and writes need PySpark 4.0 or newer; limits per batch and Trigger.AvailableNow 4.2. The options:
`options`. The package must be installed where the workers run, with pyarrow and boto3.
Specification: spec/07-spark-source.md.
"""

from __future__ import annotations

from collections.abc import MutableMapping

try:
    from pyspark.sql.datasource import DataSource
except ImportError as error:  # pragma: no cover - PySpark 3.5 and older
    raise ImportError(
        "the data source kpl-kinesis needs PySpark 4.0 or newer; on 3.5 use kpl_codec.spark.deaggregate"
    ) from error

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from .options import parse_options
from .positions import OptionError
from .read import KinesisBatchReader, KinesisStreamReader
from .tasks import arrow_schema
from .write import KinesisStreamWriter, KinesisWriter, check_write


class KinesisDataSource(DataSource):
    """See the module. Raises OptionError when it is loaded."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._checked = parse_options(dict(options.items()))

    @classmethod
    def name(cls) -> str:
        return "kpl-kinesis"

    def schema(self) -> StructType:
        """The nine columns of a user record, and those asked for by policy, placement and tags."""
        return from_arrow_schema(arrow_schema(self._checked))

    def _fitting(self, schema: StructType) -> StructType:
        """A schema given by the user: some of our columns, each once, in any order and case."""
        ours = self.schema()
        types = {field.name.lower(): field.dataType for field in ours.fields}
        for field in schema.fields:
            # Each is taken once: two columns of one name, in any case, are refused, as in a write.
            if types.pop(field.name.lower(), None) != field.dataType:
                raise OptionError(
                    option="schema",
                    value=f"{field.name} {field.dataType.simpleString()}",
                    expected=f"columns of {ours}, each once in any case",
                )
        return schema

    def reader(self, schema: StructType) -> KinesisBatchReader:
        # EFO-11: "A batch read MUST refuse to deregister its consumer: Spark tells no source that a batch
        # read has ended."
        if self._checked.consumer is not None and self._checked.consumer.deregister:
            expected = "false in a batch read, whose end Spark does not tell: read with Trigger.AvailableNow"
            raise OptionError(option="requireConsumerDeregistration", value=True, expected=expected)
        return KinesisBatchReader(self._checked, self._fitting(schema))

    def streamReader(self, schema: StructType) -> KinesisStreamReader:
        return KinesisStreamReader(self._checked, self._fitting(schema))

    def writer(self, schema: StructType, overwrite: bool) -> KinesisWriter:
        check_write(schema, overwrite)
        return KinesisWriter(self._checked)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KinesisStreamWriter:
        check_write(schema, overwrite)
        return KinesisStreamWriter(self._checked)
