"""How a batch is planned and becomes tasks, and what these do with several pieces."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from kpl_codec.aws import calls
from kpl_codec.format.hash_keys import HashKeyRange
from kpl_codec.shards.lineage import Lineage
from kpl_codec.shards.live_shard_map import StreamUnavailable
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.starting_position import TRIM_HORIZON, after_record, at_record
from kpl_codec.spark.source import datasource, shard_planner
from kpl_codec.spark.source.datasource import assign_pieces, name_of
from kpl_codec.spark.source.kinesis_reader import KinesisReader, read_in_parallel
from kpl_codec.spark.source.offsets import ShardRange
from kpl_codec.spark.source.planner import Planner
from kpl_codec.spark.source.shard_planner import ReadLimits
from kpl_codec.spark.source.source_options import SourceOptions, parse_options
from tests.aws.model_fan_out import FanOutKinesis
from tests.every import every

from .model import ModelKinesis
from .model_query import ModelQuery, access_of


@given(st.lists(st.none() | st.sampled_from([1, 1000, 1001, 10**6]), max_size=80), st.integers(0, 9))
def test_small_pieces_share_tasks(records: list[int | None], most: int) -> None:
    """That each piece has one task is a part of the law of `model_query`."""
    pieces = [
        ShardRange(f"s{n}", at_record("1"), after_record("2"), count) for n, count in enumerate(records)
    ]
    runs = assign_pieces(pieces, most)
    small = [run for run in runs if run[0].records is not None and run[0].records <= 1000]
    assert len(runs) <= most if most else len(small) <= 16
    assert most or all(len(run) <= 5 for run in runs if run not in small)


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


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(1, 8))
def test_side_by_side_gives_all_of_each_in_order(counts: list[int], threads: int) -> None:
    items = list(enumerate(counts))
    found: dict[int, list[int]] = {number: [] for number, _ in items}
    for (number, _), result in read_in_parallel(lambda item: iter(range(item[1])), items, threads):
        found[number].append(result)
    assert found == {number: list(range(count)) for number, count in items}


def test_an_error_of_a_thread_is_raised_and_the_others_stop() -> None:
    read: list[int] = []

    def endless(item: int) -> Iterator[int]:
        if item == 3:
            raise KeyError("gone")
        for number in range(10**9):
            read.append(number)
            yield number

    def take_all() -> None:
        for _ in read_in_parallel(endless, range(6), 4):
            time.sleep(0.001)

    with pytest.raises(KeyError, match="gone"):
        take_all()
    assert len(read) < 10**5
    results = read_in_parallel(endless, range(3), 3)
    next(results)
    results.close()  # the rest is not wanted: no thread goes on
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kpl-codec read")]


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> FanOutKinesis:
    """What the driver and tasks call, too, which read all that is given to them."""
    stream = FanOutKinesis(3)
    monkeypatch.setattr(SourceOptions, "client", lambda _: stream)
    return stream


def read_all(query: ModelQuery) -> None:
    """As `ModelQuery.until_idle`, but by tasks as Spark has them."""
    query.stream.now += 6  # idle shards are asked again
    while (partitions := query.plan()) is not None:
        rows = [row for one in partitions for batch in query.reader.read(one) for row in batch.to_pylist()]
        query.read.update((row["shardId"], row["sequenceNumber"]) for row in rows)
        query.stream.now += 6  # AWS refuses a second subscription for so long
    assert query.read == Counter(query.stream.names())


@pytest.mark.requirement("EFO-6", "EFO-7", "EFO-8")
def test_a_consumer_is_registered_once_and_stays_and_must_be_there(
    stream: FanOutKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_planner, "MOST_ATTACHED", -1)  # tasks subscribe
    stream.put(9)
    for _ in range(2):
        read_all(ModelQuery(stream, ReadLimits(), consumerType="efo", consumerName="reader"))
    assert list(stream.consumers.values()) == ["ACTIVE"]
    assert stream.calls["subscribe_to_shard"] == 6
    by_arn = {"consumerType": "efo", "consumerArn": next(iter(stream.consumers))}
    begun = ModelQuery(stream, ReadLimits(), failOnDataLoss=False, **by_arn)
    late = ModelQuery(stream, ReadLimits(), **by_arn)
    read_all(begun)
    begun.consumers = (begun.reader.consumer(),)
    stream.put(9)
    stream.deregister_stream_consumer(ConsumerARN=by_arn["consumerArn"])
    for query in (begun, late):
        with pytest.raises(StreamUnavailable) as caught:
            read_all(query)
        assert caught.value.code == "ConsumerNotFound"


@pytest.mark.requirement("SPK-74")
def test_the_shard_map_is_asked_for_once_and_not_carried(
    stream: FanOutKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = Mock(side_effect=datasource.fetch_shard_map)
    monkeypatch.setattr(datasource, "fetch_shard_map", fetch)
    query = ModelQuery(stream, ReadLimits(), placement=True, describeShardInterval=3600)
    for _ in range(3):
        stream.put(6)
        read_all(query)
    assert fetch.call_count == 1
    stream.split(1)
    stream.put(6)
    read_all(query)
    assert fetch.call_count == 2
    partitions = query.reader.partitions({}, query.offsets[1])
    assert partitions
    assert all(len(pickle.dumps(partition)) < 1000 for partition in partitions)


@pytest.mark.requirement("SPK-74")
def test_a_worker_that_goes_on_does_not_judge_by_another_listing() -> None:
    """A stream that was created again has shards of the same names."""
    low, high = (HashKeyRange(2**127 * at, 2**127 * (at + 1) - 1) for at in (0, 1))
    first, second = Shard("0", low), Shard("1", high, parent_shard_id="9", starting_sequence_number="5")
    changes: list[dict[str, Any]] = [
        {"hash_key_range": HashKeyRange(2**126, high.ending_hash_key)},
        {"parent_shard_id": None},
        {"adjacent_parent_shard_id": "8"},
        {"starting_sequence_number": "6"},
        {"ending_sequence_number": "7"},
    ]
    listings = [Lineage([first, second]), Lineage([first]), Lineage([first, second], distribution="AUTO")]
    listings += [Lineage([first, second.replace(**change)]) for change in changes]
    assert name_of(listings[0]) == name_of(Lineage([second, first]))
    assert len(set(map(name_of, listings))) == len(listings)


@pytest.mark.requirement("MAP-26")
@every(
    "operation, patience, lines",
    [
        (operation, patience, lines)
        for operation in ("ListShards", "get_shard_iterator", "subscribe_to_shard")
        for patience, lines in ((15, [0]), (40, [1]), (300, [3, 4, 5]))
    ],
)
def test_a_server_that_does_not_answer_is_in_the_log(
    operation: str, patience: int, lines: list[int], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    stream = ModelKinesis(1)

    class NobodyThere:
        def __getattr__(self, name: str) -> Any:
            return Mock(side_effect=EndpointConnectionError(endpoint_url="http://nobody.example"))

    monkeypatch.setattr(time, "monotonic", stream.clock)
    monkeypatch.setattr(calls, "_last_line", float("-inf"))
    reader = access_of(stream, parse_options({"stream": "s", "retryTimeoutSeconds": str(patience)}))
    reader.client = NobodyThere()
    consumer = "arn:aws:kinesis:us-east-1:123456789012:stream/s/consumer/c:1" if "sub" in operation else None
    cursor = reader.cursor("shardId-000000000000", TRIM_HORIZON, reader.pace(), consumer)
    caplog.clear()
    with caplog.at_level(logging.WARNING), pytest.raises(StreamUnavailable):
        reader.lineage() if operation == "ListShards" else cursor.fetch()
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) in lines, texts
    assert all(operation in text and "nobody.example" in text and "tried again for" in text for text in texts)
