"""A value for all tasks, sent once per worker, not with every task."""

from __future__ import annotations

import gc
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..shards.shard_map import ShardMap

Value = TypeVar("Value")
#: Shard maps that are in use, with the session that sent them.
_sent: WeakKeyDictionary[ShardMap, tuple[SparkSession, Shared[ShardMap | None]]] = WeakKeyDictionary()


class Shared(Generic[Value]):
    """Gives the value in a task; made by `shared`."""

    def __init__(self, value: Any, *, broadcast: bool) -> None:
        self._value, self.broadcast = value, broadcast

    def get(self) -> Value:
        """The value. A worker process unpickles it when it asks for the first time."""
        value: Value = self._value.value if self.broadcast else self._value
        return value


def shared(spark: SparkSession, value: Value) -> Shared[Value]:
    """``value`` for tasks of ``spark``. Spark Connect has no broadcasts: there it is sent with every task."""
    from pyspark.errors import PySparkException

    try:
        return Shared(spark.sparkContext.broadcast(value), broadcast=True)
    except PySparkException:
        return Shared(value, broadcast=False)


def shared_map(spark: SparkSession, shard_map: ShardMap | None) -> Shared[ShardMap | None]:
    """The same for a shard map. They never change: what was sent before is not sent again."""
    if shard_map is None:
        return Shared(None, broadcast=False)
    # SPK-8: "The shard map MUST be sent to each worker once, whatever the number of tasks."
    session, sent = _sent.get(shard_map, (None, None))
    if sent is None or session is not spark:
        sent = shared(spark, shard_map)
        if sent.broadcast:  # else it holds the map, which would stay
            _sent[shard_map] = spark, sent
    return sent


@cache
def keep_modules() -> None:
    """Frees the collections of garbage in this worker process from what it has loaded by now. Spark makes a
    full one after each task: 30 ms, where a task on 40 MB took 80."""
    gc.freeze()
