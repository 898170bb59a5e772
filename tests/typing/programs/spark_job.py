"""A Spark job: reads captures, checks them, writes what is lost."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

import kpl_codec as kpl
from kpl_codec.spark import deaggregate, is_aggregated, local_session, verify


def lost(df: DataFrame, shard_map: kpl.ShardMap) -> DataFrame:
    checked = verify(df.where(is_aggregated("data")), shard_map, columns=["partitionKey", "kcl"])
    return checked.where("kcl = 'dropped'")


def main(path: str, shards: bytes) -> int:
    spark: SparkSession = local_session("orders", cores=2)
    shard_map = kpl.ShardMap.from_json(shards, stream="orders")
    captured = spark.read.parquet(path)
    lost(captured, shard_map).write.parquet(f"{path}-lost")
    return deaggregate(captured, "strict", shard_map=shard_map).count()
