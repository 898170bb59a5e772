"""What many shards cost a producer: prediction, refreshes, aggregates.

    python -m tests.benchmarks.many_shards [--shards 100 1000 10000] [--only prediction refresh aggregates]

prediction   CPU microseconds to find the shard of a random hash key.
refresh      a producer takes user records while the pages of ListShards come in one by one, after one shard
             has split: microseconds that a put takes (prediction and aggregation), before, during and after;
             the longest step of a refresh, in milliseconds; how many user records of the other shards had a
             prediction meanwhile.
aggregates   in virtual time, 18,000 user records a second of 100 bytes against a service that answers after
             20 ms: user records in an aggregate, PutRecords calls a second, milliseconds from put to request,
             CPU microseconds a user record.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kpl_codec.producer import ProducerConfig, ProducerCore
from kpl_codec.producer.record_builder import PutRecordsRequest
from kpl_codec.shards.live_shard_map import LiveShardMap, Request

from ..shards.model import ModelStream, pages

RATE, LATENCY = 18_000, 0.02
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "10 records, 1 s": {"aggregation_min_count": 10, "aggregation_max_buffered_time_ms": 1000},
    "10 records, 5 s": {"aggregation_min_count": 10, "aggregation_max_buffered_time_ms": 5000},
    "all buffer 1 s": {"record_max_buffered_time_ms": 1000},
    "no keys": {"ignore_keys": True},
}


class Stream:
    """Many shards, a live map, and the pages of ListShards."""

    def __init__(self, shards: int) -> None:
        self.model = ModelStream(shards, now=0)
        self.live = LiveShardMap("s", describe=False, shard_filter="FROM_TRIM_HORIZON")

    def refresh(self, now: float) -> list[float]:
        """One whole refresh; the seconds of each step."""
        self.live.refresh(now)
        steps = []
        listed = iter(pages(self.model.shards, 1000))
        while (request := self.live.next_request(now)) is not None:
            page = next(listed)
            begun = time.perf_counter()
            self.live.receive(request, page, now)
            steps.append(time.perf_counter() - begun)
        return steps


def prediction(shards: int) -> str:
    stream = Stream(shards)
    stream.refresh(0.0)
    keys = [random.Random(n).getrandbits(128) for n in range(100_000)]
    predict = stream.live.predict
    best = float("inf")
    for _ in range(7):
        begun = time.process_time()
        for key in keys:
            predict(key)
        best = min(best, time.process_time() - begun)
    return f"{best / len(keys) * 1e6:.3f} us"


def refresh(shards: int) -> str:
    stream, rng = Stream(shards), random.Random(1)
    core = ProducerCore(ProducerConfig(max_outstanding_records=10**9), stream.live, rng.randrange)
    first, again = stream.refresh(0.0), stream.refresh(1.0)

    def puts(count: int, now: float) -> Iterator[float]:
        for _ in range(count):
            pending = core.prepare("k", b"x" * 100, rng.getrandbits(128))
            begun = time.perf_counter()
            core.accept(pending, now)
            yield time.perf_counter() - begun

    before = sorted(puts(30_000, 1.5))
    closed = stream.model.open_shards()[0]
    stream.model.split(0)
    assert stream.live.invalidate(2.0, closed.shard_id, 2.0)
    during: list[float] = []
    steps: list[float] = []
    listed = iter(pages(stream.model.shards, 1000))
    predicted = 0
    while (request := stream.live.next_request(2.0)) is not None:
        during += puts(3000, 2.0)  # the answer takes its time
        predicted += sum(stream.live.predict(rng.getrandbits(128)) is not None for _ in range(1000))
        page = next(listed)
        begun = time.perf_counter()
        core.receive(request, page, 2.0)
        steps.append(time.perf_counter() - begun)
    during.sort()
    middle, tail = len(during) // 2, -len(during) // 100
    after = statistics.median(puts(30_000, 2.5))
    return (
        f"put p50 {statistics.median(before) * 1e6:.2f} us before, {during[middle] * 1e6:.2f} during, "
        f"{after * 1e6:.2f} after, p99 "
        f"{before[-len(before) // 100] * 1e6:.1f} and {during[tail] * 1e6:.1f}; longest step: first "
        f"{max(first) * 1e3:.1f} ms, unchanged {max(again) * 1e3:.1f}, after a split {max(steps) * 1e3:.1f}; "
        f"predicted meanwhile {predicted / len(steps) / 10:.1f} %"
    )


class Run:
    """A producer in virtual time, and what it measures."""

    def __init__(self, shards: int, settings: Mapping[str, Any]) -> None:
        self.stream = Stream(shards)
        self.rng = random.Random(1)
        config = ProducerConfig(max_outstanding_records=10**9, max_outstanding_bytes=2**40, **settings)
        self.core = ProducerCore(config, self.stream.live, self.rng.randrange, self.observe)
        self.counted: Counter[str] = Counter()
        self.waited: list[float] = []

    def observe(self, name: str, value: float, attributes: Mapping[str, str]) -> None:
        if name == "UserRecordsPerKinesisRecord":
            self.counted["user records"] += int(value)
            self.counted["aggregates"] += 1
        elif name == "BufferingTime":
            self.waited.append(value)
        elif name == "KinesisRecordsPerPutRecordsRequest":
            self.counted["calls"] += 1

    def run(self, seconds: float) -> str:
        core, rng, now = self.core, self.rng, 0.0
        core.live.refresh(now)
        listed: Iterator[dict[str, Any]] = iter(pages(self.stream.model.shards, 1000))
        under_way: list[tuple[float, PutRecordsRequest]] = []
        cpu = time.process_time()
        put = 0
        while now < seconds:
            now += 0.002
            for _ in range(int(now * RATE) - put):
                put += 1
                core.accept(
                    core.prepare("k", b"x" * 100, None if core.config.ignore_keys else rng.getrandbits(128)),
                    now,
                )
            while under_way and under_way[0][0] <= now:
                call = under_way.pop(0)[1]
                placed = (self.stream.live.predict(int(record["ExplicitHashKey"])) for record in call.records)
                answer = [{"ShardId": shard, "SequenceNumber": "1"} for shard in placed]
                core.receive(call, {"Records": answer}, now)
            requests: Sequence[PutRecordsRequest | Request] = core.requests(now)
            while requests:
                ours = [request for request in requests if isinstance(request, PutRecordsRequest)]
                under_way += [(now + LATENCY, request) for request in ours]
                of_map = [request for request in requests if isinstance(request, Request)]
                for request in of_map:
                    summary = request.operation == "DescribeStreamSummary"
                    core.receive(request, {} if summary else next(listed), now)
                requests = core.requests(now) if of_map else ()
            core.results()
        cpu = time.process_time() - cpu
        self.waited.sort()
        sent = max(1, self.counted["user records"])
        return (
            f"{sent / max(1, self.counted['aggregates']):7.1f} {self.counted['calls'] / seconds:9.1f} "
            f"{self.waited[len(self.waited) // 2]:9.0f} {self.waited[-len(self.waited) // 100]:9.0f} "
            f"{cpu / put * 1e6:9.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").splitlines()[0])
    parts = ("prediction", "refresh", "aggregates")
    parser.add_argument("--shards", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--seconds", type=float, default=12.0, help="virtual seconds of the aggregates")
    arguments = parser.parse_args()
    for part, measured in (("prediction", prediction), ("refresh", refresh)):
        for shards in arguments.shards if part in arguments.only else ():
            print(f"{part:11} {shards:6} shards: {measured(shards)}", flush=True)
    if "aggregates" in arguments.only:
        print(f"{'aggregates':36} {'filled':>7} {'calls/s':>9} {'p50 ms':>9} {'p99 ms':>9} {'CPU us':>9}")
        for shards in arguments.shards:
            for name, settings in SETTINGS.items():
                print(
                    f"{shards:10} shards, {name:17} {Run(shards, settings).run(arguments.seconds)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
