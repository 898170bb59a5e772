"""Enhanced fan-out in the source, on a real server behind the proxy: the same records, offsets and errors.

The waits that AWS asks for are taken away here; `test_model` and tests/aws keep to them, in the model's time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kpl_codec.aws import subscription
from kpl_codec.aws.subscription import StreamConsumers
from kpl_codec.shards.live_shard_map import StreamUnavailable
from kpl_codec.shards.starting_position import after_record
from kpl_codec.spark.source import datasource, shard_planner
from kpl_codec.spark.source.offsets import DataLoss, ShardRange
from kpl_codec.testing.faults import (
    error,
    throttle,
)

from ...testing.event_stream import FanOutProxy, cut_events, end_events, fail_events
from .support import Stream
from .test_plan import Query, rows_of_piece

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


@pytest.fixture
def proxied(make_stream: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Stream, FanOutProxy]]:
    waits = [(subscription, "REFUSED_FOR"), (subscription, "_BETWEEN_CALLS"), (datasource, "REFUSED_FOR")]
    for module, name in waits:
        monkeypatch.setattr(module, name, 0.0)
    monkeypatch.setattr(shard_planner, "_CARRIED", -1)  # nor is anything left to the planner
    stream = make_stream(2)
    with FanOutProxy(stream.kinesis.endpoint_url, refused_for=0.0) as proxy:
        yield stream, proxy


def efo(proxy: FanOutProxy, **more: Any) -> dict[str, Any]:
    return {
        "endpointUrl": proxy.endpoint_url,
        "consumerType": "efo",
        "consumerName": "reader",
        "retryTimeoutSeconds": 8,
        **more,
    }


def stream_arn(stream: Stream) -> str:
    summary = stream.client.describe_stream_summary(StreamName=stream.name)["StreamDescriptionSummary"]
    return str(summary["StreamARN"])


@pytest.mark.slow
@pytest.mark.requirement("SPK-50", "SPK-54", "EFO-3", "EFO-9", "EFO-10")
def test_a_query_changes_its_consumer_type_through_faults_splits_and_merges(
    proxied: tuple[Stream, FanOutProxy],
) -> None:
    stream, proxy = proxied
    faults = [
        throttle(),
        cut_events(),
        end_events(),
        fail_events("InternalFailureException"),
        fail_events("ResourceInUseException", after=1),
        error("ExpiredTokenException"),
    ]
    rules = [proxy.on("SubscribeToShard", fault, after=1 + 2 * n, times=1) for n, fault in enumerate(faults)]
    pushing, polling = Query(stream, **efo(proxy)), Query(stream)
    for turn in range(8):
        stream.put(6)
        query, other = (pushing, polling) if turn % 4 < 2 else (polling, pushing)
        start = query.at
        read_now = query.batch()
        if start and read_now:
            # Another attempt at the batch, of the other type, reads the same.
            assert sorted(other.read(start, query.at)) == sorted(read_now)
        other.log, other.rows = query.log, query.rows
        other.restart()
        if turn % 3 == 1:
            stream.split(stream.open_shards[0].shard_id)
    pushing.until_idle()
    stream.check(pushing.rows)
    assert [rule for rule in rules if not rule.acted] == []
    assert len(stream.open_shards) >= 4


def active(client: Any, arn: str) -> bool:
    description = client.describe_stream_consumer(ConsumerARN=arn)["ConsumerDescription"]
    return bool(description["ConsumerStatus"] == "ACTIVE")


@pytest.mark.requirement("EFO-7", "EFO-8")
def test_a_consumer_is_registered_once_and_stays(proxied: tuple[Stream, FanOutProxy]) -> None:
    stream, proxy = proxied
    stream.put(3)
    consumers = StreamConsumers(stream.client)
    for _ in range(2):
        query = Query(stream, **efo(proxy))
        query.until_idle()
        arn = query.reader.consumer()
        assert arn is not None
        assert active(stream.client, arn)
    given = consumers.register(stream_arn(stream), "given")
    query = Query(stream, **efo(proxy, consumerName=None, consumerArn=given))
    query.until_idle()
    stream.check(query.rows)
    assert active(stream.client, given)


@pytest.mark.requirement("EFO-6", "EFO-7")
def test_a_consumer_that_is_not_there_is_said_to_be_missing(proxied: tuple[Stream, FanOutProxy]) -> None:
    stream, proxy = proxied
    stream.put(3)
    gone = f"{stream_arn(stream)}/consumer/nobody:1"
    with pytest.raises(StreamUnavailable) as caught:
        Query(stream, **efo(proxy, consumerName=None, consumerArn=gone)).until_idle()
    assert caught.value.code == "ConsumerNotFound"
    for lossy in (True, False):
        # A new name, because kinesis-local at times never ends the deregistration of an old one.
        query = Query(stream, **efo(proxy, failOnDataLoss=not lossy, consumerName=f"reader-{lossy}"))
        query.batch()
        arn = query.reader.consumer()
        stream.put(3)
        stream.client.deregister_stream_consumer(ConsumerARN=arn)
        with pytest.raises(StreamUnavailable) as caught:
            query.batch()
        assert caught.value.code == "ConsumerNotFound"


@pytest.mark.requirement("SPK-60")
@pytest.mark.parametrize("how", ["error", "silent"])
def test_records_that_are_gone_are_data_loss(proxied: tuple[Stream, FanOutProxy], how: str) -> None:
    stream, proxy = proxied
    stream.put(20)
    shard = "shardId-000000000000"
    numbers = sorted((int(number) for name, number, _ in stream.sent if name == shard))
    gone, left, end = str(numbers[2]), str(numbers[4]), str(numbers[-1])

    def trimmed(exchange: Any) -> Any:
        position = exchange.request["StartingPosition"]
        if position.get("SequenceNumber") == gone:
            if how == "error":
                return error("InvalidArgumentException")(exchange)
            exchange.request["StartingPosition"] = {**position, "SequenceNumber": left}
        return exchange.forward()

    proxy.on("SubscribeToShard", trimmed)
    piece = ShardRange(shard, after_record(gone), after_record(end))
    options = efo(proxy)
    with pytest.raises(DataLoss):
        list(rows_of_piece(stream, piece, **options))
    rest = {number for (_, number, _), _, _ in rows_of_piece(stream, piece, **options, failOnDataLoss=False)}
    assert rest == {str(number) for number in numbers if number > int(gone)} if how == "error" else rest
    assert max(rest, key=int) == end
