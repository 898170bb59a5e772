"""Metrics of a query's batches, as Spark's observed metrics and in its progress.

    df = with_metrics(spark.readStream.format("kpl-kinesis")...load())
    query = df.writeStream...start()
    metrics_of(query.lastProgress)      # {"userRecords": 1200, "bytes": ..., "millisBehindLatest": 350, ...}

The query's progress always shows how far it is behind, in total and per shard, as the source's latest offset
(PySpark 4.2 and newer).
Specification: spec/07-spark-source.md, SPK-70.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Name of the observation unless another is given.
OBSERVED = "kpl-kinesis"


def with_metrics(df: DataFrame, name: str = OBSERVED) -> DataFrame:
    """The same rows, counted without a second pass.

    ``userRecords``, ``kinesisRecords`` (those of which the first user record is there: under the kcl policy
    others are not counted), ``bytes`` of data, and if the columns exist: ``findings`` (rows with
    an error), ``misplaced`` (on a shard whose range does not hold them) and ``oldestArrival``,
    ``newestArrival`` (milliseconds since 1970).
    """
    from pyspark.sql import functions as f

    columns = set(df.columns)
    # SPK-70: "User records, Kinesis records, bytes and findings of every batch MUST be countable without
    # reading the stream a second time."
    metrics = [f.count(f.lit(1)).alias("userRecords")]
    if "data" in columns:
        metrics.append(f.coalesce(f.sum(f.length("data")), f.lit(0)).alias("bytes"))
    if "subSequenceNumber" in columns:
        first = f.col("firstOfRecord") if "firstOfRecord" in columns else f.col("subSequenceNumber") == 0
        metrics.append(f.count(f.when(first, 1)).alias("kinesisRecords"))
    if "error" in columns:
        metrics.append(f.count("error").alias("findings"))
    if "placement" in columns:
        metrics.append(f.count(f.when(f.col("placement") == "stray", 1)).alias("misplaced"))
    if "approximateArrivalTimestamp" in columns:
        arrival = f.unix_millis("approximateArrivalTimestamp")
        metrics += [f.min(arrival).alias("oldestArrival"), f.max(arrival).alias("newestArrival")]
    return df.observe(name, *metrics)


def metrics_of(progress: Any, name: str = OBSERVED) -> dict[str, Any]:
    """The metrics in a query's progress (``query.lastProgress``, or a listener's), with
    ``millisBehindLatest`` of the slowest shard and ``behind`` by shard. Missing ones are left out."""
    # Before 4.2 the mapping has offsets as Python prints them; the JSON is always right.
    report: Mapping[str, Any] = json.loads(progress.json) if hasattr(progress, "json") else progress
    observed = (report.get("observedMetrics") or {}).get(name)
    metrics: dict[str, Any] = {}
    if observed is not None:
        metrics.update(observed if isinstance(observed, Mapping) else observed.asDict())
    for source in report.get("sources") or ():
        latest = source.get("latestOffset")
        latest = json.loads(latest) if isinstance(latest, str) else latest
        if isinstance(latest, Mapping) and "millisBehindLatest" in latest:
            metrics["millisBehindLatest"] = latest["millisBehindLatest"]
            metrics["behind"] = latest.get("behind", {})
    return metrics
