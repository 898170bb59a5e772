"""A soak: very many puts against the model stream, with every fault there is, in virtual time.

    python -m tests.producer.soak --puts 1000000 [--seed 1] [--ordering partition-key] [--reshard-proof]

Faults: throttling by a shard's rate, server errors for records and calls, lost, late, cut and senseless
answers, refused and lost map calls, listings with a gap or an overlap, closed shards that expire, splits and
merges, streams deleted and made again. Prints what was put,
delivered, lost, doubled and failed, and exits with 1 if a record was lost, doubled without an attempt that
explains it, or out of order. A double is explained by an attempt whose answer did not say what was stored,
or by another life of the stream.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from contextlib import suppress
from typing import Any, NamedTuple

from kpl_codec import deaggregate
from kpl_codec.producer import Delivery, ProducerConfig, ProducerCore, ProducerFull
from kpl_codec.producer.outcomes import MAY_BE_STORED
from kpl_codec.producer.record_builder import PutRecordsRequest
from kpl_codec.producer.send_queue import TokenBucket
from kpl_codec.shards.live_shard_map import Failure, LiveShardMap, Request

from .model import ModelError, ModelStream

#: Outcomes after which a copy may be there that nobody could tell of. (What is misplaced no KCL gets.)
EXPLAINS = (MAY_BE_STORED | {"placement-unknown"}) - {"delivered", "misplaced"}
THROTTLED = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "Rate exceeded"}
BROKEN = {"ErrorCode": "InternalFailure"}
SENSELESS: list[Any] = [None, "x", [], {"Records": {}}, {"Records": [{"ShardId": ["x"]}]}, {"Shards": 5}]


class Totals(NamedTuple):
    """What came of a soak. ``explained``: doubled, and an attempt says how that can be."""

    put: int
    delivered: int
    failed: dict[str, int]
    lost: int
    doubled: int
    explained: int
    disordered: int
    reshards: int
    lives: int
    sends: float


class Soak:
    """One producer, one stream, one seed."""

    def __init__(self, seed: int, config: ProducerConfig) -> None:
        self.rng = random.Random(seed)
        self.now = 1000.0
        self.stream = ModelStream.of(4)
        self.live = LiveShardMap("soak", shard_filter="FROM_TRIM_HORIZON")
        self.core = ProducerCore(config, self.live, self.rng.randrange)
        self.core.live.refresh(self.now)
        self.under_way: list[tuple[float, PutRecordsRequest | Request]] = []
        self.late: list[tuple[float, PutRecordsRequest]] = []
        self.buckets: dict[str, TokenBucket] = {}
        self.put = self.reshards = 0
        self.results: dict[int, tuple[bool, bool]] = {}  # delivered, a double is explained
        self.failed: Counter[str] = Counter()
        self.attempts = 0
        self.found: Counter[int] = Counter()
        self.first_seen: dict[int, int] = {}
        self.lives = 0
        self.put_in_life: dict[int, int] = {}
        self.keyless: set[int] = set()
        self.closed_at: dict[str, float] = {}

    def run(self, puts: int) -> Totals:
        while self.put < puts:
            self.step(puts)
        self.calm = True
        self.core.close()
        while self.core.outstanding:
            if self.stream.deleted:
                self.stream.create_again(2)
            self.turn()
            self.now += 0.01
        for _, request in self.late:
            self.serve(request)
        self.read(self.stream)
        return self.totals()

    calm = False

    def step(self, puts: int) -> None:
        rng = self.rng
        self.now += rng.random() * 0.02
        for _ in range(rng.randrange(120)):
            if self.put < puts:
                keyless = rng.random() < 0.1
                pending = self.core.prepare(None if keyless else f"key-{self.put % 97}", b"%d" % self.put)
                pending.token = self.put
                with suppress(ProducerFull):
                    self.core.accept(pending, self.now, self.now - rng.random() * 0.01)
                    self.put_in_life[self.put] = self.lives
                    if keyless:
                        self.keyless.add(self.put)
                    self.put += 1
        self.operate()
        self.turn()

    def operate(self) -> None:
        rng = self.rng
        if self.stream.deleted:
            if rng.random() < 0.2:
                self.read(self.stream)
                self.stream.create_again(rng.randrange(1, 6))
                self.stream.lives.clear()
                self.lives += 1
                self.buckets.clear()
                self.closed_at.clear()
        elif rng.random() < 0.001:
            self.stream.delete()
        elif rng.random() < 0.04:
            self.reshards += 1
            if rng.random() < 0.5 or len(self.stream.open) < 3:
                self.stream.split(rng.randrange(99))
            else:
                self.stream.merge(rng.randrange(99))
        if len(self.stream.open) > 12:
            self.stream.merge(rng.randrange(99))

    def turn(self) -> None:
        for due, request in [entry for entry in self.late if entry[0] <= self.now]:
            self.late.remove((due, request))
            if not self.stream.deleted:
                self.serve(request)
        for due, call in [entry for entry in self.under_way if entry[0] <= self.now]:
            self.under_way.remove((due, call))
            self.answer(call)
        self.under_way += [
            (self.now + 0.005 + self.rng.random() * 0.05, request) for request in self.core.requests(self.now)
        ]
        for pending in self.core.results():
            result = pending.result
            self.attempts += len(result.attempts) + result.attempts_left_out
            stored = isinstance(result, Delivery)
            explained = any(attempt.outcome in EXPLAINS for attempt in result.attempts)
            explained = (
                explained or result.attempts_left_out > 0 or self.put_in_life[pending.token] < self.lives
            )
            assert pending.token not in self.results, "two results"
            self.results[pending.token] = stored, explained
            if not stored:
                self.failed[str(result.outcome)] += 1

    def serve(self, request: PutRecordsRequest | Request) -> Any:
        if isinstance(request, Request):
            return self.listed(self.stream.answer(request))
        if self.stream.deleted:
            raise ModelError("ResourceNotFoundException")
        answers = []
        for record in request.records:
            shard = self.stream.route(int(record["ExplicitHashKey"])).shard_id
            bucket = self.buckets.setdefault(shard, TokenBucket(300.0, 60.0))
            fault = 0.0 if self.calm else self.rng.random()
            if bucket.wait(1, self.now) > 0:
                answers.append(THROTTLED)
            elif fault > 0.995:
                answers.append(BROKEN)
            else:
                bucket.take(1)
                answers += self.stream.put_records([record])["Records"]
        return {"Records": answers}

    def listed(self, answer: dict[str, Any]) -> dict[str, Any]:
        """ListShards: without shards that expired, 60 s after they closed; now and then with a gap or an
        overlap."""
        shards = answer.get("Shards")
        if shards is None:
            return answer
        for shard in shards:
            if "EndingSequenceNumber" in shard["SequenceNumberRange"]:
                self.closed_at.setdefault(shard["ShardId"], self.now)
        shards = [shard for shard in shards if self.now - self.closed_at.get(shard["ShardId"], self.now) < 60]
        fault = 0.0 if self.calm else self.rng.random()
        if fault > 0.97:
            shards.pop(self.rng.randrange(len(shards)))
        elif fault > 0.94:
            twin = shards[self.rng.randrange(len(shards))]
            shards.append({**twin, "ShardId": "shardId-000000000000999", "SequenceNumberRange": {}})
        return {"Shards": shards}

    def answer(self, request: PutRecordsRequest | Request) -> None:
        fault = 1.0 if self.calm else self.rng.random()
        core, now = self.core, self.now
        if fault < 0.01:  # it never came
            core.fail(request, Failure("ConnectTimeoutError"), now, answered=True)
        elif fault < 0.02:
            core.fail(
                request,
                Failure(self.rng.choice(["InternalFailure", "ValidationException"])),
                now,
                answered=True,
            )
        elif fault < 0.03 and isinstance(request, PutRecordsRequest):  # it comes when nobody waits any more
            self.late.append((now + self.rng.random() * 40, request))
            core.fail(request, Failure("ReadTimeoutError"), now, answered=False)
        else:
            try:
                answer = self.serve(request)
            except ModelError as error:
                core.fail(request, Failure(str(error)), now, answered=True)
                return
            if fault < 0.04:
                core.fail(request, Failure("ReadTimeoutError"), now, answered=False)
            elif fault < 0.05 and isinstance(request, PutRecordsRequest):
                core.receive(request, {"Records": answer["Records"][:-1]}, now)
            elif fault < 0.06:
                core.receive(request, self.rng.choice(SENSELESS), now)
            else:
                core.receive(request, answer, now)

    def read(self, stream: ModelStream) -> None:
        """What KCL consumers get of the stream in this life, parents before children."""
        of_shard: dict[str, list[Any]] = {shard.shard_id: [] for shard in stream.shards}
        for record in stream.stored:
            of_shard[record.shard_id or ""].append(record)
        for shard in stream.shards:
            read = deaggregate(of_shard[shard.shard_id], "kcl", hash_key_range=shard.hash_key_range)
            for record in read:
                number = int(record.data)
                self.found[number] += 1
                self.first_seen.setdefault(number, len(self.first_seen))

    def totals(self) -> Totals:
        lost = doubled = explained = 0
        for number, (stored, reason) in self.results.items():
            count = self.found[number]
            lost += stored and not count
            if count > 1:
                doubled += 1
                explained += reason
        disordered = 0
        last: dict[int, int] = {}
        for number in range(self.put):
            # Of one key and one life, delivered: the first copies come in the order of the puts.
            if number in self.first_seen and self.results[number][0] and number not in self.keyless:
                place = self.first_seen[number]
                disordered += place < last.get(number % 97, -1)
                last[number % 97] = max(place, last.get(number % 97, -1))
        return Totals(
            put=self.put,
            delivered=sum(stored for stored, _ in self.results.values()),
            failed=dict(self.failed),
            lost=lost,
            doubled=doubled,
            explained=explained,
            disordered=disordered,
            reshards=self.reshards,
            lives=self.lives + 1,
            sends=self.attempts / max(1, len(self.results)),
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--puts", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ordering", choices=["none", "partition-key"], default="none")
    parser.add_argument("--reshard-proof", action="store_true")
    args = parser.parse_args()
    config = ProducerConfig(
        aggregation_max_size=2000, ordering=args.ordering, reshard_proof=args.reshard_proof
    )
    totals = Soak(args.seed, config).run(args.puts)
    for name, value in totals._asdict().items():
        print(f"{name:12} {value}")
    ordered = args.ordering == "none" or not totals.disordered
    return 0 if not totals.lost and totals.doubled == totals.explained and ordered else 1


if __name__ == "__main__":
    sys.exit(main())
