"""A stream as it should be, in memory: GetRecords and its kin over lists, with a clock that is set by hand.

It keeps what retention removed, so that a test can tell what a reader has missed.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from datetime import datetime, timezone
from operator import itemgetter
from typing import Any

from botocore.exceptions import ClientError

from kpl_codec.format.hash_keys import ALL_HASH_KEYS, HashKeyRange
from kpl_codec.shards.shard import Shard

HOUR = 3600.0
#: An iterator lives so many seconds.
_ITERATOR_LIFE = 300.0
_BYTES_OF_ANSWER = 10 * 1024 * 1024
_BYTES_A_SECOND = 2 * 1024 * 1024


def refusal(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "model"}}, operation)


def as_answered(number: int, arrived: float, data: bytes) -> dict[str, Any]:
    """A record as boto3 gives it."""
    return {
        "SequenceNumber": str(number),
        "ApproximateArrivalTimestamp": datetime.fromtimestamp(arrived, timezone.utc),
        "Data": data,
        "PartitionKey": "key",
    }


@dataclass(eq=False)
class ModelShard:
    shard_id: str
    hash_key_range: HashKeyRange
    parents: tuple[str, ...]
    start: int
    end: int | None = None
    closed_at: float | None = None
    records: list[tuple[int, float, bytes]] = field(default_factory=list)  # number, arrival, data


class ModelKinesis:
    """A boto3 client of one stream, and the stream. ``now``: seconds since 1970, moved by `sleep`.

    ``silent``: GetShardIterator at a record past retention gives the oldest record left, not an error.
    ``limits``: of each shard 5 calls of each operation and 2 MiB in a second; what is beyond is refused, and
    counted as "throttled" in ``calls``.
    """

    def __init__(
        self,
        shards: int,
        *,
        retention: float = 24 * HOUR,
        silent: bool = False,
        limits: bool = False,
        seed: int = 0,
    ) -> None:
        self.now = 1_700_000_000.0
        #: What DescribeStreamSummary says of it besides; None: the role may not ask.
        self.arn: str | None = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
        self.created = datetime(2023, 1, 1, tzinfo=timezone.utc)
        self.retention, self.silent, self.limits = retention, silent, limits
        self._latest: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque([0.0] * 5, 5))
        self._given: dict[str, tuple[float, float]] = {}  # bytes that count at a time
        self.calls: Counter[str] = Counter()
        self.given = 0
        self.shards: dict[str, ModelShard] = {}
        self._deleted: list[ModelShard] = []
        self.born = 0.0
        self._numbers = itertools.count(10**20)
        self._chance = random.Random(seed)
        for hash_key_range in ALL_HASH_KEYS.split(shards):
            self._open(hash_key_range)

    # -- the stream ---------------------------------------------------------------------------

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def _open(self, hash_key_range: HashKeyRange, *parents: ModelShard) -> None:
        shard_id = f"shardId-{len(self.shards):012d}"
        self.shards[shard_id] = ModelShard(
            shard_id, hash_key_range, tuple(parent.shard_id for parent in parents), next(self._numbers)
        )

    @property
    def open_shards(self) -> list[ModelShard]:
        found = [shard for shard in self.shards.values() if shard.end is None]
        return sorted(found, key=lambda shard: shard.hash_key_range)

    def put(self, count: int = 1, size: int = 10) -> None:
        """Records on shards drawn at random; each a little later than the one before."""
        for _ in range(count):
            self.now += 0.001
            self.put_on(self._chance.choice(self.open_shards), bytes(size))

    def put_on(self, shard: ModelShard, data: bytes) -> None:
        shard.records.append((next(self._numbers), self.now, data))

    def split(self, at: int) -> None:
        shard = self.open_shards[at % len(self.open_shards)]
        self._close(shard)
        for half in shard.hash_key_range.split(2):
            self._open(half, shard)

    def merge(self, at: int) -> None:
        shards = self.open_shards
        if len(shards) < 2:
            return
        left, right = shards[at % (len(shards) - 1) :][:2]
        self._close(left)
        self._close(right)
        low, high = left.hash_key_range.starting_hash_key, right.hash_key_range.ending_hash_key
        self._open(HashKeyRange(low, high), left, right)

    def recreate(self, shards: int, *, seconds: float = 120) -> None:
        """The stream is deleted and created again. Shard ids begin anew."""
        self._deleted += self.shards.values()
        self.shards = {}
        self.now += seconds
        self.born = self.now
        self.created = datetime.fromtimestamp(self.now, timezone.utc)
        for hash_key_range in ALL_HASH_KEYS.split(shards):
            self._open(hash_key_range)

    def recreate_at_once(self, shards: int) -> None:
        """The same between two listings of a reader."""
        self.recreate(shards, seconds=1)

    def _close(self, shard: ModelShard) -> None:
        shard.end, shard.closed_at = next(self._numbers), self.now

    def names(self, *, left: bool = False) -> set[tuple[str, str]]:
        """(shard, sequence number) of every record ever put; with ``left`` of those within retention."""
        return {
            (shard.shard_id, str(number))
            for shard in [*self.shards.values(), *([] if left else self._deleted)]
            for number, arrived, _ in shard.records
            if not left or arrived > self.now - self.retention
        }

    def listed(self) -> list[ModelShard]:
        """The shards that may still hold records."""
        return [shard for shard in self.shards.values() if self._may_hold_records(shard)]

    def _may_hold_records(self, shard: ModelShard) -> bool:
        return shard.closed_at is None or shard.closed_at > self.now - self.retention

    def _within_limits(self, shard_id: str, operation: str) -> None:
        latest = self._latest[shard_id, operation]
        size, when = self._given.get(shard_id, (0.0, 0.0))
        full = operation == "get_records" and size - (self.now - when) * _BYTES_A_SECOND > _BYTES_A_SECOND
        if self.limits and (full or self.now - latest[0] < 1.0):
            self.calls[f"throttled {operation}"] += 1
            raise refusal("ProvisionedThroughputExceededException", operation)
        latest.append(self.now)

    # -- the client ---------------------------------------------------------------------------

    def list_shards(self, **_: Any) -> dict[str, Any]:
        self.calls["list_shards"] += 1
        return {
            "Shards": [
                Shard(
                    shard.shard_id,
                    shard.hash_key_range,
                    **dict(zip(("parent_shard_id", "adjacent_parent_shard_id"), shard.parents, strict=False)),
                    starting_sequence_number=str(shard.start),
                    ending_sequence_number=str(shard.end) if shard.end is not None else None,
                ).to_aws()
                for shard in self.listed()
            ]
        }

    def describe_stream_summary(self, **_: Any) -> dict[str, Any]:
        self.calls["describe_stream_summary"] += 1
        if self.arn is None:
            raise refusal("AccessDeniedException", "DescribeStreamSummary")
        return {
            "StreamDescriptionSummary": {
                "StreamName": "s",
                "StreamARN": self.arn,
                "StreamStatus": "ACTIVE",
                "RetentionPeriodHours": int(self.retention // HOUR),
                "StreamCreationTimestamp": self.created,
            }
        }

    def get_shard_iterator(
        self,
        *,
        StreamName: str,
        ShardId: str,
        ShardIteratorType: str,
        StartingSequenceNumber: str = "",
        Timestamp: datetime | None = None,
    ) -> dict[str, Any]:
        self.calls["get_shard_iterator"] += 1
        self._within_limits(ShardId, "get_shard_iterator")
        shard = self.shards.get(ShardId)
        if shard is None or not self._may_hold_records(shard):
            raise refusal("ResourceNotFoundException", "GetShardIterator")
        bound = 0
        if ShardIteratorType == "LATEST":
            bound = shard.records[-1][0] + 1 if shard.records else 0
        elif ShardIteratorType == "AT_TIMESTAMP":
            assert Timestamp is not None
            if Timestamp.timestamp() > self.now + 1e-3:
                raise refusal("InvalidArgumentException", "GetShardIterator")
            at = bisect_left(shard.records, Timestamp.timestamp() - 5e-4, key=itemgetter(1))
            bound = next((number for number, _, _ in shard.records[at : at + 1]), next(self._numbers))
        elif ShardIteratorType != "TRIM_HORIZON":
            bound = int(StartingSequenceNumber) + (ShardIteratorType == "AFTER_SEQUENCE_NUMBER")
            at = bisect_left(shard.records, int(StartingSequenceNumber), key=itemgetter(0))
            expired = any(
                number == int(StartingSequenceNumber) and arrived <= self.now - self.retention
                for number, arrived, _ in shard.records[at : at + 1]
            )
            if (expired or int(StartingSequenceNumber) < shard.start) and not self.silent:
                raise refusal("InvalidArgumentException", "GetShardIterator")
        return {"ShardIterator": f"{ShardId} {bound} {self.now}"}

    def get_records(self, *, ShardIterator: str, Limit: int = 10_000) -> dict[str, Any]:
        self.calls["get_records"] += 1
        shard_id, bound, made = ShardIterator.split()
        self._within_limits(shard_id, "get_records")
        if self.now - float(made) > _ITERATOR_LIFE:
            raise refusal("ExpiredIteratorException", "GetRecords")
        if float(made) < self.born or shard_id not in self.shards:
            raise refusal("ResourceNotFoundException", "GetRecords")
        shard = self.shards[shard_id]
        at = max(
            bisect_left(shard.records, int(bound), key=itemgetter(0)),
            bisect_right(shard.records, self.now - self.retention, key=itemgetter(1)),
        )
        sizes = itertools.accumulate(len(data) for _, _, data in shard.records[at : at + Limit])
        most = max(1, sum(size <= _BYTES_OF_ANSWER for size in sizes))
        records, left = shard.records[at : at + most], len(shard.records) > at + most
        self.given += len(records)
        size, when = self._given.get(shard_id, (0.0, 0.0))
        size = max(0.0, size - (self.now - when) * _BYTES_A_SECOND) + sum(len(data) for _, _, data in records)
        self._given[shard_id] = size, self.now
        answer: dict[str, Any] = {
            "Records": [as_answered(*record) for record in records],
            "MillisBehindLatest": int((shard.records[-1][1] - records[-1][1]) * 1000) if left else 0,
        }
        if left or shard.end is None:
            bound = str(records[-1][0] + 1) if records else bound
            answer["NextShardIterator"] = f"{shard_id} {bound} {self.now}"
        return answer
