"""A model of Kinesis for the producer's state machine: shards, splits, merges, faults, a KCL reader.

Small and literal. It routes by explicit hash key, keeps every record, never forgets a closed shard, can be
deleted and made again under its name, and lets the test decide when an answer, or no answer, comes back.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kpl_codec import HashKeyRange, KinesisRecord, Shard, deaggregate
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.live_shard_map import Request
from kpl_codec.shards.sequence_numbers import sequence_hint
from kpl_codec.shards.shard import Distribution

from ..shards.model import BEGIN, sequence_number


class ModelError(Exception):
    """The service refuses a call with this code."""


@dataclass
class ModelStream:
    """One stream. ``stored``: every Kinesis record of this life, in order, with its shard. ``lives``: those
    of the lives before. ``hints``: sequence numbers are laid out as AWS's. ``describes``: a role may ask for
    the stream's creation time."""

    shards: list[Shard] = field(default_factory=list)
    stored: list[KinesisRecord] = field(default_factory=list)
    distribution: Distribution = "USER_PARTITION_KEY"
    throttled: set[str] = field(default_factory=set)
    calls: int = 0
    hints: bool = True
    describes: bool = True
    deleted: bool = False
    lives: list[tuple[list[Shard], list[KinesisRecord]]] = field(default_factory=list)
    _sequence: int = 0
    _began: int = 0

    @classmethod
    def of(cls, shards: int, *, hints: bool = True, describes: bool = True) -> ModelStream:
        stream = cls(hints=hints, describes=describes)
        for hash_key_range in ALL_HASH_KEYS.split(shards):
            stream._add(hash_key_range)
        return stream

    def delete(self) -> None:
        """The stream is gone, with all that is in it."""
        self.deleted = True

    def create_again(self, shards: int) -> None:
        """A stream under the old name that has nothing to do with the old one."""
        self.lives.append((self.shards, self.stored))
        self.shards, self.stored = [], []
        self.deleted = False
        self._sequence += 1000  # seconds
        self._began = self._sequence
        self.throttled.clear()
        for hash_key_range in ALL_HASH_KEYS.split(shards):
            self._add(hash_key_range)

    def _number(self, index: int, created: int | None = None) -> str:
        """A sequence number on the shard with this index, made (in seconds) at ``created``, or now."""
        self._sequence += 1
        if not self.hints:
            return str(10**20 + self._sequence)
        return sequence_number(index, self._sequence if created is None else created, self._sequence)

    def _number_on(self, shard: Shard) -> str:
        hint = sequence_hint(shard.starting_sequence_number or "0")
        created = int((hint.shard_created - BEGIN).total_seconds()) if hint else None
        return self._number(int(shard.shard_id[8:]), created)

    def _add(self, keys: HashKeyRange, parent: str | None = None, adjacent: str | None = None) -> None:
        index = len(self.shards)
        number = self._number(index, self._began if parent is None else None)
        self.shards.append(
            Shard(
                f"shardId-{index:012}",
                keys,
                parent_shard_id=parent,
                adjacent_parent_shard_id=adjacent,
                starting_sequence_number=number,
                ending_sequence_number=None,
            )
        )

    def _end(self, shard: Shard) -> None:
        place = self.shards.index(shard)
        self.shards[place] = shard.replace(ending_sequence_number=self._number_on(shard))

    @property
    def open(self) -> list[Shard]:
        return sorted((s for s in self.shards if s.open), key=lambda s: s.hash_key_range)

    def split(self, which: int) -> None:
        shard = self.open[which % len(self.open)]
        if shard.hash_key_range.size < 2:
            return
        self._end(shard)
        for half in shard.hash_key_range.split(2):
            self._add(half, shard.shard_id)

    def merge(self, which: int) -> None:
        if len(self.open) < 2:
            return
        left, right = self.open[which % (len(self.open) - 1) :][:2]
        self._end(left)
        self._end(right)
        keys = HashKeyRange(left.hash_key_range.starting_hash_key, right.hash_key_range.ending_hash_key)
        self._add(keys, left.shard_id, right.shard_id)

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
                answer.append(
                    {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "Rate exceeded"}
                )
                continue
            number = self._number_on(shard)
            self.stored.append(KinesisRecord(record["PartitionKey"], record["Data"], number, shard.shard_id))
            answer.append({"ShardId": shard.shard_id, "SequenceNumber": number})
        return {"FailedRecordCount": sum("ErrorCode" in a for a in answer), "Records": answer}

    def answer(self, request: Request) -> dict[str, Any]:
        """ListShards and DescribeStreamSummary, as of now."""
        if self.deleted:
            raise ModelError("ResourceNotFoundException")
        if request.operation == "DescribeStreamSummary":
            summary: dict[str, Any] = {"RecordDistributionStrategy": self.distribution}
            if self.describes:
                summary["StreamCreationTimestamp"] = BEGIN + timedelta(days=len(self.lives))
            return {"StreamDescriptionSummary": summary}
        return {"Shards": [shard.to_aws() for shard in self.shards]}

    def delivered(self) -> Counter[bytes]:
        """What KCL consumers got, by data, in every life: the range rule is applied to every shard."""
        lives = (*self.lives, (self.shards, self.stored))
        return Counter(data for shards, stored in lives for data in consumed(shards, stored))

    def in_order(self) -> list[bytes]:
        """What a KCL consumer gets, parents before children, each shard in its order."""
        return list(consumed(self.shards, self.stored))


def consumed(shards: list[Shard], stored: list[KinesisRecord]) -> Iterator[bytes]:
    for shard in shards:  # ids grow: parents come first
        records = [record for record in stored if record.shard_id == shard.shard_id]
        for record in deaggregate(records, policy="kcl", hash_key_range=shard.hash_key_range):
            yield record.data


def chance_of(seed: int) -> Any:
    """A small deterministic source of chance: chance(n) gives one of 0..n-1."""
    state = [seed]

    def chance(n: int) -> int:
        state[0] += 1
        digest = hashlib.md5(str(state[0]).encode(), usedforsecurity=False).digest()
        return int.from_bytes(digest * 2, "big") % n

    return chance
