"""Planning and reading against a real server, without Spark: what a query does, batch by batch."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kpl_codec.spark.source import shard_planner
from kpl_codec.spark.source.datasource import KinesisPartition, KinesisStreamReader
from kpl_codec.spark.source.kinesis_reader import KinesisReader
from kpl_codec.spark.source.offsets import DataLoss, OffsetError, ShardRange, StreamOffset, batch_pieces
from kpl_codec.spark.source.planner import Planner
from kpl_codec.spark.source.shard_planner import ReadLimits
from kpl_codec.spark.source.source_options import parse_options

from .support import Name, Stream, in_order_per_key

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


class Query:
    """The life of a query without Spark: plan, write down, read; the offset survives as JSON only."""

    def __init__(self, stream: Stream, **options: Any) -> None:
        self.stream = stream
        self.options = stream.parsed(**options)
        self.reader = KinesisStreamReader(self.options, _schema(self.options))
        self.log: list[str] = []
        self.rows: list[tuple[Name, str, bytes]] = []

    def restart(self) -> None:
        self.reader = KinesisStreamReader(self.options, _schema(self.options))

    @property
    def at(self) -> dict[str, Any]:
        return json.loads(self.log[-1]) if self.log else {}

    def batch(self) -> list[tuple[Name, str, bytes]] | None:
        """One micro-batch; None where there is nothing."""
        start = self.at
        if not start:
            assert self.plan(start) == []  # settles the start
            start = self.at
        return self.plan(start)

    def plan(self, start: dict[str, Any]) -> list[tuple[Name, str, bytes]] | None:
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

    from kpl_codec.spark.source.datasource import arrow_schema

    return from_arrow_schema(arrow_schema(options))


def rows_of(reader: Any, partition: KinesisPartition) -> Iterator[tuple[Name, str, bytes]]:
    for batch in reader.read(partition):
        for row in batch.to_pylist():
            name = row["shardId"], row["sequenceNumber"], row["subSequenceNumber"]
            yield name, row["partitionKey"], row["data"]


@pytest.mark.requirement("SPK-53", "SPK-54", "SPK-55", "LIN-2")
def test_every_user_record_once_through_splits_and_merges(make_stream: Any) -> None:
    stream = make_stream(2)
    query = Query(stream, describeShardInterval=3600)  # an end is enough to look for children
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


@pytest.mark.requirement("SPK-59")
def test_a_backlog_is_cut_by_time_and_planned_with_few_reads(
    make_stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_planner, "_LOOK_RECORDS", 3)
    stream = make_stream(1)
    for _ in range(20):
        time.sleep(0.2)
        stream.put(4)
    in_stream = len({name[1] for name in stream.sent})
    options = stream.parsed(maxSecondsPerShard=1)
    client = CountingClient(options.client())
    planner = Planner(KinesisReader(client, options))
    caps = ReadLimits(span=int(options.max_span * 1000))
    at, found, batches = planner.begin_at(options.starting_position), [], 0
    while True:
        after = planner.advance(at, caps)
        new = batch_pieces(at, after)
        if not new:
            break
        found += new
        batches += 1
        at = after
    assert 4 <= batches <= 8
    # The driver found the ends without reading what lies between.
    assert client.records < in_stream * 0.4
    stream.check(row for piece in found for row in rows_of_piece(stream, piece))


class CountingClient:
    """A client that counts the records it is given."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.records = 0

    def get_records(self, **arguments: Any) -> Any:
        answer = self._client.get_records(**arguments)
        self.records += len(answer["Records"])
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def rows_of_piece(stream: Stream, piece: ShardRange, **options: Any) -> Iterator[tuple[Name, str, bytes]]:
    parsed = stream.parsed(**options)
    reader = KinesisStreamReader(parsed, _schema(parsed))
    yield from rows_of(reader, KinesisPartition((piece,), consumer=reader.consumer()))


@pytest.mark.requirement("SPK-56")
def test_latest_is_settled_when_the_query_starts(make_stream: Any) -> None:
    stream = make_stream(2)
    stream.put(5)
    time.sleep(0.05)
    query = Query(stream, startingPosition="LATEST")
    assert query.batch() is None  # but an empty batch that writes the start down
    assert len(query.log) == 1
    stream.sent.clear()
    stream.put(5)
    query.restart()  # a start that was settled again would skip them
    query.until_idle()
    stream.check(query.rows)


@pytest.mark.requirement("SPK-52")
def test_the_checkpoint_of_another_stream_is_refused(make_stream: Any) -> None:
    stream = make_stream(1)
    query = Query(stream)
    stream.put(1)
    query.batch()
    with pytest.raises(OffsetError, match="of stream"):
        StreamOffset.from_json(query.at, "another")
    with pytest.raises(OffsetError, match="version"):
        StreamOffset.from_json({**query.at, "version": 2}, stream.name)
    assert StreamOffset.from_json(query.at, stream.name).to_json() == query.at


@pytest.mark.requirement("SPK-56")
def test_a_start_by_shard(make_stream: Any) -> None:
    stream = make_stream(2)
    stream.put(5)
    shard = "shardId-000000000000"
    stream.split(shard)
    stream.put(5)
    numbers = sorted({number for where, number, _ in stream.sent if where == shard}, key=int)
    start = {shard: {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": numbers[1]}}
    query = Query(stream, startingPosition=json.dumps(start))
    query.until_idle()
    for name in [name for name in stream.sent if name[0] == shard and int(name[1]) <= int(numbers[1])]:
        del stream.sent[name]
    stream.check(query.rows)
    # A child that is named: its parent is taken as read.
    children = [found.shard_id for found in stream.open_shards if found.parent_shard_id == shard]
    query = Query(stream, startingPosition=json.dumps(dict.fromkeys(children, "TRIM_HORIZON")))
    query.until_idle()
    for name in [name for name in stream.sent if name[0] == shard]:
        del stream.sent[name]
    stream.check(query.rows)


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


def test_many_shards_are_planned_at_the_same_time() -> None:
    planner = Planner(
        KinesisReader(None, parse_options({"streamName": "s", "region": "us-east-1"})), workers=3
    )
    together = threading.Barrier(3, timeout=30)

    def square(shard_id: str) -> int:
        if shard_id in ("0", "1", "2"):
            together.wait()  # BrokenBarrierError unless three are under way
        return int(shard_id) ** 2

    shard_ids = [str(number) for number in range(500)]
    assert list(planner.each(square, shard_ids).items()) == [(key, int(key) ** 2) for key in shard_ids]


def test_what_planning_one_shard_raises_is_raised_and_no_other_is_begun() -> None:
    planner = Planner(
        KinesisReader(None, parse_options({"streamName": "s", "region": "us-east-1"})), workers=3
    )
    begun: list[str] = []

    def fail(shard_id: str) -> None:
        begun.append(shard_id)
        if shard_id == "1":
            raise DataLoss(shard_id=shard_id, sequence_number=None, code="trimmed", reason="a test")
        time.sleep(0.05)

    with pytest.raises(DataLoss, match="a test"):
        planner.each(fail, map(str, range(500)))
    assert "1" in begun
    assert len(begun) < 500  # all would take eight seconds
