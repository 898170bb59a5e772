"""Streams with known contents, and what must come out of them."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import kpl_codec as kpl
from kpl_codec.aws.stream_reading import fetch_shard_map
from kpl_codec.testing.local_kinesis import LocalKinesis

#: (shard, sequence number, sub-sequence number): what a user record is called.
Name = tuple[str, str, int]


class Stream:
    """A stream on a local server, and the name of every user record that was put into it."""

    def __init__(self, kinesis: LocalKinesis, name: str, shards: int = 1) -> None:
        self.kinesis, self.name = kinesis, name
        self.client = kinesis.client()
        self.sent: Counter[Name] = Counter()
        self.data: dict[Name, tuple[str, bytes]] = {}
        self._numbers = itertools.count()
        self._chance = random.Random(0)  # the same keys in every run: each shard gets some
        kinesis.create_stream(name, shards)

    def options(self, **more: Any) -> dict[str, str]:
        settings = {
            "stream": self.name,
            "region": "us-east-1",
            "endpointUrl": self.kinesis.endpoint_url,
            "awsAccessKeyId": "local",
            "awsSecretAccessKey": "local",
            "fetchCallsPerSecondPerShard": 0,
            "fetchBytesPerSecondPerShard": 0,
            "idleTimeBetweenReadsInMs": 50,
            "describeShardInterval": 0,
        }
        return {key: str(value) for key, value in {**settings, **more}.items() if value is not None}

    def put(self, aggregates: int = 1, size: int = 3, width: int = 1, *, naive: bool = False) -> list[Name]:
        """``aggregates`` aggregated records, each of one key or if ``naive`` of a key for each user record,
        and as many plain ones; their names. ``width``: bytes of a user record's data, at least."""
        entries: list[dict[str, Any]] = []
        inside: list[list[tuple[str, bytes]]] = []
        for count in (size, 1) * aggregates:
            key = f"key-{self._chance.randrange(20)}"
            keys = [f"{key}-{at}" if naive and at else key for at in range(count)]
            users = [(one, b"%0*d" % (width, next(self._numbers))) for one in keys]
            aggregate = kpl.encode([kpl.UserRecord(*user) for user in users])
            entries.append({"Data": aggregate if count > 1 else users[0][1], "PartitionKey": key})
            inside.append(users)
        names = []
        for at in range(0, len(entries), 400):
            answer = self.client.put_records(StreamName=self.name, Records=entries[at : at + 400])
            assert answer["FailedRecordCount"] == 0
            for record, users in zip(answer["Records"], inside[at : at + 400], strict=True):
                for sub, user in enumerate(users):
                    name = record["ShardId"], record["SequenceNumber"], sub
                    self.sent[name] += 1
                    self.data[name] = user
                    names.append(name)
        return names

    def split(self, shard_id: str) -> None:
        shard = fetch_shard_map(self.client, self.name)[shard_id]
        middle = shard.hash_key_range.split(2)[1].starting_hash_key
        self.client.split_shard(StreamName=self.name, ShardToSplit=shard_id, NewStartingHashKey=str(middle))
        self.kinesis.wait_active(self.name)

    def merge(self, left: str, right: str) -> None:
        self.client.merge_shards(StreamName=self.name, ShardToMerge=left, AdjacentShardToMerge=right)
        self.kinesis.wait_active(self.name)

    def check(self, seen: Iterable[tuple[Name, str, bytes]]) -> None:
        """Every user record once: none missing, none twice, none altered."""
        got: Counter[Name] = Counter()
        for name, key, data in seen:
            got[name] += 1
            if name in self.data:
                assert self.data[name] == (key, bytes(data)), name
        assert sum(self.sent.values()) == len(self.sent)
        missing, extra = self.sent - got, got - self.sent
        assert not missing, f"{len(missing)} of {len(self.sent)} missing: {sorted(missing)[:3]}"
        assert not extra, f"{len(extra)} too many: {sorted(extra)[:3]}"


def rows_in(frame: Any) -> list[tuple[Name, str, bytes]]:
    """The user records of a DataFrame."""
    rows = frame.select("shardId", "sequenceNumber", "subSequenceNumber", "partitionKey", "data").collect()
    return [((row[0], row[1], row[2]), row[3], bytes(row[4])) for row in rows]
