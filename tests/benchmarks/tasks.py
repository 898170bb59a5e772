"""What every contender is asked to do, contender by contender.

A task is a function of a loaded corpus. It gives what it made (an iterator: batches to be used and let
go), which `worker` checks once by digest before anything is timed: the same partition keys and data in
the same order.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import kpl_codec as kpl
from kpl_codec.limits import MAX_HASH_KEY

from .corpora import SHARD, Corpus

Task = Callable[[Corpus], Any]
START, END = 0, MAX_HASH_KEY
#: A stream of 64 shards and as many hash keys as a second's worth of records.
LOOKUPS = [random.Random("lookups").getrandbits(128) for _ in range(20_000)]
SHARDS = [
    kpl.Shard(f"shardId-{i:012d}", key_range) for i, key_range in enumerate(kpl.ALL_HASH_KEYS.split(64))
]


def hash_key(partition_key: str, explicit: str | None) -> int:
    """What a user of the other packages writes for the placement check."""
    return (
        int(explicit)
        if explicit is not None
        else int.from_bytes(hashlib.md5(partition_key.encode()).digest(), "big")
    )


class Limit:
    """hashlib.md5 of every message and one copy of the payload; with placement one MD5 a distinct key."""

    def __init__(self, corpus: Corpus) -> None:
        self.messages = [(memoryview(f)[4:-16], f[-16:]) for f in corpus.frames if kpl.is_aggregated(f)]
        self.plain = [frame for frame in corpus.frames if not kpl.is_aggregated(frame)]
        self.keys = [[] if corpus.name == "h" else _distinct(frame) for frame in corpus.frames]

    def decode(self, corpus: Corpus) -> None:
        for message, digest in self.messages:
            assert hashlib.md5(message).digest() == digest
            bytearray(message)
        for frame in self.plain:
            bytearray(frame)

    def decode_placed(self, corpus: Corpus) -> None:
        self.decode(corpus)
        for keys in self.keys:
            for key in keys:
                hashlib.md5(key).digest()

    def tasks(self) -> dict[str, Task]:
        return {"objects": self.decode, "objects+placement": self.decode_placed, "encode": self.decode}


def _distinct(frame: bytes) -> list[bytes]:
    if not kpl.is_aggregated(frame):
        return []
    decoded = kpl.decode(frame)
    if decoded.explicit_hash_key_indices is not None:
        return []
    return [key.encode() for key in decoded.partition_key_table]


class KplCodec:
    def __init__(self, corpus: Corpus) -> None:
        self.records = corpus.kinesis_records()
        self.map = kpl.ShardMap([kpl.Shard(SHARD, kpl.ALL_HASH_KEYS)])
        self.shards = kpl.ShardMap(SHARDS)
        self.policy: Any = "report" if corpus.name == "h" else "strict"
        self.user_records = user_records(corpus)

    def objects(self, corpus: Corpus) -> list[Any]:
        return list(kpl.deaggregate(self.records, self.policy))

    def placed(self, corpus: Corpus) -> list[Any]:
        return list(kpl.deaggregate(self.records, self.policy, shard_map=self.map))

    def each(self, corpus: Corpus) -> Iterator[Any]:
        return kpl.deaggregate(self.records, self.policy)

    def kcl(self, corpus: Corpus) -> Iterator[Any]:
        """What the KCL delivers, its range rule applied as it always applies it."""
        return kpl.deaggregate(self.records, "kcl", hash_key_range=kpl.ALL_HASH_KEYS)

    def report(self, corpus: Corpus) -> Iterator[Any]:
        return kpl.deaggregate(self.records, "report", hash_key_range=kpl.ALL_HASH_KEYS)

    def columns(self, corpus: Corpus, shard_map: kpl.ShardMap | None = None) -> Iterator[Any]:
        from kpl_codec.arrow import Deaggregator

        batch = self.batch()
        return Deaggregator(batch.schema, self.policy, shard_map=shard_map).process(batch)

    def batch(self) -> Any:
        import pyarrow as pa

        if not hasattr(self, "_batch"):
            self._batch = pa.RecordBatch.from_pydict(
                {
                    "shardId": pa.array([r.shard_id for r in self.records], pa.string()),
                    "sequenceNumber": pa.array([r.sequence_number for r in self.records], pa.string()),
                    "partitionKey": pa.array([r.partition_key for r in self.records], pa.string()),
                    "data": pa.array([r.data for r in self.records], pa.binary()),
                    "approximateArrivalTimestamp": pa.array(
                        [1_700_000_000_000_000] * len(self.records), pa.timestamp("us", "UTC")
                    ),
                }
            )
        return self._batch

    def encode(self, corpus: Corpus) -> list[bytes]:
        return [kpl.encode(records) for records in self.user_records]

    def aggregate(self, corpus: Corpus) -> list[bytes]:
        """One record at a time, its exact size known before it goes in."""
        frames = []
        size = 1024 * 1024 if corpus.name == "d" else 50 * 1024
        builder = kpl.AggregatedRecordBuilder(size)
        for records in self.user_records:
            for record in records:
                try:
                    builder.add(record)
                except kpl.AggregateFull:
                    frames.append(builder.build())
                    builder.clear()
                    builder.add(record)
        return [*frames, builder.build()]

    def lookup(self, corpus: Corpus) -> None:
        find = self.shards.shard_for
        for key in LOOKUPS:
            find(key)

    def tasks(self) -> dict[str, Task]:
        return {
            "each object": self.each,
            "objects": self.objects,
            "objects+placement": self.placed,
            "kcl policy": self.kcl,
            "report": self.report,
            "columns": self.columns,
            "columns+placement": lambda corpus: self.columns(corpus, self.map),
            "encode": self.encode,
            "aggregate": self.aggregate,
            "lookup": self.lookup,
        }


class AwsKinesisAgg:
    def __init__(self, corpus: Corpus) -> None:
        from aws_kinesis_agg import deaggregator

        self.deaggregate = deaggregator.iter_deaggregate_records
        self.records = [
            {
                "Data": frame,
                "PartitionKey": "outer",
                "SequenceNumber": str(number),
                "ApproximateArrivalTimestamp": 1.7e9,
            }
            for number, frame in enumerate(corpus.frames)
        ]
        self.user_records = user_records(corpus)

    def each(self, corpus: Corpus) -> Iterator[Any]:
        return self.deaggregate(self.records, "Boto3")  # type: ignore[no-any-return]

    def objects(self, corpus: Corpus) -> list[Any]:
        return list(self.each(corpus))

    def placed(self, corpus: Corpus) -> list[Any]:
        found = self.objects(corpus)
        for record in found:
            inner = record["kinesis"] if "kinesis" in record else {"partitionKey": record["PartitionKey"]}
            assert START <= hash_key(inner["partitionKey"], inner.get("explicitHashKey")) <= END
        return found

    def encode(self, corpus: Corpus) -> list[bytes]:
        from aws_kinesis_agg.aggregator import AggRecord

        frames = []
        for records in self.user_records:
            aggregate = AggRecord(4 * 1024 * 1024)
            for key, data, explicit, _ in records:
                aggregate.add_user_record(key, data, explicit)
            frames.append(aggregate.get_contents()[2])
        return frames

    def aggregate(self, corpus: Corpus) -> list[bytes]:
        from aws_kinesis_agg.aggregator import RecordAggregator

        frames = []
        aggregator = RecordAggregator(1024 * 1024 if corpus.name == "d" else 50 * 1024)
        for records in self.user_records:
            for key, data, explicit, _ in records:
                full = aggregator.add_user_record(key, data, explicit)
                if full:
                    frames.append(full.get_contents()[2])
        return [*frames, aggregator.clear_and_get().get_contents()[2]]

    def tasks(self) -> dict[str, Task]:
        return {
            "each object": self.each,
            "objects": self.objects,
            "objects+placement": self.placed,
            "encode": self.encode,
            "aggregate": self.aggregate,
        }


class Aiokpl:
    def __init__(self, corpus: Corpus) -> None:
        from aiokpl import aggregation

        self.package = aggregation
        self.user_records = [
            [aggregation.UserRecord(key, data, explicit) for key, data, explicit, _ in records]
            for records in user_records(corpus)
        ]

    def objects(self, corpus: Corpus) -> list[Any]:
        return list(self.each(corpus))

    def each(self, corpus: Corpus) -> Iterator[Any]:
        for frame in corpus.frames:
            try:
                yield from self.package.decode_aggregated(frame)
            except ValueError:
                yield frame

    def placed(self, corpus: Corpus) -> list[Any]:
        found = self.objects(corpus)
        for record in found:
            if not isinstance(record, bytes):
                assert START <= hash_key(record.partition_key, record.explicit_hash_key) <= END
        return found

    def encode(self, corpus: Corpus) -> list[bytes]:
        return [self.package.encode_aggregated(records) for records in self.user_records]

    def lookup(self, corpus: Corpus) -> None:
        from aiokpl.shard_map import ShardMap, ShardMapState, _Snapshot

        if not hasattr(self, "map"):
            self.map = ShardMap.__new__(ShardMap)  # its public way in needs a stream to ask
            self.map._state = ShardMapState.READY
            endings = [shard.hash_key_range.ending_hash_key for shard in SHARDS]
            self.map._snapshot = _Snapshot(endings=endings, shard_ids=list(range(len(SHARDS))), shards={})
        predict = self.map.predict
        for key in LOOKUPS:
            predict(key)

    def tasks(self) -> dict[str, Task]:
        return {
            "each object": self.each,
            "objects": self.objects,
            "objects+placement": self.placed,
            "encode": self.encode,
            "lookup": self.lookup,
        }


class AsyncKinesis:
    """Checks no MD5 and gives data only: no keys."""

    def __init__(self, corpus: Corpus) -> None:
        from kinesis.aggregators import KPLAggregator

        class Bytes(KPLAggregator):  # type: ignore[misc]
            @staticmethod
            def serialize(item: bytes) -> bytes:
                return item

            @staticmethod
            def deserialize(data: bytes) -> bytes:
                return data

        self.kind = Bytes
        self.opens = corpus.name not in "eh"  # it takes every record for a sound aggregate

    def objects(self, corpus: Corpus) -> list[Any]:
        parse = self.kind().parse
        return [record for frame in corpus.frames for record in parse(frame)]

    def tasks(self) -> dict[str, Task]:
        return {"objects": self.objects} if self.opens else {}


CONTENDERS: dict[str, Callable[[Corpus], Any]] = {
    "limit": Limit,
    "kpl_codec": KplCodec,
    "kpl_codec (pure)": KplCodec,
    "aws_kinesis_agg": AwsKinesisAgg,
    "aiokpl": Aiokpl,
    "async-kinesis": AsyncKinesis,
}


def user_records(corpus: Corpus) -> list[list[kpl.UserRecord]]:
    """What the corpus was made of, frame by frame."""
    return [list(kpl.decode(frame)) for frame in corpus.frames if corpus.name not in "eh"]


def digest(name: str, task: str, made: Any) -> str | None:
    """What was made, as one number to compare; None where it cannot be compared."""
    if made is None or name in ("limit", "async-kinesis"):
        return None
    sink = hashlib.md5()
    for key, data in _pairs(made):
        sink.update(key + b"\0" + len(data).to_bytes(4, "big") + data)
    return sink.hexdigest()


def _pairs(made: Iterable[Any]) -> Iterable[tuple[bytes, bytes]]:
    import base64

    for item in made:
        if isinstance(item, bytes):
            yield b"", item
        elif isinstance(item, dict) and "kinesis" in item:
            inner = item["kinesis"]
            if not inner.get("aggregated"):
                yield b"", inner["data"]
                continue
            yield inner["partitionKey"].encode(), base64.b64decode(inner["data"])
        elif isinstance(item, dict):
            yield b"", item["Data"]
        elif hasattr(item, "num_rows"):
            keys, data = item.column("partitionKey").to_pylist(), item.column("data").to_pylist()
            opened = item.column("aggregated").to_pylist()
            yield from ((k.encode() if o else b"", d) for k, d, o in zip(keys, data, opened, strict=True))
        else:
            plain = getattr(item, "aggregated", True) is False
            yield b"" if plain else item.partition_key.encode(), item.data
