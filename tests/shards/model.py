"""A stream as it should be: the plainest possible model of shards, splits, merges and listings."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from kpl_codec.format.hash_keys import ALL_HASH_KEYS, HashKeyRange
from kpl_codec.shards.shard import Shard

BEGIN = datetime(2024, 1, 1, tzinfo=timezone.utc)


def sequence_number(shard_index: int, created: int, time: int, index: int = 0) -> str:
    """As AWS lays it out; ``created`` and ``time`` are seconds after BEGIN."""
    at = int(BEGIN.timestamp())
    digits = f"2{at + created:09x}{shard_index & 15:x}{index:016x}00{at + time:09x}{shard_index:08x}2"
    return str(int(digits, 16))


class ModelStream:
    """Shards in a list, everything by linear scan. ``now`` is in whole seconds."""

    def __init__(self, shards: int, now: int) -> None:
        self.created = now
        self.now = now
        self.shards: list[Shard] = []
        for hash_key_range in ALL_HASH_KEYS.split(shards):
            self._open(hash_key_range)

    def number(self, shard_index: int, created: int, index: int = 0) -> str:
        """A sequence number that is made now."""
        return sequence_number(shard_index, created, self.now, index)

    def _open(self, hash_key_range: HashKeyRange, *parents: Shard) -> Shard:
        index = len(self.shards)
        shard = Shard(
            f"shardId-{index:012d}",
            hash_key_range,
            parent_shard_id=parents[0].shard_id if parents else None,
            adjacent_parent_shard_id=parents[1].shard_id if len(parents) > 1 else None,
            starting_sequence_number=self.number(index, self.now),
        )
        self.shards.append(shard)
        return shard

    def _close(self, shard: Shard) -> None:
        index = self.shards.index(shard)
        end = self.number(index, 0, 2**63 - 1)
        self.shards[index] = shard.replace(ending_sequence_number=end)

    def open_shards(self) -> list[Shard]:
        return sorted((s for s in self.shards if s.open), key=lambda s: s.hash_key_range)

    def split(self, position: int, at: int | None = None) -> None:
        shard = self.open_shards()[position]
        keys = shard.hash_key_range
        middle = keys.starting_hash_key + keys.size // 2 if at is None else at
        self.now += 1
        self._close(shard)
        self._open(HashKeyRange(keys.starting_hash_key, middle - 1), shard)
        self._open(HashKeyRange(middle, keys.ending_hash_key), shard)

    def merge(self, position: int) -> None:
        one, other = self.open_shards()[position : position + 2]
        self.now += 1
        self._close(one)
        self._close(other)
        both = HashKeyRange(one.hash_key_range.starting_hash_key, other.hash_key_range.ending_hash_key)
        self._open(both, one, other)

    def shard_for(self, hash_key: int) -> Shard:
        (found,) = [s for s in self.shards if s.open and hash_key in s.hash_key_range]
        return found

    def summary(self) -> dict:
        return {
            "StreamDescriptionSummary": {
                "StreamCreationTimestamp": BEGIN + timedelta(seconds=self.created),
                "StreamStatus": "ACTIVE",
            }
        }


def pages(shards: list[Shard], size: int) -> list[dict]:
    """ListShards answers of ``size`` shards each."""
    chunks = [shards[i : i + size] for i in range(0, len(shards), size)] or [[]]
    found: list[dict] = [{"Shards": [shard.to_aws() for shard in chunk]} for chunk in chunks]
    for index, page in enumerate(found[:-1]):
        page["NextToken"] = f"token-{index}"
    return found
