"""A model of Kinesis for the producer's state machine: shards, splits, merges, faults, a KCL reader.

Small and literal. It routes by explicit hash key, keeps every record, never forgets a closed shard, and
lets the test decide when an answer, or no answer, comes back.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kpl_codec import HashKeyRange, KinesisRecord, Shard, deaggregate
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.live_shard_map import Request
from kpl_codec.shards.shard_map import Distribution


@dataclass
class ModelStream:
    """One stream. ``stored``: every Kinesis record, in order, with its shard."""

    shards: list[Shard] = field(default_factory=list)
    stored: list[KinesisRecord] = field(default_factory=list)
    distribution: Distribution = "USER_PARTITION_KEY"
    throttled: set[str] = field(default_factory=set)
    calls: int = 0
    _sequence: int = 10**20

    @classmethod
    def of(cls, shards: int) -> ModelStream:
        stream = cls()
        for hash_key_range in ALL_HASH_KEYS.split(shards):
            stream._add(hash_key_range)
        return stream

    def _number(self) -> str:
        self._sequence += 1
        return str(self._sequence)

    def _add(self, keys: HashKeyRange, parent: str | None = None, adjacent: str | None = None) -> None:
        self.shards.append(
            Shard(f"shardId-{len(self.shards):012}", keys, parent, adjacent, self._number(), None)
        )

    def _end(self, shard: Shard) -> None:
        place = self.shards.index(shard)
        self.shards[place] = Shard(
            shard.shard_id,
            shard.hash_key_range,
            shard.parent_shard_id,
            shard.adjacent_parent_shard_id,
            shard.starting_sequence_number,
            self._number(),
        )

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
        answer = []
        for record in records:
            assert 1 <= len(record["PartitionKey"]) <= 256
            shard = self.route(int(record["ExplicitHashKey"]))
            if shard.shard_id in self.throttled:
                answer.append(
                    {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "Rate exceeded"}
                )
                continue
            number = self._number()
            self.stored.append(KinesisRecord(record["PartitionKey"], record["Data"], number, shard.shard_id))
            answer.append({"ShardId": shard.shard_id, "SequenceNumber": number})
        return {"FailedRecordCount": sum("ErrorCode" in a for a in answer), "Records": answer}

    def answer(self, request: Request) -> dict[str, Any]:
        """ListShards and DescribeStreamSummary, as of now."""
        if request.operation == "DescribeStreamSummary":
            return {"StreamDescriptionSummary": {"RecordDistributionStrategy": self.distribution}}
        return {"Shards": [shard.to_aws() for shard in self.shards]}

    def delivered(self) -> Counter[bytes]:
        """What a KCL consumer gets, by data: its range rule is applied to every shard."""
        found: Counter[bytes] = Counter()
        for shard in self.shards:
            mine = [record for record in self.stored if record.shard_id == shard.shard_id]
            for record in deaggregate(mine, policy="kcl", hash_key_range=shard.hash_key_range):
                found[record.data] += 1
        return found

    def in_order(self) -> list[bytes]:
        """What a KCL consumer gets, parents before children, each shard in its order."""
        found = []
        for shard in self.shards:  # ids grow: parents come first
            mine = [record for record in self.stored if record.shard_id == shard.shard_id]
            found += [r.data for r in deaggregate(mine, policy="kcl", hash_key_range=shard.hash_key_range)]
        return found


def chance_of(seed: int) -> Any:
    """A small deterministic source of chance: chance(n) gives one of 0..n-1."""
    state = [seed]

    def chance(n: int) -> int:
        state[0] += 1
        digest = hashlib.md5(str(state[0]).encode(), usedforsecurity=False).digest()
        return int.from_bytes(digest * 2, "big") % n

    return chance
