"""Rows of several streams and one shard map, in DataFrames."""

from __future__ import annotations

from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.spark import deaggregate, verify

from ..validate.test_streams import KEYS, LOST, map_of, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
SCHEMA = "streamName string, shardId string, sequenceNumber string, partitionKey string, data binary"


def frame(spark: Any, name: str) -> Any:
    return spark.createDataFrame([tuple(row.values()) for row in rows_of(name)], SCHEMA)


@pytest.mark.requirement("SPK-5", "SPK-110")
@pytest.mark.parametrize("column", ["streamName", "stream"])
def test_a_map_judges_the_rows_of_its_stream(spark: Any, column: str) -> None:
    """Of a union, also by columns that do not have the stream. Databricks calls its column stream."""
    both = frame(spark, "a").unionByName(frame(spark, "b")).withColumnRenamed("streamName", column)
    for own, other in ("ab", "ba"):
        checked = verify(both, map_of(own, named=True))
        found = checked.groupBy("streamName", "placement").count().collect()
        counts = {(row.streamName, row.placement): row["count"] for row in found}
        expected = {(other, None): 3 * len(KEYS), (own, "expected"): 3 * len(KEYS) - LOST[own]}
        assert counts == expected | ({(own, "stray"): LOST[own]} if LOST[own] else {})
        lean = verify(both, map_of(own, named=True), columns=["placement"])
        assert lean.where("placement is null").count() == 3 * len(KEYS)
        if column == "streamName":
            given = deaggregate(both, "kcl", shard_map=map_of(own, named=True), columns=["data"])
            assert given.count() == 2 * 3 * len(KEYS) - LOST[own]


@pytest.mark.slow
@pytest.mark.requirement("SPK-111")
def test_rows_of_two_streams_need_a_map_that_says_whose_it_is(spark: Any) -> None:
    a, b = frame(spark, "a"), frame(spark, "b")
    nameless = map_of("a", named=False)
    for alone in (a, b):
        assert verify(alone, nameless).count() == 3 * len(KEYS)
    together = a.unionByName(b).coalesce(1)
    for asked in (verify(together, nameless), deaggregate(together, "kcl", shard_map=nameless.to_json())):
        with pytest.raises(Exception, match="stream=NAME"):
            asked.count()
    assert verify(together, kpl.ShardMap.from_json(nameless.to_json(), stream="a")).count() == 6 * len(KEYS)
