"""What the contenders in Python are asked to do.

A task is a function of a loaded corpus. It gives what it made (an iterator: batches to be used and let
go), which `worker` checks once by digest before anything is timed: the same partition keys and data in
the same order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import kpl_codec as kpl

from .corpora import SHARD, Corpus

Task = Callable[[Corpus], Any]


class Limit:
    """hashlib.md5 of every message and one copy of the payload; with placement one MD5 a distinct key."""

    def __init__(self, corpus: Corpus) -> None:
        self.messages = [(memoryview(frame)[4:-16], frame[-16:]) for frame in corpus.frames]
        self.keys = [_distinct(frame) for frame in corpus.frames]

    def decode(self, corpus: Corpus) -> None:
        for message, digest in self.messages:
            assert hashlib.md5(message).digest() == digest
            bytearray(message)

    def decode_placed(self, corpus: Corpus) -> None:
        self.decode(corpus)
        for keys in self.keys:
            for key in keys:
                hashlib.md5(key).digest()

    def tasks(self) -> dict[str, Task]:
        return {"objects": self.decode, "objects+placement": self.decode_placed, "encode": self.decode}


def _distinct(frame: bytes) -> list[bytes]:
    decoded = kpl.decode(frame)
    if decoded.explicit_hash_key_indices is not None:
        return []
    return [key.encode() for key in decoded.partition_key_table]


class KplCodec:
    def __init__(self, corpus: Corpus) -> None:
        self.records = corpus.kinesis_records()
        self.map = kpl.ShardMap([kpl.Shard(SHARD, kpl.ALL_HASH_KEYS)])
        self.user_records = user_records(corpus)

    def objects(self, corpus: Corpus) -> list[Any]:
        return list(kpl.deaggregate(self.records))

    def placed(self, corpus: Corpus) -> list[Any]:
        return list(kpl.deaggregate(self.records, shard_map=self.map))

    def each(self, corpus: Corpus) -> Iterator[Any]:
        return kpl.deaggregate(self.records)

    def one_by_one(self, corpus: Corpus) -> Iterator[Any]:
        """A call for each Kinesis record."""
        return chain.from_iterable(kpl.deaggregate([record]) for record in self.records)

    def kcl(self, corpus: Corpus) -> Iterator[Any]:
        """What the KCL delivers, its range rule applied as it always applies it."""
        return kpl.deaggregate(self.records, "kcl", hash_key_range=kpl.ALL_HASH_KEYS)

    def report(self, corpus: Corpus) -> Iterator[Any]:
        return kpl.deaggregate(self.records, "report", hash_key_range=kpl.ALL_HASH_KEYS)

    def columns(self, corpus: Corpus, shard_map: kpl.ShardMap | None = None) -> Iterator[Any]:
        from kpl_codec.arrow import Deaggregator

        batch = self.batch()
        return Deaggregator(batch.schema, "strict", shard_map=shard_map).process(batch)

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

    def tasks(self) -> dict[str, Task]:
        return {
            "objects drained": self.each,
            "one by one": self.one_by_one,
            "objects kept": self.objects,
            "objects+placement": self.placed,
            "kcl policy": self.kcl,
            "report": self.report,
            "columns": self.columns,
            "columns+placement": lambda corpus: self.columns(corpus, self.map),
            "encode": self.encode,
        }


CONTENDERS: dict[str, Callable[[Corpus], Any]] = {
    "limit": Limit,
    "kpl_codec": KplCodec,
    "kpl_codec (pure)": KplCodec,
}


def user_records(corpus: Corpus) -> list[list[kpl.UserRecord]]:
    """What the corpus was made of, frame by frame."""
    return [list(kpl.decode(frame)) for frame in corpus.frames if kpl.is_aggregated(frame)]


def digest(name: str, task: str, made: Any) -> str | None:
    """What was made, as one number to compare; None where it cannot be compared."""
    if made is None or name == "limit":
        return None
    sink = hashlib.md5()
    for key, data in _pairs(made):
        sink.update(key + b"\0" + len(data).to_bytes(4, "big") + data)
    return sink.hexdigest()


def _pairs(made: Iterable[Any]) -> Iterable[tuple[bytes, bytes]]:
    for item in made:
        if isinstance(item, bytes):
            yield b"", item
        elif hasattr(item, "num_rows"):
            keys, data = item.column("partitionKey").to_pylist(), item.column("data").to_pylist()
            yield from ((key.encode(), body) for key, body in zip(keys, data, strict=True))
        else:
            yield item.partition_key.encode(), item.data
