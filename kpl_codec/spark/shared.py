"""A value for all tasks, sent once per worker, not with every task."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Value = TypeVar("Value")


def shared(spark: SparkSession, value: Value) -> Callable[[], Value]:
    """Gives ``value`` in tasks of ``spark``. Spark Connect has no broadcasts: there it is sent with every
    task."""
    from pyspark.errors import PySparkException

    # SPK-8: "The shard map MUST be sent to each worker once, whatever the number of tasks."
    try:
        broadcast = spark.sparkContext.broadcast(value)
    except PySparkException:
        return lambda: value
    return lambda: broadcast.value  # a worker process unpickles it when it asks for the first time


@cache
def keep_modules() -> None:
    """Garbage collections of this process leave out what it has loaded by now. Spark makes a full one after
    each task: 30 ms, where a task on 40 MB took 80."""
    gc.freeze()
