"""Functions for PySpark (`deaggregate`, `verify`, `is_aggregated`), and the data source `kpl-kinesis`.

The DataFrame functions need PySpark 3.5 or newer, the data source 4.0. Only `local_session` starts a
session. Specification: spec/07-spark.md.

    >>> import kpl_codec as kpl
    >>> from kpl_codec.spark import KinesisDataSource, deaggregate, is_aggregated, local_session, verify
    >>> spark = local_session()
    >>> data = kpl.encode([kpl.UserRecord("customer-1", b"one"), kpl.UserRecord("customer-2", b"two")])
    >>> rows = [(bytearray(data), "shardId-000000000000")]
    >>> records = spark.createDataFrame(rows, "data binary, shardId string")
    >>> [row.partitionKey for row in deaggregate(records).collect()]
    ['customer-1', 'customer-2']
    >>> records.filter(is_aggregated("data")).count()
    1
    >>> shard_map = kpl.ShardMap([kpl.Shard("shardId-000000000000", kpl.ALL_HASH_KEYS)])
    >>> [row.placement for row in verify(records, shard_map).collect()]
    ['expected', 'expected']
    >>> spark.dataSource.register(KinesisDataSource)
    >>> KinesisDataSource.check({"stream": "orders", "region": "us-east-1"})
    >>> spark.read.format("kpl-kinesis").options(stream="orders", region="us-east-1").load().count()
    40
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.lazy import lazy_names, require_extras

with require_extras("kpl_codec.spark"):
    from .functions import deaggregate, is_aggregated, verify
    from .session import local_session

if TYPE_CHECKING:
    from .source.datasource import KinesisDataSource
else:  # PySpark 3.5 has no data sources
    __getattr__, __dir__ = lazy_names(__name__, {"KinesisDataSource": "source.datasource"})

__all__ = [
    "KinesisDataSource",
    "deaggregate",
    "is_aggregated",
    "local_session",
    "verify",
]
