"""A value for all tasks, sent once per worker, not with every task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    if value is None:
        return Shared(value, broadcast=False)
    # SPK-8: "The shard map MUST be sent to each worker once, whatever the number of tasks."
    try:
        return Shared(spark.sparkContext.broadcast(value), broadcast=True)
    except PySparkException:
        return Shared(value, broadcast=False)
