"""What the library is asked to do.

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


def user_records(corpus: Corpus) -> list[list[kpl.UserRecord]]:
    """What the corpus was made of, frame by frame."""
    return [list(kpl.decode(frame)) for frame in corpus.frames if kpl.is_aggregated(frame)]


def digest(made: Any) -> str:
    """The partition keys and data of the user records that were made, as one number to compare."""
    sink = hashlib.md5()
    for key, data in _pairs(made):
        sink.update(key + b"\0" + len(data).to_bytes(4, "big") + data)
    return sink.hexdigest()


def _pairs(made: Iterable[Any]) -> Iterable[tuple[bytes, bytes]]:
    for item in made:
        if hasattr(item, "num_rows"):
            keys, data = item.column("partitionKey").to_pylist(), item.column("data").to_pylist()
            yield from ((key.encode(), body) for key, body in zip(keys, data, strict=True))
        else:
            yield item.partition_key.encode(), item.data
