"""What a stream does to its readers, by GetRecords and by enhanced fan-out: throttling, expired iterators,
broken answers, consumers and records that are gone.

The waits that AWS asks of subscribers are taken away here; `test_model` and tests/aws keep to them, in the
model's time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kpl_codec.aws import subscription
from kpl_codec.aws.subscription import StreamConsumers
from kpl_codec.shards.live_shard_map import StreamUnavailable
from kpl_codec.shards.starting_position import TRIM_HORIZON, after_record
from kpl_codec.spark.source import datasource, shard_planner
from kpl_codec.spark.source.offsets import DataLoss, ShardRange
from kpl_codec.testing.faults import Exchange, HttpResponse, error

from ...testing.event_stream import FanOutProxy
from .support import Query, Stream, rows_of_piece

pytestmark = pytest.mark.server
Proxied = tuple[Stream, FanOutProxy]
SHARD = "shardId-000000000000"


@pytest.fixture
def proxied(make_stream: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxied]:
    monkeypatch.setattr(subscription, "REFUSED_FOR", 0.0)
    monkeypatch.setattr(subscription, "_BETWEEN_CALLS", 0.0)
    monkeypatch.setattr(datasource, "REFUSED_FOR", 0.0)
    stream = make_stream(2)
    with FanOutProxy(stream.kinesis.endpoint_url) as proxy:
        yield stream, proxy


def polling(proxy: FanOutProxy, **more: Any) -> dict[str, Any]:
    return {"endpointUrl": proxy.endpoint_url, **more}


def efo(proxy: FanOutProxy, **more: Any) -> dict[str, Any]:
    subscribe = {"consumerType": "efo", "consumerName": "reader"}
    return {"endpointUrl": proxy.endpoint_url, **subscribe, **more}


def numbers_on(stream: Stream, shard_id: str = SHARD) -> list[str]:
    return sorted({number for shard, number, _ in stream.sent if shard == shard_id}, key=int)


def arn_of(stream: Stream) -> str:
    summary = stream.client.describe_stream_summary(StreamName=stream.name)["StreamDescriptionSummary"]
    return str(summary["StreamARN"])


def is_active(stream: Stream, arn: str | None) -> bool:
    description = stream.client.describe_stream_consumer(ConsumerARN=arn)["ConsumerDescription"]
    return bool(description["ConsumerStatus"] == "ACTIVE")


@pytest.mark.requirement("EFO-7", "EFO-8")
def test_a_consumer_is_registered_once_and_stays(proxied: Proxied) -> None:
    stream, proxy = proxied
    stream.put(3)
    for _ in range(2):
        query = Query(stream, **efo(proxy))
        query.until_idle()
        assert is_active(stream, query.reader.consumer())
    given = StreamConsumers(stream.client).require_active(arn_of(stream), "given")
    query = Query(stream, **efo(proxy, consumerName=None, consumerArn=given))
    query.until_idle()
    stream.check(query.rows)
    assert is_active(stream, given)


@pytest.mark.requirement("EFO-6", "EFO-7")
def test_a_consumer_that_is_not_there_is_an_error(proxied: Proxied, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_planner, "MOST_ATTACHED", -1)  # tasks subscribe
    stream, proxy = proxied
    stream.put(3)
    gone = f"{arn_of(stream)}/consumer/nobody:1"
    with pytest.raises(StreamUnavailable) as caught:
        Query(stream, **efo(proxy, consumerName=None, consumerArn=gone)).until_idle()
    assert caught.value.code == "ConsumerNotFound"
    query = Query(stream, **efo(proxy, failOnDataLoss=False))
    query.batch()
    stream.put(3)
    stream.client.deregister_stream_consumer(ConsumerARN=query.reader.consumer())
    with pytest.raises(StreamUnavailable) as caught:
        query.batch()
    assert caught.value.code == "ConsumerNotFound"


@pytest.mark.requirement("SPK-60")
@pytest.mark.parametrize("how", ["error", "silent"])
@pytest.mark.parametrize("consumer", [polling, efo], ids=lambda consumer: consumer.__name__)
def test_a_task_notices_that_its_records_are_gone(proxied: Proxied, consumer: Any, how: str) -> None:
    """Kinesis says that a record is past retention in two ways: by an error, or by giving a later record."""
    stream, proxy = proxied
    stream.put(20)
    numbers = numbers_on(stream)
    gone, left, end = numbers[2], numbers[4], numbers[-1]
    number = "SequenceNumber"

    def trimmed(exchange: Exchange) -> HttpResponse:
        request: Any = exchange.request
        if gone in (request.get("StartingSequenceNumber"), request.get("StartingPosition", {}).get(number)):
            if how == "error":
                return error("InvalidArgumentException")(exchange)
            subscribed = {"StartingPosition": {"Type": "AT_SEQUENCE_NUMBER", number: left}}
            polled = {"StartingSequenceNumber": left}
            exchange.request = {**request, **(subscribed if "StartingPosition" in request else polled)}
        return exchange.forward()

    for operation in ("GetShardIterator", "SubscribeToShard"):
        proxy.on(operation, trimmed)
    piece = ShardRange(SHARD, after_record(gone), after_record(end))
    with pytest.raises(DataLoss) as caught:
        list(rows_of_piece(stream, piece, **consumer(proxy)))
    assert (caught.value.code, caught.value.fields["sequence_number"]) == ("trimmed", gone)
    rows = rows_of_piece(stream, piece, **consumer(proxy, failOnDataLoss=False))
    # After the error the shard is read from its oldest record, of which the server still has more.
    assert sorted({name[1] for name, _, _ in rows}, key=int) == numbers[3 if how == "error" else 4 :]


@pytest.mark.requirement("SPK-60")
def test_a_batch_that_does_not_end_where_it_should_is_data_loss(make_stream: Any) -> None:
    stream = make_stream(1)
    stream.put(2)
    last = int(numbers_on(stream)[-1])
    for end in (last - 1, last + 1):  # no such record
        with pytest.raises(DataLoss) as caught:
            list(rows_of_piece(stream, ShardRange(SHARD, TRIM_HORIZON, after_record(str(end)))))
        assert caught.value.code == "record-missing"
        if end < last:
            stream.split(SHARD)


class Sleeps:
    """A clock that only sleeps move: however busy the machine is, it goes on by what the query waits."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.requirement("SPK-63")
def test_an_idle_query_asks_seldom(proxied: Proxied, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, proxy = proxied
    stream.put(1)
    query, clock = Query(stream, **polling(proxy), idleTimeBetweenReadsInMs=200), Sleeps()
    monkeypatch.setattr(datasource, "time", clock)
    reader = query.reader.planner._reader
    reader.clock, reader.sleep = clock.monotonic, clock.sleep
    query.until_idle()
    proxy.clear()
    begun = clock.now
    for _ in range(5):
        assert query.batch() is None
    assert clock.now - begun == pytest.approx(5 * 0.2)
    # At most one call on each shard in each turn; the iterators of the last one stay in use.
    operations = [call.operation for call in proxy.calls]
    assert 2 <= operations.count("GetRecords") <= 10
    assert "GetShardIterator" not in operations
