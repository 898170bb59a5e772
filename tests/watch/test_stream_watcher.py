"""The watch against a real server: a planted fault found, faults on the way survived."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.aws_errors import Backoff
from kpl_codec.testing.faults import cut_response, error, throttle
from kpl_codec.watch import Limits, WatchFinding
from kpl_codec.watch.exporters import Exporter
from kpl_codec.watch.stream_watcher import StreamWatcher
from kpl_codec.watch.watch_metrics import MetricValue

from ..aws.test_shard_map import split

pytestmark = pytest.mark.server


class Running(Exporter):
    """A watcher in a thread, its findings, and when it reported metrics."""

    def __init__(self, client: Any, stream: str, **settings: Any) -> None:
        self.findings: list[WatchFinding] = []
        self.on_finding = self.findings.append  # type: ignore[method-assign]
        self.metric_times: list[float] = []
        self.watcher = StreamWatcher(client, stream, **settings)
        self.watcher.exporters.append(self)
        self._thread = threading.Thread(target=self.watcher.run, daemon=True)

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.watcher.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def on_metrics(self, metrics: Sequence[MetricValue], now: float) -> None:
        self.metric_times.append(now)

    def wait(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        end = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < end, [f.text for f in self.findings]
            assert self._thread.is_alive()
            time.sleep(0.05)
        return value

    def kinds(self) -> set[str]:
        return {finding.kind for finding in self.findings}


def naive(client: Any, stream: str, count: int, begin: int = 0) -> int:
    """Put ``count`` aggregates of 20 user records without looking at shards; the number of user records."""
    for n in range(begin, begin + count):
        users = [kpl.UserRecord(f"customer-{n * 20 + m}", b"an order") for m in range(20)]
        client.put_record(StreamName=stream, PartitionKey=users[0].partition_key, Data=kpl.encode(users))
    return 20 * count


FAST = {"sampling_rate": 1.0, "limits": Limits(5, 50, 1e7, 1e7)}


def test_everything_is_read_through_a_split(kinesis_local, client, stream):
    with Running(client, stream, **FAST) as running:
        running.wait(lambda: running.watcher.watch.call_counts.polls >= 2)
        put = naive(client, stream, 5)
        split(kinesis_local, stream, "shardId-000000000000", 2**126)
        put += naive(client, stream, 5, 5)
        total = running.watcher.watch.last_hour.totals
        running.wait(lambda: total["user_records"] >= put)
        running.wait(lambda: running.watcher.watch.last_hour.lost()[:4] == (put,) * 4)
        assert total["user_records"] == put
        running.wait(lambda: len(running.watcher.watch.shards) == 3)
    assert running.kinds() == {"naive-aggregator"}
    assert {f.writer for f in running.findings} == {"first-key"}


@pytest.mark.slow
def test_faults_are_survived(proxy, faulty, client, stream, monkeypatch):
    """With shorter waits: how long they are is a matter of `Watch`."""
    for name in ("_SHARD_WAIT", "_STREAM_WAIT"):
        monkeypatch.setattr(f"kpl_codec.watch.watch.{name}", Backoff(0.1, 1.0))
    proxy.on("GetRecords", throttle(), times=3)
    proxy.on("GetRecords", error("ExpiredIteratorException"), after=1, times=2)
    proxy.on("GetRecords", cut_response(0.4), times=2)
    proxy.on("GetShardIterator", error("InternalFailure", status=500), times=2)
    proxy.on("ListShards", throttle(), times=1)
    with Running(faulty, stream, **FAST) as running:
        running.wait(lambda: running.watcher.watch.call_counts.polls >= 2)
        put = naive(client, stream, 10)
        running.wait(lambda: running.watcher.watch.last_hour.totals["user_records"] >= put)
        time.sleep(1.5)
        # Credentials end, and come back.
        rule = proxy.on("*", error("ExpiredTokenException"), times=3)
        running.wait(lambda: rule.acted == 3)
        put += naive(client, stream, 4, 10)
        running.wait(lambda: running.watcher.watch.last_hour.totals["user_records"] >= put, 60)
        assert running.watcher.watch.last_hour.totals["user_records"] == put
    assert running.kinds() <= {"naive-aggregator", "throttled"}
    # The client adds no retries of its own: every call is in the budget.
    calls = running.watcher.watch.call_counts.calls
    for operation in ("GetShardIterator", "GetRecords"):
        assert calls[operation] == sum(call.operation == operation for call in proxy.calls)


@pytest.mark.slow
@pytest.mark.requirement("WCH-11")
def test_a_stream_deleted_and_created_again(kinesis_local, client, stream):
    with Running(client, stream, **FAST) as running:
        running.wait(lambda: running.watcher.watch.call_counts.polls >= 2)
        put = naive(client, stream, 4)
        running.wait(lambda: running.watcher.watch.last_hour.totals["user_records"] >= put)
        kinesis_local.delete_stream(stream)
        time.sleep(2)
        kinesis_local.create_stream(stream, shards=3)
        running.wait(lambda: "stream-recreated" in running.kinds(), 60)
        put += naive(client, stream, 4)
        running.wait(lambda: running.watcher.watch.last_hour.totals["user_records"] >= put, 60)
        assert len(running.watcher.watch.shards) == 3


@pytest.mark.requirement("WCH-35")
def test_a_clock_that_is_set_back_is_followed(client, stream, monkeypatch):
    real, ahead = time.time, [3600.0]
    monkeypatch.setattr("kpl_codec.watch.stream_watcher.time.time", lambda: real() + ahead[0])
    with Running(client, stream, sampling_rate=1.0) as running:
        running.wait(lambda: running.watcher.watch.call_counts.calls["GetShardIterator"])
        ahead[0] = 0.0
        # It is followed backwards, metrics go on, and what is put now is read.
        running.wait(lambda: running.metric_times[-1] < real() + 60)
        naive(client, stream, 3)
        running.wait(lambda: "naive-aggregator" in running.kinds())
