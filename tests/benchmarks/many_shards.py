"""How full a producer's aggregates are on a stream of many shards, in virtual time.

    python -m tests.benchmarks.many_shards [--shards 100 1000 10000]

18,000 user records a second of 100 bytes, and a service that answers after 20 ms: user records in an
aggregate, PutRecords calls a second, milliseconds from put to request, CPU microseconds a user record.
"""

from __future__ import annotations

import argparse
import random
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


class Run:
    """A producer in virtual time, and what it measures."""

    def __init__(self, shards: int, settings: Mapping[str, Any]) -> None:
        self.shards, self.rng = ModelStream(shards, now=0).shards, random.Random(1)
        live = LiveShardMap("s", describe=False, shard_filter="FROM_TRIM_HORIZON")
        config = ProducerConfig(max_outstanding_records=10**9, max_outstanding_bytes=2**40, **settings)
        self.core = ProducerCore(config, live, self.rng.randrange, self.observe)
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
        listed: Iterator[dict[str, Any]] = iter(pages(self.shards, 1000))
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
                placed = (core.live.predict(int(record["ExplicitHashKey"])) for record in call.records)
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
    parser.add_argument("--shards", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--seconds", type=float, default=12.0, help="virtual seconds")
    arguments = parser.parse_args()
    print(f"{'':36} {'filled':>7} {'calls/s':>9} {'p50 ms':>9} {'p99 ms':>9} {'CPU us':>9}")
    for shards in arguments.shards:
        for name, settings in SETTINGS.items():
            measured = Run(shards, settings).run(arguments.seconds)
            print(f"{shards:10} shards, {name:17} {measured}", flush=True)


if __name__ == "__main__":
    main()
