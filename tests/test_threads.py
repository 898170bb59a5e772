"""The compiled extension under threads: each gets the same as if it were alone.

Compiled code lets other threads run while it reads; without the interpreter's lock all of this runs at once.
Shared are the records, the shard map and spare native tables.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import kpl_codec as kpl
from kpl_codec.arrow import deaggregate_table

from .shards.test_shard_map import SPLIT

THREADS = 6
ROUNDS = 12


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def kinesis_records() -> list[kpl.KinesisRecord]:
    """From 1 to 3,000 user records each, some damaged: tables of every size are left for others."""
    chance = random.Random(5)
    frames = []
    for count in (1, 3, 40, 700, 3000, 2, 90):
        keys = [f"key-{chance.randrange(count)}" for _ in range(count)]
        frames.append(kpl.encode([kpl.UserRecord(key, chance.randbytes(20)) for key in keys]))
    frames.append(b"plain")
    damaged = bytearray(frames[2])
    damaged[30] ^= 1
    frames.append(bytes(damaged))
    return [
        kpl.KinesisRecord("a", frame, str(n), "shardId-000000000001") for n, frame in enumerate(frames, 1)
    ]


RECORDS = kinesis_records()
MAP = kpl.ShardMap(SPLIT)


def rows(records: list[kpl.KinesisRecord]) -> list[Any]:
    return [
        (row.sub_sequence_number, row.partition_key, row.data, str(row.defects))
        for row in kpl.deaggregate(records, "report", shard_map=MAP)
    ]


def table(records: list[kpl.KinesisRecord]) -> Any:
    columns = {
        "shardId": [record.shard_id for record in records],
        "sequenceNumber": [record.sequence_number for record in records],
        "partitionKey": [record.partition_key for record in records],
        "data": [record.data for record in records],
    }
    return deaggregate_table(pa.table(columns), "report", shard_map=MAP)[0].to_pylist()


def written(records: list[kpl.KinesisRecord]) -> list[bytes]:
    frames = [record.data for record in records[:7]]
    return [kpl.encode(list(kpl.decode(frame))) for frame in frames]


def explained(records: list[kpl.KinesisRecord]) -> list[str]:
    return [str(kpl.explain(record.data)) for record in records[:3]]


WORK: dict[str, Callable[[list[kpl.KinesisRecord]], Any]] = {
    "rows": rows, "table": table, "written": written, "explained": explained,
}  # fmt: skip


def test_each_thread_gets_what_one_alone_gets() -> None:
    alone = {name: work(RECORDS) for name, work in WORK.items()}
    differences: list[str] = []
    together = threading.Barrier(THREADS)

    def run(number: int) -> None:
        order = random.Random(number)
        together.wait()
        for _ in range(ROUNDS):
            name = order.choice(list(WORK))
            first = order.randrange(len(RECORDS))
            if name == "rows" and order.random() < 0.5:  # other sizes, so that tables change hands
                if rows(RECORDS[first:]) != rows(RECORDS[first:]):
                    differences.append("a part")
            elif WORK[name](RECORDS) != alone[name]:
                differences.append(name)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert differences == []
