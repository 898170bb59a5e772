"""Planning and reading against a real server, without Spark: what a query does, batch by batch."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from kpl_codec.spark.source.datasource import KinesisPartition, KinesisStreamReader, arrow_schema
from kpl_codec.spark.source.kinesis_reader import KinesisReader
from kpl_codec.spark.source.offsets import ShardRange
from kpl_codec.spark.source.planner import Planner
from kpl_codec.spark.source.source_options import parse_options

from .support import Name, Stream, in_order_per_key

pytestmark = pytest.mark.server
Rows = Iterator[tuple[Name, str, bytes]]


def reader_of(stream: Stream, **options: Any) -> KinesisStreamReader:
    settings = stream.parsed(**options)
    return KinesisStreamReader(settings, from_arrow_schema(arrow_schema(settings)))


def rows_of(reader: KinesisStreamReader, partition: KinesisPartition) -> Rows:
    for batch in reader.read(partition):
        for row in batch.to_pylist():
            name = row["shardId"], row["sequenceNumber"], row["subSequenceNumber"]
            yield name, row["partitionKey"], row["data"]


def rows_of_piece(stream: Stream, piece: ShardRange, **options: Any) -> Rows:
    reader = reader_of(stream, **options)
    yield from rows_of(reader, KinesisPartition((piece,), consumer=reader.consumer()))


class Query:
    """The life of a query without Spark: plan, write down, read; the offset survives as JSON only."""

    def __init__(self, stream: Stream, **options: Any) -> None:
        self.stream, self.options = stream, options
        self.log: list[str] = []
        self.rows: list[tuple[Name, str, bytes]] = []
        self.restart()

    def restart(self) -> None:
        self.reader = reader_of(self.stream, **self.options)

    @property
    def at(self) -> dict[str, Any]:
        return json.loads(self.log[-1]) if self.log else {}

    def batch(self) -> list[tuple[Name, str, bytes]] | None:
        """One micro-batch; None where there is nothing."""
        if not self.at:
            assert self._plan() == []  # settles the start
        return self._plan()

    def _plan(self) -> list[tuple[Name, str, bytes]] | None:
        start = self.at
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if json.dumps(end) == json.dumps(start):
            return None
        self.log.append(json.dumps(end))
        rows = list(self.read(start, end))
        self.rows += rows
        return rows

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> Rows:
        for partition in self.reader.partitions(start, json.loads(json.dumps(end))):
            yield from rows_of(self.reader, partition)

    def until_idle(self) -> None:
        while self.batch() is not None:
            pass


@pytest.mark.requirement("SPK-53", "SPK-54", "SPK-55", "LIN-2")
def test_every_user_record_once_through_splits_and_merges(make_stream: Any) -> None:
    stream = make_stream(2)
    query = Query(stream, describeShardInterval=3600)  # the end of a shard is enough to look for children
    chance = random.Random(7)
    for round_number in range(14):
        stream.put(chance.randrange(1, 8))
        if round_number % 3 == 1:
            stream.split(chance.choice(stream.open_shards).shard_id)
        if round_number % 3 == 2:
            stream.merge_neighbours(chance)
        if chance.random() < 0.5:
            query.batch()
        if chance.random() < 0.3:
            query.restart()
    query.until_idle()
    stream.check(query.rows)
    # Children after their parents: the numbers of every partition key grow.
    assert in_order_per_key((key, data) for _, key, data in query.rows)
    assert len(stream.open_shards) < len(query.at["shards"])


@pytest.mark.requirement("SPK-56")
@pytest.mark.parametrize("position", ["TRIM_HORIZON", "LATEST"])
def test_a_spark_that_does_not_say_where_the_query_stands(make_stream: Any, position: str) -> None:
    """PySpark 4.0 and 4.1: the first offset must fit both a new query and one that goes on."""
    stream = make_stream(2)
    stream.put(5)
    time.sleep(0.05)
    query = Query(stream, startingPosition=position)
    end = query.reader.latestOffset()  # a new query
    rows = list(query.read({}, end))
    if position == "LATEST":
        assert rows == []
        stream.sent.clear()
    stream.put(5)
    stream.split("shardId-000000000001")
    stream.put(5)
    query.restart()
    again = query.reader.latestOffset()  # one that goes on, from its checkpoint
    rows += query.read(end, again)
    stream.put(5)
    time.sleep(0.2)  # a shard that had nothing a moment ago is not asked again at once
    rows += query.read(again, query.reader.latestOffset())  # and on
    stream.check(rows)


def test_many_shards_are_planned_at_the_same_time_until_one_fails() -> None:
    reader = KinesisReader(None, parse_options({"stream": "s", "region": "us-east-1"}))
    planner = Planner(reader, workers=3)
    together = threading.Barrier(3, timeout=60)
    keys = [str(number) for number in range(500)]

    def square(shard_id: str) -> int:
        if int(shard_id) < 3:
            together.wait()  # BrokenBarrierError unless three are under way
        return int(shard_id) ** 2

    assert list(planner.each(square, keys).items()) == [(key, int(key) ** 2) for key in keys]
    begun: list[str] = []

    def fail(shard_id: str) -> None:
        begun.append(shard_id)
        if shard_id == "1":
            raise KeyError("a test")
        time.sleep(0.05)

    with pytest.raises(KeyError, match="a test"):
        planner.each(fail, keys)
    assert len(begun) < 500  # all would take eight seconds
