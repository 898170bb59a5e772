"""A long life of a query over the model stream: many shards, resharding all the time, restarts, and outages
in which retention runs out. Every batch is read twice: by what the planner carries, and by its offsets alone.

    python -m tests.spark.source.long_run --records 1000000 --shards 1000
        [--consumer polling|efo|"either in turn"] [--seed 0]

Prints counts: records put, read, expired before they were read; missing without an error (must be 0); twice
(must be 0). It stops at the first batch whose two attempts differ, and at an error although nothing is gone.
"""

from __future__ import annotations

import argparse
import logging
import random
import time
from dataclasses import replace

from kpl_codec.spark.source.offsets import DataLoss
from kpl_codec.spark.source.shard_planner import Caps
from tests.aws.model_fan_out import FanOutKinesis

from .model import HOUR
from .model_query import CONSUMERS, query_of


class Life:
    """``outages``: in which nobody reads for longer than records are kept."""

    def __init__(self, records: int, shards: int, outages: int, consumer: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.stream = FanOutKinesis(shards, seed=seed)
        self.left, self.shards = records, shards
        self.steps = self.batches = self.restarts = self.reshards = self.reported = 0
        self.outages = outages
        self.expired: set[tuple[str, str]] = set()
        self.query = query_of(self.stream, consumer, Caps(span=600_000))
        self.query.batch()

    def feed(self, most: int) -> None:
        """So many records at random, as many shards split as merged."""
        stream, chance = self.stream, self.chance
        for _ in range(chance.randrange(4)):
            (stream.split if len(stream.open_shards) <= self.shards else stream.merge)(
                chance.randrange(10**6)
            )
            self.reshards += 1
        shards = stream.open_shards
        hot = chance.sample(shards, max(1, len(shards) // 100))
        count = min(self.left, chance.randrange(most))
        self.left -= count
        for _ in range(count):
            stream.now += 0.0005
            stream.put_on(chance.choice(hot if chance.random() < 0.5 else shards), b"0123456789")

    def read(self) -> None:
        """Until there is nothing, with restarts; errors are counted, and then read over."""
        while True:
            if self.chance.random() < 0.1:
                self.query.restart()
                self.restarts += 1
            try:
                if not self.query.batch():
                    return
            except DataLoss:
                gone = self.unread_and_expired()
                assert gone, "an error although nothing is gone"
                self.reported += 1
                self.expired |= gone
                self.lose()
            self.batches += 1
            self.stream.now += 0.3

    def unread_and_expired(self) -> set[tuple[str, str]]:
        return self.stream.names() - self.stream.names(left=True) - self.query.read.keys()

    def lose(self) -> None:
        """Read what is left, as with failOnDataLoss=false."""
        query = self.query
        strict = query.options
        query.options = replace(strict, fail_on_data_loss=False)
        query.restart()
        query.until_idle()
        query.options = strict
        query.restart()

    def run(self) -> None:
        outage_at = [self.left * number // (self.outages + 1) for number in range(1, self.outages + 1)]
        sizes = [max(4, self.left // part) for part in (5000, 500, 50)]
        while self.left:
            self.steps += 1
            self.feed(self.chance.choice(sizes))
            due = outage_at and self.left <= outage_at[-1]
            if due:  # records arrive all day, and nobody reads
                outage_at.pop()
                for _ in range(10):
                    self.feed(sizes[1])
                    self.stream.now += 3 * HOUR
                self.query.restart()
            else:
                self.stream.now += self.chance.choice([0.5, 1, 5, 30, 400, HOUR])
            if due or self.chance.random() < 0.7:
                self.read()
        self.stream.now += 300
        self.read()

    def check(self) -> str:
        put, read = self.stream.names(), self.query.read
        twice = sum(count > 1 for count in read.values())
        missing = put - read.keys() - self.expired
        assert not read.keys() - put
        return (
            f"{len(put):,} records of {len(self.stream.shards):,} shards, {self.reshards:,} splits and "
            f"merges; {self.batches:,} batches read twice each, {self.restarts} restarts, {self.outages} "
            f"outages with {self.reported} errors; {len(read):,} read, {len(put - read.keys()):,} expired; "
            f"{len(missing)} missing without an error, {twice} twice"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--outages", type=int, default=5)
    parser.add_argument("--consumer", choices=CONSUMERS, default="polling")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.getLogger("kpl_codec.spark").setLevel(logging.ERROR)
    begun = time.monotonic()
    life = Life(args.records, args.shards, args.outages, args.consumer, args.seed)
    life.run()
    print(life.check(), f"; {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
