"""A value for all tasks, sent once per worker, not with every task."""

from __future__ import annotations

import gc
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..shards.shard_map import ShardMap

Value = TypeVar("Value")


class Shared(Generic[Value]):
    """Gives the value in a task; made by `shared`."""

    def __init__(self, value: Any, *, broadcast: bool) -> None:
        self._value, self._broadcast = value, broadcast

    def get(self) -> Value:
        """The value. A worker process unpickles it when it asks for the first time."""
        value: Value = self._value.value if self._broadcast else self._value
        return value


def shared(spark: SparkSession, value: Value) -> Shared[Value]:
    """``value`` for tasks of ``spark``. Spark Connect has no broadcasts: there it is sent with every task."""
    from pyspark.errors import PySparkException

    try:
        return Shared(spark.sparkContext.broadcast(value), broadcast=True)
    except PySparkException:
        return Shared(value, broadcast=False)


def shared_map(spark: SparkSession, shard_map: ShardMap | None) -> Shared[ShardMap | None]:
    """The same for a shard map, or for none."""
    # SPK-8: "The shard map MUST be sent to each worker once, whatever the number of tasks."
    return Shared(None, broadcast=False) if shard_map is None else shared(spark, shard_map)


@cache
def keep_modules() -> None:
    """Frees the collections of garbage in this worker process from what it has loaded by now. Spark makes a
    full one after each task: 30 ms, where a task on 40 MB took 80."""
    gc.freeze()
