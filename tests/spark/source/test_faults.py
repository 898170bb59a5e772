"""What a stream does to its readers: throttling, expired iterators, broken answers, records gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kpl_codec.shards.starting_position import TRIM_HORIZON, after_record
from kpl_codec.spark.source.offsets import DataLoss, ShardRange
from kpl_codec.testing.faults import (
    Exchange,
    FaultProxy,
    HttpResponse,
    cut_before,
    cut_response,
    error,
    throttle,
)

from .support import Stream
from .test_plan import Query, rows_of_piece

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


@pytest.fixture
def proxied(make_stream: Any) -> Iterator[tuple[Stream, FaultProxy]]:
    stream = make_stream(2)
    with FaultProxy(stream.kinesis.endpoint_url, seed=3) as proxy:
        yield stream, proxy


@pytest.mark.slow
@pytest.mark.requirement("SPK-50", "SPK-61")
def test_throttling_expired_iterators_and_broken_connections_change_nothing(
    proxied: tuple[Stream, FaultProxy],
) -> None:
    stream, proxy = proxied
    faults = [
        throttle(),
        error("ExpiredIteratorException"),
        error("InternalFailure", status=500),
        cut_response(),
        cut_before(),
    ]
    rules = [proxy.on("GetRecords", fault, after=2 + 2 * n, times=1) for n, fault in enumerate(faults)]
    rules.append(proxy.on("GetShardIterator", throttle(), after=2, times=3))
    rules.append(proxy.on("ListShards", throttle(), after=1, times=1))
    for fault in faults:
        proxy.on("GetRecords", fault, after=4, rate=0.15, times=5)
    query = Query(stream, endpointUrl=proxy.endpoint_url, maxFetchRecordsPerShard=8)
    for _ in range(3):
        stream.put(12)
        query.batch()
    stream.split("shardId-000000000000")
    stream.put(6)
    query.until_idle()
    stream.check(query.rows)
    assert [rule for rule in rules if not rule.acted] == []


def _trimmed(stream: Stream, sequence_number: str, how: str) -> Any:
    """A fault: the record is past retention. Two ways to be told: an error, or the next record."""
    later = min((n for s, n, _ in stream.sent if int(n) > int(sequence_number)), key=int, default=None)

    def fault(exchange: Exchange) -> HttpResponse:
        if exchange.request.get("StartingSequenceNumber") == sequence_number:
            if how == "error":
                return error("InvalidArgumentException")(exchange)
            assert later is not None
            exchange.request = {**exchange.request, "StartingSequenceNumber": later}
        return exchange.forward()

    return fault


@pytest.mark.requirement("SPK-60")
@pytest.mark.parametrize("how", ["error", "silent"])
def test_a_start_past_retention_is_data_loss(make_stream: Any, how: str) -> None:
    stream = make_stream(1)
    with FaultProxy(stream.kinesis.endpoint_url) as proxy:
        stream.put(2)
        query = Query(stream, endpointUrl=proxy.endpoint_url)
        query.batch()
        read = {name for name, _, _ in query.rows}
        place = query.at["shards"]["shardId-000000000000"]["after"]
        stream.put(3)
        proxy.on("GetShardIterator", _trimmed(stream, place, how))
        query.restart()
        with pytest.raises(DataLoss) as caught:
            query.batch()
        assert (caught.value.code, caught.value.fields["sequence_number"]) == ("trimmed", place)
        # Allowed to lose: what is left is read, from the first record there is.
        lenient = Query(stream, endpointUrl=proxy.endpoint_url, failOnDataLoss=False)
        lenient.log = query.log[:]
        lenient.until_idle()
        assert sorted(name for name, _, _ in lenient.rows) == sorted(set(stream.sent) - read)


@pytest.mark.requirement("SPK-60")
@pytest.mark.parametrize("how", ["error", "silent"])
def test_a_task_notices_that_its_records_are_gone(make_stream: Any, how: str) -> None:
    stream = make_stream(1)
    stream.put(2)
    last = max((number for _, number, _ in stream.sent), key=int)
    stream.put(2)
    end = max((number for _, number, _ in stream.sent), key=int)
    piece = ShardRange("shardId-000000000000", after_record(last), after_record(end))
    with FaultProxy(stream.kinesis.endpoint_url) as proxy:
        proxy.on("GetShardIterator", _trimmed(stream, last, how))
        with pytest.raises(DataLoss):
            list(rows_of_piece(stream, piece, endpointUrl=proxy.endpoint_url))
        left = list(rows_of_piece(stream, piece, endpointUrl=proxy.endpoint_url, failOnDataLoss=False))
        assert sorted(name for name, _, _ in left) == sorted(
            name for name in stream.sent if int(last) < int(name[1]) <= int(end)
        )


@pytest.mark.requirement("SPK-60")
def test_a_batch_that_does_not_end_where_it_should_is_data_loss(make_stream: Any) -> None:
    stream = make_stream(1)
    stream.put(2)
    numbers = sorted((number for _, number, _ in stream.sent), key=int)
    hole = str(int(numbers[-1]) - 1)  # a record nobody put
    with pytest.raises(DataLoss) as caught:
        list(rows_of_piece(stream, ShardRange("shardId-000000000000", TRIM_HORIZON, after_record(hole))))
    assert caught.value.code == "record-missing"
    stream.split("shardId-000000000000")
    beyond = str(int(numbers[-1]) + 1)
    with pytest.raises(DataLoss):
        list(rows_of_piece(stream, ShardRange("shardId-000000000000", TRIM_HORIZON, after_record(beyond))))


@pytest.mark.requirement("SPK-60")
@pytest.mark.parametrize("fail", [True, False])
def test_a_shard_that_expired_before_it_was_drained(make_stream: Any, fail: bool) -> None:
    stream = make_stream(2)
    gone = "shardId-000000000000"
    with FaultProxy(stream.kinesis.endpoint_url) as proxy:
        stream.put(3)
        query = Query(stream, endpointUrl=proxy.endpoint_url, failOnDataLoss=fail)
        query.batch()
        stream.put(3)
        stream.split(gone)
        stream.put(3)

        def expired(exchange: Exchange) -> HttpResponse:
            answer = exchange.forward()
            return answer.with_json(
                {**answer.json, "Shards": [s for s in answer.json["Shards"] if s["ShardId"] != gone]}
            )

        proxy.on("ListShards", expired)
        proxy.on("GetShardIterator", error("ResourceNotFoundException"), when=lambda r: r["ShardId"] == gone)
        query.restart()
        if fail:
            with pytest.raises(DataLoss) as caught:
                query.batch()
            assert caught.value.code == "shard-gone"
            return
        query.until_idle()
        missing = set(stream.sent) - {name for name, _, _ in query.rows}
        assert missing
        assert {shard for shard, _, _ in missing} == {gone}  # its children were read, whole


@pytest.mark.requirement("SPK-63")
def test_an_idle_query_asks_seldom(make_stream: Any) -> None:
    stream = make_stream(1)
    stream.put(1)
    with FaultProxy(stream.kinesis.endpoint_url) as proxy:
        query = Query(stream, endpointUrl=proxy.endpoint_url, idleTimeBetweenReadsInMs=200)
        query.until_idle()
        before, iterators = _calls(proxy, "GetRecords"), _calls(proxy, "GetShardIterator")
        begun = time.monotonic()
        for _ in range(5):
            assert query.batch() is None
        assert time.monotonic() - begun >= 0.9
        # At most one call a look; the iterator of the last one is kept.
        assert 2 <= _calls(proxy, "GetRecords") - before <= 5
        assert _calls(proxy, "GetShardIterator") == iterators


def _calls(proxy: FaultProxy, operation: str) -> int:
    return sum(call.operation == operation for call in proxy.calls)
