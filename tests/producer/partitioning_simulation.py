"""Both test series of KIP-794 as a discrete-event simulation, with the library's own partitioner. (The KIP's
measurements knew no waiting for a full batch, and its configuration with a timeout is not in the library.)

What is modelled, after the KIP's set-up: three shards, each behind a server of its own that answers one
request after the other; shard 0's answers take 20 ms longer. A client that may have five requests on
the way per shard, one batch of at most 16 KiB in each, sent as soon as there is one (no linger). 122880
records of 512 bytes are offered at a steady rate. Nothing is measured: time is a number in here, and
the same seed gives the same table.

``BASE`` is fitted once, to the KIP's slow broker: it gave 22.4 MB in 32.4 s when maxed out, which is
16 KiB every 23.7 ms.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field

from kpl_codec.producer.routing import UniformStickyPartitioner

SHARDS = ("shard-0", "shard-1", "shard-2")
RECORDS = 122_880
RECORD_SIZE = 512
OVERHEAD = 8  # what the KIP's bytes per node say: about 8 a record
BATCH_SIZE = 16_384
IN_FLIGHT = 5
BASE = 0.0037
DELAY = 0.020
SENDER_TICK = 0.001


@dataclass
class Batch:
    size: int = 0
    created: list[float] = field(default_factory=list)

    def fits(self, size: int) -> bool:
        return self.size + size <= BATCH_SIZE


@dataclass(frozen=True)
class Result:
    """Throughput in MB/s (of 2**20 bytes), latencies in ms, bytes by shard."""

    throughput: float
    average: float
    p99: float
    size: dict[str, int]


def simulate(rate: float, *, adaptive: bool) -> Result:
    """Offer the records at ``rate`` a second and give what became of them."""
    partitioner = UniformStickyPartitioner(BATCH_SIZE, random.Random(794).randrange, adaptive=adaptive)
    partitioner.set_shards(SHARDS)
    queues: dict[str, deque[Batch]] = {shard: deque() for shard in SHARDS}
    in_flight = dict.fromkeys(SHARDS, 0)
    free_at = dict.fromkeys(SHARDS, 0.0)
    bytes_to = dict.fromkeys(SHARDS, 0)
    latencies: list[tuple[float, float]] = []
    answers: list[tuple[float, int, str, Batch]] = []
    offered = 0
    now = 0.0
    number = 0
    size = RECORD_SIZE + OVERHEAD

    def answered(until: float) -> None:
        while answers and answers[0][0] <= until:
            at, _, shard, batch = heapq.heappop(answers)
            in_flight[shard] -= 1
            latencies.extend((created, (at - created) * 1000) for created in batch.created)

    while len(latencies) < RECORDS:
        now += SENDER_TICK
        while offered < RECORDS and offered / rate <= now:
            created = offered / rate
            answered(created)
            shard = partitioner.current()
            assert shard is not None
            partitioner.appended(size)
            queue = queues[shard]
            if not queue or not queue[-1].fits(size):
                queue.append(Batch())
            queue[-1].size += size
            queue[-1].created.append(created)
            bytes_to[shard] += size
            offered += 1
        answered(now)
        partitioner.update_queues({shard: len(queue) for shard, queue in queues.items()})
        for shard, queue in queues.items():
            if queue and in_flight[shard] < IN_FLIGHT:
                batch = queue.popleft()
                in_flight[shard] += 1
                free_at[shard] = max(free_at[shard], now) + BASE + (DELAY if shard == SHARDS[0] else 0.0)
                number += 1
                heapq.heappush(answers, (free_at[shard], number, shard, batch))
    end = max(free_at.values())
    ordered = sorted(latency for _, latency in latencies)
    return Result(
        RECORDS * RECORD_SIZE / end / 2**20,
        sum(ordered) / RECORDS,
        ordered[int(RECORDS * 0.99)],
        bytes_to,
    )


#: The KIP's own numbers, by records a second and whether it is adaptive: throughput MB/s, average and p99 ms,
#: bytes to node 0, 1, 2.
KIP: dict[tuple[int, bool], tuple[float, float, float, tuple[int, int, int]]] = {
    (2048, False): (1.00, 49.92, 214, (22237614, 21606034, 22152273)),
    (2048, True): (1.00, 40.06, 154, (19244362, 23589010, 23321818)),
    (4096, False): (1.85, 426.24, 2408, (22396882, 21652393, 21355134)),
    (4096, True): (1.99, 34.66, 167, (14866064, 25176418, 25581116)),
}
