"""What micro-batches of `kpl-kinesis` cost on streams of many shards: boto3 and Spark for real, Kinesis as a
model over HTTP that takes its time for each call.

    python -m tests.benchmarks.spark_source 100 1000        shards
        [--records-per-second 2] [--milliseconds 20] [--seconds 30] [--only plan,batches]

plan: seconds, CPU seconds and calls of planning, with records on every shard and with none; and the same
calls by boto3 alone. batches: seconds of a query's first batch with rows and of later ones, as Spark
reports them, into a sink that keeps nothing; and from the query's start to the end of that first batch;
with the calls on each shard. The model has its own process and shares the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any
from urllib.request import Request, urlopen

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from kpl_codec.spark.source.kinesis_reader import KinesisReader
from kpl_codec.spark.source.planner import Planner, must_be_written
from kpl_codec.spark.source.shard_planner import ReadLimits
from kpl_codec.spark.source.source_options import SourceOptions, parse_options

from ..spark.source.model import ModelKinesis

RECORD_BYTES = 100
_METHODS = {
    "ListShards": "list_shards",
    "DescribeStreamSummary": "describe_stream_summary",
    "GetShardIterator": "get_shard_iterator",
    "GetRecords": "get_records",
}


class Serving(ModelKinesis):
    """The model with the machine's clock."""

    @property
    def now(self) -> float:
        return time.time()

    @now.setter
    def now(self, _: float) -> None: ...


def plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.timestamp() if hasattr(value, "timestamp") else str(value)


class _Moment(float):
    def timestamp(self) -> float:
        return float(self)


class _Connection(asyncio.Protocol):
    """HTTP, as much as boto3 speaks. POST /feed sets the pause between two puts; GET: the calls."""

    def __init__(self, stream: ModelKinesis, seconds: float, feed: dict[str, float]) -> None:
        self._stream, self._seconds, self._feed = stream, seconds, feed
        self._got = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, blank, body = self._got.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if not blank or len(body) < (size := int(length[1]) if length else 0):
            return
        self._got = body[size:]
        if head.startswith(b"GET"):
            self._answer(200, dict(self._stream.calls))
        elif b" /feed " in head:
            self._feed.update(json.loads(body))
            self._answer(200, {})
        else:
            operation = re.search(rb"(?i)x-amz-target: *\w+\.(\w+)", head)
            assert operation is not None
            arguments = json.loads(body[:size])
            loop = asyncio.get_running_loop()
            loop.call_later(self._seconds, self._call, operation[1].decode(), arguments)

    def _call(self, operation: str, arguments: dict[str, Any]) -> None:
        if "Timestamp" in arguments:
            arguments["Timestamp"] = _Moment(arguments["Timestamp"])
        try:
            self._answer(200, getattr(self._stream, _METHODS[operation])(**arguments))
        except ClientError as error:
            self._answer(400, {"__type": error.response["Error"]["Code"], "message": "model"})

    def _answer(self, status: int, answer: Any) -> None:
        body = json.dumps(answer, default=plain).encode()
        head = (
            f"HTTP/1.1 {status} .\r\nContent-Type: application/x-amz-json-1.1\r\nContent-Length: {len(body)}"
        )
        self._transport.write(head.encode() + b"\r\n\r\n" + body)


async def serve(shards: int, seconds: float) -> None:
    """Serve until the standard input ends. Prints the port."""
    stream, feed = Serving(shards), {"pause": 0.0}
    loop = asyncio.get_running_loop()

    async def put() -> None:
        while True:
            begun = time.time()
            if feed["pause"]:
                for shard in stream.open_shards:
                    stream.put_on(shard, bytes(RECORD_BYTES))
            await asyncio.sleep(max(0.01, feed["pause"] - (time.time() - begun)))

    server = await loop.create_server(lambda: _Connection(stream, seconds, feed), "127.0.0.1", 0)
    feeder = loop.create_task(put())
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    feeder.cancel()


class Server:
    """The model in a process of its own."""

    def __init__(self, shards: int, milliseconds: float) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.spark_source", str(shards), "--serve"]
        command += ["--milliseconds", str(milliseconds)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def calls(self) -> Counter[str]:
        with urlopen(self.url, timeout=60) as answer:
            return Counter(json.load(answer))

    def feed(self, pause: float) -> None:
        """Put a record on every shard each ``pause`` seconds; 0: none."""
        body = json.dumps({"pause": pause}).encode()
        urlopen(Request(self.url + "/feed", body), timeout=60).close()

    def options(self) -> dict[str, str]:
        keys = {"awsAccessKeyId": "local", "awsSecretAccessKey": "local", "policy": "none"}
        return {"streamName": "s", "region": "us-east-1", "endpointUrl": self.url, **keys}

    def close(self) -> None:
        self._process.communicate("")


CLIENT: dict[str, Any] = {
    "region_name": "us-east-1",
    "aws_access_key_id": "local",
    "aws_secret_access_key": "local",
    "config": Config(max_pool_connections=32),
}


def plans(server: Server, options: SourceOptions, pause: float, rounds: int = 4) -> None:
    planner = Planner(KinesisReader(options.client(), options))
    at = planner.begin_at(options.starting_position)
    for busy in (True, False):
        server.feed(pause if busy else 0.0)
        for number in range(rounds):
            time.sleep(1.0)
            calls, begun, cpu = server.calls(), time.perf_counter(), time.process_time()
            after = planner.advance(at, ReadLimits(span=int(options.max_span * 1000)))
            wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
            spent = sum((server.calls() - calls).values())
            size = len(json.dumps(after.to_json()))
            name = f"{'busy' if busy else 'idle'} plan {number}"
            print(f"{name}: {wall:.2f} s, {cpu:.2f} s of CPU, {spent:,} calls, offset {size:,} bytes")
            at = after if must_be_written(at, after) else at


def alone(server: Server, options: SourceOptions, pause: float, rounds: int = 4) -> None:
    """The calls of a plan without the planner: a client of boto3 in as many threads."""
    client, name = boto3.client("kinesis", **CLIENT, endpoint_url=server.url), options.stream.name
    server.feed(pause)
    with ThreadPoolExecutor(32) as pool:

        def iterator(shard_id: str) -> str:
            found = client.get_shard_iterator(StreamName=name, ShardId=shard_id, ShardIteratorType="LATEST")
            return str(found["ShardIterator"])

        iterators = list(pool.map(iterator, KinesisReader(client, options).lineage()))

        def read(iterator: str) -> str:
            return str(client.get_records(ShardIterator=iterator, Limit=500)["NextShardIterator"])

        for number in range(rounds):
            time.sleep(1.0)
            begun, cpu = time.perf_counter(), time.process_time()
            iterators = list(pool.map(read, iterators))
            wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
            print(f"boto3 alone {number}: {wall:.2f} s, {cpu:.2f} s of CPU, {len(iterators):,} calls")


def progress_of(query: Any, batches: int, timeout: float) -> list[Any]:
    """What Spark says of the batches with rows, once there are so many or time is up."""
    end = time.monotonic() + timeout
    while True:
        found = [progress for progress in query.recentProgress if progress["numInputRows"]]
        if len(found) >= batches or time.monotonic() > end:
            return found
        time.sleep(0.2)


def batches(spark: Any, server: Server, shards: int, pause: float, seconds: float) -> None:
    server.feed(pause)
    frame = spark.readStream.format("kpl-kinesis").options(**server.options()).load()
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        started = time.perf_counter()
        query = writer.start()
        first = progress_of(query, 1, 60 + seconds)[0]["durationMs"]
        waited = time.perf_counter() - started
        whole = progress_of(query, 4, 60 + seconds)
        calls, begun = server.calls(), time.monotonic()
        time.sleep(seconds)
        whole = progress_of(query, len(whole) + 3, 60 + seconds)[len(whole) :]
        spent, seconds = server.calls() - calls, time.monotonic() - begun
        query.stop()
    names = ("triggerExecution", "latestOffset", "addBatch")
    found = [[one["numInputRows"], *(one["durationMs"].get(name, 0) for name in names)] for one in whole]
    rows, took, planned, read = (median(column) for column in zip(*found, strict=True))
    begin, plan = first["triggerExecution"], first["latestOffset"]
    print(
        f"first batch: {begin / 1000:.2f} s, of it planning {plan / 1000:.2f}; "
        f"it ended {waited:.2f} s after the start"
    )
    print(
        f"batches: median of {len(whole)}: {took / 1000:.2f} s, of it planning {planned / 1000:.2f}, tasks "
        f"{read / 1000:.2f}; {rows:,.0f} rows; calls of each shard in a second: "
        + ", ".join(f"{name} {count / seconds / shards:.2f}" for name, count in sorted(spent.items()))
    )


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("shards", type=int, nargs="+")
    parser.add_argument("--records-per-second", type=float, default=2.0, help="of each shard")
    parser.add_argument("--milliseconds", type=float, default=20.0, help="for each call")
    parser.add_argument("--only", default="plan,batches")
    parser.add_argument("--seconds", type=float, default=30.0, help="for which a query runs")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve(args.shards[0], args.milliseconds / 1000))
        return
    spark: Any = None
    if "batches" in args.only:
        from kpl_codec.spark.session import local_session
        from kpl_codec.spark.source.datasource import KinesisDataSource

        spark = local_session("simulation", cores=2, memory="1g")
        spark.sparkContext.setLogLevel("OFF")  # stopping a query in a batch is not an error here
        spark.dataSource.register(KinesisDataSource)
    for shards in args.shards:
        print(f"{shards:,} shards", flush=True)
        server = Server(shards, args.milliseconds)
        pause = 1 / args.records_per_second
        try:
            if "plan" in args.only:
                plans(server, parse_options(server.options()), pause)
                alone(server, parse_options(server.options()), pause)
            if "batches" in args.only:
                batches(spark, server, shards, pause, args.seconds)
        finally:
            server.close()
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
