"""The planted fault: four writers on a real server, a split in the middle, a watch that reads 5 %."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aws_kinesis_agg.aggregator import RecordAggregator

import kpl_codec as kpl
from kpl_codec.aws import fetch_shard_map, read_stream
from kpl_codec.format.hash_keys import effective_hash_key
from kpl_codec.producer import Producer, ProducerConfig
from kpl_codec.watch import WatchFinding

from ..aws.test_shard_map import split
from .test_stream_watcher import Running

pytestmark = pytest.mark.server

BATCH = 20


class Writers:
    """Put user records until stopped: through the Producer, a naive aggregator, one aggregator for each shard
    of a map that grows old, and without aggregation."""

    def __init__(self, server: Any, stream: str) -> None:
        self._stream, self._stop = stream, threading.Event()
        self._client = server.client()
        self._map = fetch_shard_map(self._client, stream)
        config = ProducerConfig(record_max_buffered_time_ms=200)
        self._producer = Producer(stream, config=config, client_settings=server.client_settings).start()
        self._numbers = iter(range(10**9))

    def _keys(self, count: int) -> Iterator[str]:
        return (f"customer-{next(self._numbers) * 7919 % 500}" for _ in range(count))

    def _put(self, aggregator: Any) -> None:
        key, _, data = aggregator.clear_and_get().get_contents()
        self._client.put_record(StreamName=self._stream, PartitionKey=key, Data=data)

    def _naive(self) -> None:
        aggregator = RecordAggregator()
        for key in self._keys(BATCH):
            aggregator.add_user_record(key, b"naive order")
        self._put(aggregator)

    def _per_shard(self) -> None:
        aggregators: dict[str, Any] = {}
        for key in self._keys(BATCH * 4):
            shard = self._map.shard_for(effective_hash_key(key)).shard_id
            aggregators.setdefault(shard, RecordAggregator()).add_user_record(key, b"order per shard")
        for aggregator in aggregators.values():
            self._put(aggregator)

    def _plain(self) -> None:
        records = [{"PartitionKey": key, "Data": b"plain order"} for key in self._keys(BATCH)]
        assert self._client.put_records(StreamName=self._stream, Records=records)["FailedRecordCount"] == 0

    def _produce(self) -> None:
        for key in self._keys(BATCH):
            self._producer.put(key, b"produced order")

    @contextmanager
    def running(self) -> Iterator[None]:
        def loop(write: Callable[[], None]) -> None:
            while not self._stop.wait(0.25):
                write()

        writers = (self._naive, self._per_shard, self._plain, self._produce)
        threads = [threading.Thread(target=loop, args=(write,)) for write in writers]
        with self._producer:
            for thread in threads:
                thread.start()
            try:
                yield
            finally:
                self._stop.set()
                for thread in threads:
                    thread.join()


def truth(client: Any, stream: str, since: float, until: float) -> Counter[tuple[str, str]]:
    """User records that the KCL drops, by shard and by which writer put them, of what arrived in the span."""
    shard_map = fetch_shard_map(client, stream)
    rows = kpl.deaggregate(
        list(read_stream(client, stream, poll_interval=0.01)), "report", shard_map=shard_map
    )
    return Counter(
        (row.shard_id, row.data.decode().split()[0])
        for row in rows
        if row.kcl == "dropped" and since <= row.approximate_arrival_timestamp.timestamp() < until
    )


def _of_stale(finding: WatchFinding, children: set[str]) -> bool:
    """Of the aggregators whose map is older than the split. (The Producer's are sent again.)"""
    return finding.cause == "reshard" and finding.writer == "first-key" and finding.shard_id in children


@pytest.mark.slow
@pytest.mark.requirement("WCH-5", "WCH-10", "WCH-12")
def test_five_percent_names_shard_writer_and_number_within_a_minute(kinesis_local, stream_name):
    kinesis_local.create_stream(stream_name, shards=4)
    client = kinesis_local.client()
    writers = Writers(kinesis_local, stream_name)
    with writers.running():
        began = time.time()
        with Running(client, stream_name) as running:
            naive = running.wait(
                lambda: [f for f in running.findings if f.kind == "naive-aggregator"], seconds=60
            )
            split(kinesis_local, stream_name, "shardId-000000000000", 2**125)
            children = {"shardId-000000000004", "shardId-000000000005"}
            caught = running.wait(lambda: [f for f in running.findings if _of_stale(f, children)], 60)
            time.sleep(25)
            last_hour = running.watcher.watch.last_hour
            now = time.time()
            open_now = last_hour.findings()
            lost = last_hour.lost()
            calls = sum(running.watcher.watch.call_counts.calls.values()) / (now - began)
    dropped = truth(client, stream_name, began - 20, now)
    assert (naive[0].severity, naive[0].writer, naive[0].cause) == ("critical", "first-key", "across-shards")
    assert caught[0].severity == "critical"
    # Children are read whole: what the split caught there is known to the record, as long as it lasts.
    for shard_id in children:
        of_child = [f for f in open_now if f.shard_id == shard_id and f.cause == "reshard"]
        if of_child:
            exact = sum(f.lost.seen for f in of_child)
            others = {writer: n for (at, writer), n in dropped.items() if at == shard_id}
            per_shard = sum(others.values()) - others.get("naive", 0)
            assert exact <= per_shard
            assert exact > 0.5 * per_shard
    # An interval misses in 5 of 100 runs; a test that fails so often helps nobody, so this is wider.
    assert lost.seen <= dropped.total()
    assert lost.estimate / 3 < dropped.total() < lost.estimate * 3
    assert {f.writer for f in open_now if f.lost} <= {"first-key", "kpl"}
    # Four writers: two are one library's, and the cause of their losses tells them apart.
    assert set(last_hour.writers) == {"plain", "kpl", "first-key"}
    assert {f.cause for f in open_now if f.writer == "first-key"} == {"across-shards", "reshard"}
    assert calls < 4  # of the 20 that 4 shards allow to all readers
    kinesis_local.delete_stream(stream_name)
