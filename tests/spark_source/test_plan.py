"""Planning and reading against a real server, without Spark: what a query does, batch by batch."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kpl_codec.spark.kinesis_plan import Caps, Planner
from kpl_codec.spark.kinesis_read import KinesisPartition, KinesisStreamReader, PieceReader, make_planner
from kpl_codec.spark.offsets import DataLoss, Piece, StreamOffset, batch_pieces

from .support import Name, Stream, in_order_per_key

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]
ALL = Caps()


class Query:
    """The life of a query without Spark: plan, write down, read; the offset survives as JSON only."""

    def __init__(self, stream: Stream, **options: Any) -> None:
        self.stream = stream
        self.options = stream.parsed(**options)
        self.reader = KinesisStreamReader(self.options, _schema(self.options))
        self.log: list[str] = []
        self.rows: list[tuple[Name, str, bytes]] = []
        self.order: list[tuple[str, bytes]] = []

    def restart(self) -> None:
        self.reader = KinesisStreamReader(self.options, _schema(self.options))

    @property
    def at(self) -> dict[str, Any]:
        return json.loads(self.log[-1]) if self.log else {}

    def batch(self) -> list[tuple[Name, str, bytes]] | None:
        """One micro-batch; None where there is nothing."""
        start = self.at
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if json.dumps(end) == json.dumps(start):
            return None
        self.log.append(json.dumps(end))
        rows = list(self.read(start, end))
        self.rows += rows
        return rows

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[Name, str, bytes]]:
        for partition in self.reader.partitions(start, json.loads(json.dumps(end))):
            yield from rows_of(self.reader, partition)

    def until_idle(self) -> int:
        batches = 0
        while self.batch() is not None:
            batches += 1
        return batches


def _schema(options: Any) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    from kpl_codec.spark.kinesis_read import arrow_schema

    return from_arrow_schema(arrow_schema(options))


def rows_of(reader: Any, partition: KinesisPartition) -> Iterator[tuple[Name, str, bytes]]:
    for batch in reader.read(partition):
        for row in batch.to_pylist():
            name = row["shardId"], row["sequenceNumber"], row["subSequenceNumber"]
            yield name, row["partitionKey"], row["data"]


@pytest.mark.requirement("SPK-53", "SPK-54", "SPK-55")
def test_every_user_record_once_through_splits_and_merges(make_stream: Any) -> None:
    stream = make_stream(2)
    query = Query(stream)
    chance = random.Random(7)
    for round_number in range(14):
        stream.put(chance.randrange(1, 8))
        if round_number % 3 == 1:
            stream.split(chance.choice(stream.open_shards).shard_id)
        if round_number % 3 == 2:
            shards = sorted(stream.open_shards, key=lambda s: s.hash_key_range.starting_hash_key)
            at = chance.randrange(len(shards) - 1)
            stream.merge(shards[at].shard_id, shards[at + 1].shard_id)
        if chance.random() < 0.5:
            query.batch()
        if chance.random() < 0.3:
            query.restart()
    query.until_idle()
    stream.check(query.rows)
    # Children after their parents: the numbers of every partition key grow.
    assert in_order_per_key((key, data) for _, key, data in query.rows)
    assert len(stream.open_shards) < len(json.loads(query.log[-1])["shards"])


@pytest.mark.requirement("SPK-50")
def test_a_batch_read_again_later_gives_the_same(make_stream: Any) -> None:
    stream = make_stream(1)
    query = Query(stream)
    stream.put(5)
    first = query.batch()
    stream.put(5)
    second = query.batch()
    stream.split("shardId-000000000000")
    stream.put(5)
    query.until_idle()
    stream.check(query.rows)
    log = [json.loads(entry) for entry in query.log]
    query.restart()
    assert list(query.read({}, log[0])) == first
    assert list(query.read(log[0], log[1])) == second
