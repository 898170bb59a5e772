"""What a micro-batch costs on a stream of many shards: boto3 and Spark for real, Kinesis as a model over HTTP
that takes its time for each call.

    python -m tests.spark.source.simulation 100 [--records-per-second 2] [--milliseconds 20] [--plan-only]

Prints the calls and seconds of planning, busy and idle, and what Spark says of the batches of a query.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from botocore.exceptions import ClientError

from kpl_codec.spark.source.options import Options, parse_options
from kpl_codec.spark.source.plan import Caps, moves
from kpl_codec.spark.source.read import make_planner

from .model import ModelKinesis

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


def serve(shards: int, records_per_second: float, seconds: float) -> None:
    """Serve until the standard input ends. Prints the port. POST /feed with "on" or "off"; GET: the calls."""
    stream, feeding = Serving(shards), threading.Event()

    def feed() -> None:
        while True:
            feeding.wait()
            begun = time.time()
            for shard in stream.open_shards:
                stream.put_on(shard, 100)
            time.sleep(max(0.0, 1 / records_per_second - (time.time() - begun)))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200, dict(stream.calls))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/feed":
                (feeding.set if body == b"on" else feeding.clear)()
                self._answer(200, {})
                return
            time.sleep(seconds)
            arguments = json.loads(body)
            if "Timestamp" in arguments:
                arguments["Timestamp"] = _Moment(arguments["Timestamp"])
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            try:
                self._answer(200, getattr(stream, _METHODS[operation])(**arguments))
            except ClientError as error:
                self._answer(400, {"__type": error.response["Error"]["Code"], "message": "model"})

        def _answer(self, status: int, answer: Any) -> None:
            body = json.dumps(answer, default=plain).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=feed, daemon=True).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


class _Moment(float):
    def timestamp(self) -> float:
        return float(self)


class Server:
    """The model in a process of its own."""

    def __init__(self, shards: int, records_per_second: float, milliseconds: float) -> None:
        command = [sys.executable, "-m", "tests.spark.source.simulation", str(shards), "--serve"]
        command += ["--records-per-second", str(records_per_second), "--milliseconds", str(milliseconds)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def _ask(self, path: str, body: bytes | None) -> Any:
        from urllib.request import Request, urlopen

        with urlopen(Request(self.url + path, body), timeout=60) as answer:
            return json.load(answer)

    def calls(self) -> Counter[str]:
        return Counter(self._ask("/", None))

    def feed(self, on: bool) -> None:
        self._ask("/feed", b"on" if on else b"off")

    def options(self) -> dict[str, str]:
        keys = {"awsAccessKeyId": "local", "awsSecretAccessKey": "local"}
        return {"streamName": "s", "region": "us-east-1", "endpointUrl": self.url, **keys}

    def close(self) -> None:
        self._process.communicate("")


def planning(server: Server, options: Options, rounds: int) -> None:
    planner = make_planner(options, options.client())
    at = planner.begin_at(options.starting_position)
    for busy in (True, False):
        server.feed(busy)
        for number in range(rounds):
            time.sleep(1.0)
            calls, begun, cpu = server.calls(), time.perf_counter(), time.process_time()
            after = planner.advance(at, Caps(span=options.max_span, piece=options.max_piece))
            wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
            spent = sum((server.calls() - calls).values())
            size = len(json.dumps(after.to_json()))
            name = f"{'busy' if busy else 'idle'} plan {number}"
            print(f"{name}: {wall:.2f} s, {cpu:.2f} s of CPU, {spent:,} calls, offset {size:,} bytes")
            at = after if moves(at, after) else at


def batches(server: Server, seconds: float) -> None:
    from kpl_codec.spark.session import local_session
    from kpl_codec.spark.source.datasource import KinesisDataSource

    spark = local_session("simulation", cores=2, memory="1g")
    spark.dataSource.register(KinesisDataSource)
    server.feed(True)
    frame = spark.readStream.format("kpl-kinesis").options(**server.options()).load()
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.start()
        time.sleep(seconds)
        for progress in query.recentProgress[-6:]:
            took = progress["durationMs"]
            print(f"batch {progress['batchId']}: {progress['numInputRows']:,} rows, {dict(took)}")
        query.stop()
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("shards", type=int)
    parser.add_argument("--records-per-second", type=float, default=2.0, help="of each shard")
    parser.add_argument("--milliseconds", type=float, default=20.0, help="for each call")
    parser.add_argument("--plan-only", action="store_true")
    parser.add_argument("--seconds", type=float, default=40.0, help="for which the query runs")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.shards, args.records_per_second, args.milliseconds / 1000)
        return
    server = Server(args.shards, args.records_per_second, args.milliseconds)
    try:
        planning(server, parse_options(server.options()), 3)
        if not args.plan_only:
            batches(server, args.seconds)
    finally:
        server.close()


if __name__ == "__main__":
    main()
