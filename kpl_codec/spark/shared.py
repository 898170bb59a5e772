"""A value for all tasks, sent once per worker, not with every task."""

from __future__ import annotations

import gc
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Value = TypeVar("Value")


class Shared(Generic[Value]):
    """Gives the value in a task. ``broadcast``: a Spark Broadcast of it, which a worker unpickles once."""

    def __init__(self, value: Any, broadcast: Any = None) -> None:
        self._value, self._broadcast = value, broadcast

    def get(self) -> Value:
        value: Value = self._value if self._broadcast is None else self._broadcast.value
        return value


def shared(spark: SparkSession, value: Value) -> Shared[Value]:
    """``value`` for tasks of ``spark``. Spark Connect has no broadcasts: there it is sent with every task."""
    from pyspark.errors import PySparkException

    # SPK-8: "The shard map MUST be sent to each worker once, whatever the number of tasks."
    try:
        return Shared(None, spark.sparkContext.broadcast(value))
    except PySparkException:
        return Shared(value)


@cache
def keep_modules() -> None:
    """Garbage collections of this process leave out what it has loaded by now. Spark makes a full one after
    each task: 30 ms, where a task on 40 MB took 80."""
    gc.freeze()
