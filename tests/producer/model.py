"""A model of Kinesis for the producer's state machine: shards, splits, merges, faults, a KCL reader.

Small and literal. It routes by explicit hash key, keeps every record, never forgets a closed shard, can be
deleted and made again under its name, and lets the test decide when an answer, or no answer, comes back.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from kpl_codec import KinesisRecord, Shard, deaggregate
from kpl_codec.shards.live_shard_map import Request
from kpl_codec.shards.sequence_numbers import sequence_hint
from kpl_codec.shards.shard import Distribution

from ..shards import model as shards
from ..shards.model import BEGIN

THROTTLED = "ProvisionedThroughputExceededException"


class ModelError(Exception):
    """The service refuses a call with this code."""


class ModelStream(shards.ModelStream):
    """One stream. ``stored``: every Kinesis record of this life, in order, with its shard. ``lives``: how
    many there were before. ``hints``: sequence numbers are laid out as AWS's. ``describes``: a role may ask
    for the stream's creation time. ``says_distribution``: and is told how it distributes records."""

    def __init__(self, shards: int, *, hints: bool = True, describes: bool = True) -> None:
        self.hints, self.describes, self.says_distribution = hints, describes, True
        self.stored: list[KinesisRecord] = []
        self.distribution: Distribution = "USER_PARTITION_KEY"
        self.throttled: set[str] = set()
        self.calls = self._numbers = self.lives = 0
        self.deleted = False
        self._delivered: Counter[bytes] = Counter()  # by the first so many Kinesis records, and lives before
        self._counted = 0
        super().__init__(shards, 0)

    def delete(self) -> None:
        """The stream is gone, with all that is in it."""
        self.deleted = True

    def create_again(self, shards: int) -> None:
        """A stream under the old name that has nothing to do with the old one."""
        self.delivered()
        self.lives += 1
        self.stored, self._counted, self.deleted = [], 0, False
        self.throttled.clear()
        super().__init__(shards, self.now + 1000)

    def number(self, shard_index: int, created: int, index: int = 0) -> str:
        self._numbers += 1
        number = super().number(shard_index, created, self._numbers)
        return number if self.hints else str(10**20 + self._numbers)

    def number_on(self, shard: Shard) -> str:
        """The next number of a shard."""
        hint = sequence_hint(shard.starting_sequence_number or "0")
        created = int((hint.shard_created - BEGIN).total_seconds()) if hint else 0
        return self.number(int(shard.shard_id[8:]), created)

    def _close(self, shard: Shard) -> None:
        place = self.shards.index(shard)
        self.shards[place] = shard.replace(ending_sequence_number=self.number_on(shard))

    @property
    def open(self) -> list[Shard]:
        return self.open_shards()

    def split(self, which: int, at: int | None = None) -> None:
        which %= len(self.open)
        if self.open[which].hash_key_range.size > 1:
            super().split(which, at)

    def merge(self, which: int) -> None:
        if len(self.open) > 1:
            super().merge(which % (len(self.open) - 1))

    def route(self, hash_key: int) -> Shard:
        if self.distribution == "AUTO":
            self.calls += 1
            return self.open[self.calls % len(self.open)]
        return next(shard for shard in self.open if hash_key in shard.hash_key_range)

    def put_records(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        if self.deleted:
            raise ModelError("ResourceNotFoundException")
        answer = []
        for record in records:
            assert 1 <= len(record["PartitionKey"]) <= 256
            shard = self.route(int(record["ExplicitHashKey"]))
            if shard.shard_id in self.throttled:
                answer.append({"ErrorCode": THROTTLED, "ErrorMessage": "Rate exceeded"})
                continue
            number = self.number_on(shard)
            self.stored.append(KinesisRecord(record["PartitionKey"], record["Data"], number, shard.shard_id))
            answer.append({"ShardId": shard.shard_id, "SequenceNumber": number})
        return {"FailedRecordCount": sum("ErrorCode" in a for a in answer), "Records": answer}

    def answer(self, request: Request) -> dict[str, Any]:
        """ListShards and DescribeStreamSummary, as of now."""
        if self.deleted:
            raise ModelError("ResourceNotFoundException")
        if request.operation == "DescribeStreamSummary":
            summary: dict[str, Any] = {}
            if self.says_distribution:
                summary["RecordDistributionStrategy"] = self.distribution
            if self.describes:
                summary["StreamCreationTimestamp"] = BEGIN + timedelta(days=self.lives)
            return {"StreamDescriptionSummary": summary}
        return {"Shards": [shard.to_aws() for shard in self.shards]}

    def delivered(self) -> Counter[bytes]:
        """What KCL consumers got, by data, in every life: the range rule is applied to every shard."""
        self._delivered.update(consumed(self.shards, self.stored[self._counted :]))
        self._counted = len(self.stored)
        return self._delivered.copy()

    def in_order(self) -> list[bytes]:
        """What a KCL consumer gets, parents before children, each shard in its order."""
        return list(consumed(self.shards, self.stored))


def consumed(shards: list[Shard], stored: list[KinesisRecord]) -> Iterator[bytes]:
    for shard in shards:  # ids grow: parents come first
        records = [record for record in stored if record.shard_id == shard.shard_id]
        for record in deaggregate(records, policy="kcl", hash_key_range=shard.hash_key_range):
            yield record.data


def chance_of(seed: int) -> Callable[[int], int]:
    """A source of chance that is always the same: chance(n) gives one of 0..n-1."""
    return random.Random(seed).randrange
