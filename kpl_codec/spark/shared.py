"""What tasks share: a value that is sent once per worker, and how they open Kinesis records."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from ..deaggregation.policies import Policy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_log = logging.getLogger("kpl_codec.spark")
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


def opened(batches: Iterator[pa.RecordBatch], policy: Policy, **options: Any) -> Iterator[pa.RecordBatch]:
    """The user records of Kinesis records. ``options``: of `Deaggregator`."""
    from ..arrow import Deaggregator

    for first in batches:  # at most one, followed by all the others
        deaggregator = Deaggregator(first.schema, policy, dictionaries=False, **options)
        for batch in chain([first], batches):
            yield from deaggregator.process(batch)
        if deaggregator.counts.dropped:
            # SPK-6: "What the kcl policy drops MUST be logged by each task, by reason."
            _log.warning("dropped as the KCL does: %s", dict(deaggregator.counts.dropped))
