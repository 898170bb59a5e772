"""Both producers on a real local Kinesis: splits under load, faults on the wire, kill -9."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import wait
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.aws import fetch_lineage, read_stream
from kpl_codec.producer import Delivery, Producer, ProducerConfig
from kpl_codec.testing.faults import FaultProxy, cut_response, error, fail_records, lose_response, throttle
from kpl_codec.testing.local_kinesis import LocalKinesis

from ..aws.test_shard_map import merge, split
from .skins import SKINS, call, new_producer, result_of

pytestmark = pytest.mark.server


def in_order(kinesis: LocalKinesis, stream: str) -> list[kpl.DeaggregatedRecord]:
    """What KCL consumers get of the whole stream: shard by shard, parents first, with the range rule."""
    client = kinesis.client()
    records: list[kpl.DeaggregatedRecord] = []
    for shard_id, shard in fetch_lineage(client, stream).items():
        stored = read_stream(client, stream, shard_ids=[shard_id])
        records += kpl.deaggregate(stored, policy="kcl", hash_key_range=shard.hash_key_range)
    return records


def reshard(kinesis: LocalKinesis, stream: str) -> None:
    """Split the widest shard twice, then merge two neighbours."""
    for number in range(3):
        time.sleep(0.15)
        shards = [shard for shard in fetch_lineage(kinesis.client(), stream).values() if shard.open]
        shards.sort(key=lambda shard: shard.hash_key_range)
        if number == 2:
            merge(kinesis, stream, shards[0].shard_id, shards[1].shard_id)
        else:
            widest = max(shards, key=lambda shard: shard.hash_key_range.size)
            middle = widest.hash_key_range.split(2)[1].starting_hash_key
            split(kinesis, stream, widest.shard_id, middle)


@SKINS
@pytest.mark.slow
@pytest.mark.requirement("PRD-10", "PRD-21", "PRD-23", "PRD-27", "PRD-28", "PRD-29", "PRD-32")
def test_faults_of_every_kind_and_splits_at_once_lose_nothing(
    kinesis_local: LocalKinesis, stream: str, proxy: FaultProxy, skin: str
) -> None:
    for fault in (
        lose_response(),
        cut_response(0.5),
        throttle(),
        error("InternalFailure", status=500),
        error("InternalFailure", status=503),
    ):
        proxy.on("PutRecords", fault, times=1)  # each once, whatever the chances
        proxy.on("PutRecords", fault, rate=0.05)
    proxy.on("PutRecords", fail_records(lambda i, entry: i % 3 == 0, "InternalFailure"), rate=0.2)
    proxy.on("ListShards", error("InternalFailure", status=500), rate=0.3)
    # The local server shares this machine with everything else: slow answers are no faults here. And no more
    # is offered than it takes.
    config = ProducerConfig(
        record_max_buffered_time_ms=10, aggregation_max_size=300, max_outstanding_records=400,
        request_timeout_ms=40_000, record_ttl_ms=80_000,
    )  # fmt: skip
    settings = {**kinesis_local.client_settings, "endpoint_url": proxy.endpoint_url}
    producer = new_producer(skin, stream, config=config, client_settings=settings)

    async def main() -> list[Any]:
        await call(producer.start)
        futures: list[Any] = []
        reshards = asyncio.create_task(asyncio.to_thread(reshard, kinesis_local, stream))
        while not reshards.done() or len(futures) < 500:
            number = len(futures)
            key = f"key-{number % 50}" if number % 5 else None
            futures.append(await call(producer.put, key, b"%05d" % number))
            await asyncio.sleep(0.001)
        await reshards
        assert await call(producer.close)
        return [await result_of(future, 0) for future in futures]

    results = asyncio.run(main())
    assert all(isinstance(result, Delivery) for result in results)
    found = {
        (one.shard_id, one.sequence_number, one.sub_sequence_number): one.data
        for one in in_order(kinesis_local, stream)
    }
    places = [found[one.shard_id, one.sequence_number, one.sub_sequence_number] for one in results]
    assert places == [b"%05d" % number for number in range(len(results))]
    outcomes = Counter(attempt.outcome for result in results for attempt in result.attempts)
    assert {"no-answer", "throttled", "internal", "misplaced"} <= set(outcomes)


@pytest.mark.requirement("PRD-33")
def test_opentelemetry_tells_the_kpls_metrics(
    kinesis_local: LocalKinesis, stream: str, proxy: FaultProxy
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from kpl_codec.producer.metrics import METRICS, OpenTelemetryMetrics

    proxy.on("PutRecords", throttle(), times=1)
    reader = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("test")
    observe = OpenTelemetryMetrics(stream, meter=meter)
    settings = {**kinesis_local.client_settings, "endpoint_url": proxy.endpoint_url}
    with Producer(stream, client_settings=settings, observe=observe) as producer:
        producer.put("warm", b"up").result(60)
        wait([producer.put(f"k{n}", b"secret %d" % n) for n in range(100)])
    data = reader.get_metrics_data()
    assert data is not None
    metrics = {
        metric.name.lower(): list(metric.data.data_points)  # some versions of the SDK fold the case
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert set(metrics) == {name.lower() for name in METRICS} - {"shardmaperrors"}  # there were none
    assert sum(point.value for point in metrics["userrecordsreceived"]) == 101
    assert sum(point.value for point in metrics["userrecordsput"]) == 101
    codes = {point.attributes["ErrorCode"] for point in metrics["errorsbycode"]}
    assert codes == {"ProvisionedThroughputExceededException"}
    assert all(point.attributes["StreamName"] == stream for points in metrics.values() for point in points)
    assert "secret" not in str(data.to_json())


#: It prints the number of each user record that is confirmed.
PUTS_ON = """
import itertools, json, os, signal, sys, time
from kpl_codec.producer import Producer, ProducerConfig

def confirmed(future, number):
    os.write(1, b"%d\\n" % number if future.exception() is None else b"")

signal.alarm(110)  # never outlives its test
config = ProducerConfig(record_max_buffered_time_ms=200)
producer = Producer(sys.argv[1], config=config, client_settings=json.loads(sys.argv[2])).start()
for n in itertools.count():
    producer.put(f"k{n % 9}", b"%d" % n).add_done_callback(lambda future, n=n: confirmed(future, n))
    if n % 50 == 49:
        time.sleep(0.002)
"""


@pytest.mark.slow
@pytest.mark.requirement("PRD-9")
def test_kill_minus_nine_keeps_exactly_what_was_confirmed(kinesis_local: LocalKinesis, stream: str) -> None:
    """What was confirmed before the kill is in the stream, and nothing is there twice."""
    command = [sys.executable, "-c", PUTS_ON, stream, json.dumps(kinesis_local.client_settings)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3000)]
        process.kill()
        rest = process.stdout.read()  # (`communicate` would lose what readline has read ahead)
    whole = "".join(lines) + rest
    confirmed = {line.encode() for line in whole[: whole.rfind("\n")].split("\n")}
    assert process.returncode == -signal.SIGKILL
    found = Counter(record.data for record in in_order(kinesis_local, stream))
    assert len(confirmed) >= 3000
    assert confirmed <= set(found), "confirmed, but not in the stream"
    assert max(found.values()) == 1
