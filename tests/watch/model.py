"""A stream whose every record is known, with GetShardIterator and GetRecords as AWS documents them.

Time is a number that the test moves: a day passes in seconds. What really happens on the wire is tested
against a real server in tests/watch/test_stream_watcher.py.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import kpl_codec as kpl
from kpl_codec.format.hash_keys import partition_key_hash
from kpl_codec.shards.live_shard_map import Failure
from kpl_codec.watch import ShardCall, Watch, WatchFinding

START = 1_700_000_000.0


@dataclass
class Put:
    at_ms: int
    number: int
    key: str
    data: bytes


@dataclass
class ModelStream:
    """``shards``: id -> its records, in order. ``refuse``: what fails, by call and time."""

    shard_map: kpl.ShardMap
    refuse: Callable[[ShardCall, float], str | None] = lambda call, now: None
    records: dict[str, list[Put]] = field(default_factory=dict)
    calls: list[tuple[float, str]] = field(default_factory=list)
    sizes: list[tuple[float, str, int]] = field(default_factory=list)
    _numbers: int = 10**20

    def put(self, shard_id: str, at: float, key: str, data: bytes) -> None:
        self._numbers += 1
        self.records.setdefault(shard_id, []).append(Put(round(at * 1000), self._numbers, key, data))

    def forget(self, before: float) -> None:
        """Retention, so that a day fits into memory."""
        for shard_id, records in self.records.items():
            self.records[shard_id] = records[bisect_left(records, before * 1000, key=lambda p: p.at_ms) :]

    def answer(self, call: ShardCall, now: float) -> dict[str, Any] | Failure:
        self.calls.append((now, call.shard_id))
        code = self.refuse(call, now)
        if code is not None:
            return Failure(code)
        records = self.records.get(call.shard_id, [])
        if call.operation == "GetShardIterator":
            kind = call.arguments["ShardIteratorType"]
            if kind == "AT_TIMESTAMP":
                first = round(call.arguments["Timestamp"].timestamp() * 1000)
                if first > now * 1000:
                    return Failure("InvalidArgumentException")
                at = bisect_left(records, first, key=lambda p: p.at_ms)
                number = records[at].number if at < len(records) else self._numbers + 1
            elif kind == "TRIM_HORIZON":
                number = 0
            else:
                number = int(call.arguments["StartingSequenceNumber"]) + 1
            return {"ShardIterator": str(number)}
        begin = bisect_left(records, int(call.arguments["ShardIterator"]), key=lambda p: p.number)
        visible = bisect_left(records, now * 1000, key=lambda p: p.at_ms)
        given = records[begin : min(visible, begin + call.arguments["Limit"])]
        self.sizes.append((now, call.shard_id, sum(len(put.data) for put in given)))
        after = given[-1].number + 1 if given else int(call.arguments["ShardIterator"])
        left = records[begin + len(given) : visible]
        answer: dict[str, Any] = {
            "Records": [
                {
                    "PartitionKey": put.key,
                    "Data": put.data,
                    "SequenceNumber": str(put.number),
                    "ApproximateArrivalTimestamp": datetime.fromtimestamp(put.at_ms / 1000, timezone.utc),
                }
                for put in given
            ],
            "MillisBehindLatest": round(now * 1000) - left[0].at_ms if left else 0,
            "NextShardIterator": str(after),
        }
        if not self.shard_map[call.shard_id].open and not left:
            del answer["NextShardIterator"]
        return answer


def run(
    watch: Watch,
    stream: ModelStream,
    start: float,
    end: float,
    *,
    latency: float = 0.02,
    at_once: int = 4,
    changes: Iterable[tuple[float, Callable[[float], list[WatchFinding]]]] = (),
) -> list[WatchFinding]:
    """Let ``watch`` run from ``start`` to ``end``; its findings. ``changes``: calls at given times."""
    findings: list[WatchFinding] = []
    events: list[tuple[float, int, Any]] = [(at, -1, change) for at, change in changes]
    heapq.heapify(events)
    now, order, under_way = start, 0, 0
    while now < end:
        call = watch.next_call(now) if under_way < at_once else None
        if call is not None:
            order, under_way = order + 1, under_way + 1
            heapq.heappush(events, (now + latency, order, call))
            continue
        wake = watch.timer() if under_way < at_once else float("inf")
        now = max(now, min([wake, end, *(at for at, *_ in events[:1])]))
        if events and events[0][0] <= now:
            _, _, event = heapq.heappop(events)
            if isinstance(event, ShardCall):
                under_way -= 1
                answer = stream.answer(event, now)
                if isinstance(answer, Failure):
                    findings += watch.fail(event, answer, now)
                else:
                    findings += watch.receive(event, answer, now)
            else:
                findings += event(now)
        else:
            findings += watch.tick(now)
    return findings


def open_map(count: int) -> kpl.ShardMap:
    """``count`` open shards of equal size."""
    ranges = kpl.ALL_HASH_KEYS.split(count)
    return kpl.ShardMap(kpl.Shard(f"shardId-{n:012d}", keys) for n, keys in enumerate(ranges))


def key_on(shard: kpl.Shard, number: int = 0) -> str:
    """A partition key that hashes onto ``shard``; another one for another number."""
    for attempt in range(100_000):
        key = f"k{number}-{attempt}"
        if partition_key_hash(key) in shard.hash_key_range:
            return key
    raise AssertionError("no key")


def seconds_to_find(losses_per_second: float, sampling_rate: float, *, period: float) -> float:
    """Seconds after which a loss that recurs at random has been seen, in 95 of 100 cases (spec/10)."""
    return period - math.log(0.05) / (sampling_rate * losses_per_second)
