"""A watch by enhanced fan-out: a real server, SubscribeToShard by the proxy, boto3."""

from __future__ import annotations

import time

import pytest

from kpl_codec.aws.stream_consumer import StreamConsumers
from kpl_codec.aws.watch import StreamWatcher
from kpl_codec.shards.live_shard_map import StreamUnavailable
from kpl_codec.testing.faults import throttle

from ..testing.event_stream import FanOutProxy
from .test_shard_map import split
from .test_watch import Running, naive

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


@pytest.mark.slow
@pytest.mark.requirement("WCH-34")
def test_everything_is_read_by_subscription_through_a_split_and_faults(kinesis_local, client, stream):
    with FanOutProxy(kinesis_local.endpoint_url, lifetime=8.0) as proxy:
        pushed = kinesis_local.client(endpoint_url=proxy.endpoint_url)
        consumers = StreamConsumers(pushed)
        consumer = consumers.active(stream, "watch")
        assert {consumers.active(stream, one) for one in ("watch", consumer)} == {consumer}
        with pytest.raises(StreamUnavailable, match="not registered"):
            consumers.active(stream, consumer.replace("/watch:", "/other:"))
        proxy.on("SubscribeToShard", throttle(), times=1, after=2)
        with Running(pushed, stream, share=1.0, consumer_arn=consumer) as running:
            watch = running.watcher.watch
            running.wait(lambda: watch.measured.looks >= 2)
            put = naive(client, stream, 5)
            split(kinesis_local, stream, "shardId-000000000000", 2**126)
            put += naive(client, stream, 5, 5)
            running.wait(lambda: watch.last_hour.totals["user_records"] >= put)
            running.wait(lambda: len(watch.shards) == 3)
            time.sleep(9)  # every subscription ends once
            put += naive(client, stream, 5, 10)
            running.wait(lambda: watch.last_hour.totals["user_records"] >= put)
            assert watch.last_hour.totals["user_records"] == put
            assert watch.last_hour.lost()[:4] == (put,) * 4
        made = sum(call.operation == "SubscribeToShard" for call in proxy.calls)
    assert running.kinds() <= {"naive-aggregator", "throttled"}
    assert "GetRecords" not in watch.measured.calls
    assert 5 <= watch.measured.calls["SubscribeToShard"] <= made


@pytest.mark.requirement("WCH-37")
def test_subscriptions_are_ended_also_where_reading_raises(kinesis_local, client, stream):
    naive(client, stream, 5)

    def broken(finding):
        raise RuntimeError("a broken outlet")

    with FanOutProxy(kinesis_local.endpoint_url) as proxy:
        pushed = kinesis_local.client(endpoint_url=proxy.endpoint_url)
        consumer = StreamConsumers(pushed).active(stream, "watch")
        watcher = StreamWatcher(
            pushed, stream, share=1.0, since=60.0, consumer_arn=consumer, on_finding=broken
        )
        with pytest.raises(RuntimeError, match="broken outlet"):
            watcher.run(30)
        cursors = watcher._subscriptions._cursors.values()
        assert len(cursors) == 2
        assert [cursor._stream_of_events for cursor in cursors] == [None, None]
