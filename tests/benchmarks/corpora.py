"""The corpora that speed is measured on, the same bytes on every machine.

a  50 KiB aggregates, ~100 B user records (70 to 130), 8 distinct keys a frame out of 512
b  50 KiB aggregates, ~100 B, every user record with its own UUID as key
c  50 KiB aggregates, ~1 KB (716 to 1331), UUID keys
d  1 MiB aggregates, ~200 B (140 to 260), 512 keys
e  plain Kinesis records of 1 KiB, not aggregated
f  as a, an explicit hash key on every user record
g  ~1.2 KB aggregates of about 10 user records of ~100 B, 3 keys: a quiet stream
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass

import kpl_codec as kpl
from kpl_codec.format.limits import MAX_HASH_KEY

KIB = 1024


@dataclass(frozen=True)
class Corpus:
    """``frames``: the data of Kinesis records; ``user_records``: how many they hold; ``size``: bytes."""

    name: str
    frames: list[bytes]
    user_records: int

    @property
    def size(self) -> int:
        return sum(map(len, self.frames))

    def kinesis_records(self) -> list[kpl.KinesisRecord]:
        """As GetRecords gives them, from one shard."""
        return [
            kpl.KinesisRecord(
                f"pk-{i}", frame, str(49545115243490985018280067714973144582180062593244200961 + i), SHARD
            )
            for i, frame in enumerate(self.frames)
        ]


SHARD = "shardId-000000000000"


def _aggregates(
    size: int,
    frame_size: int,
    low: int,
    high: int,
    table: int | None,
    per_frame: int,
    *,
    explicit: bool = False,
) -> tuple[list[bytes], int]:
    """``table`` None: every user record has its own UUID as key."""
    rng = random.Random(f"{frame_size} {low} {high} {table} {per_frame} {explicit}")
    pool = None if table is None else [f"device-{rng.randrange(10**9):09d}" for _ in range(table)]
    frames, total, written = [], 0, 0
    while written < size:
        keys = None if pool is None else rng.sample(pool, per_frame)
        builder = kpl.AggregatedRecordBuilder(frame_size)
        while True:
            key = str(uuid.UUID(int=rng.getrandbits(128), version=4)) if keys is None else rng.choice(keys)
            hash_key = str(rng.randint(0, MAX_HASH_KEY)) if explicit else None
            record = kpl.UserRecord(key, rng.randbytes(rng.randint(low, high)), hash_key)
            if builder.size_with(record) > frame_size:
                break
            builder.add(record)
        frames.append(builder.build())
        total += len(builder)
        written += len(frames[-1])
    return frames, total


def _plain(size: int, each: int) -> tuple[list[bytes], int]:
    rng = random.Random(each)
    frames = [rng.randbytes(each) for _ in range(-(-size // each))]
    return frames, len(frames)


_MAKERS = {
    "a": lambda size: _aggregates(size, 50 * KIB, 70, 130, 512, 8),
    "b": lambda size: _aggregates(size, 50 * KIB, 70, 130, None, 0),
    "c": lambda size: _aggregates(size, 50 * KIB, 716, 1331, None, 0),
    "d": lambda size: _aggregates(size, 1024 * KIB, 140, 260, 512, 512),
    "e": lambda size: _plain(size, KIB),
    "f": lambda size: _aggregates(size, 50 * KIB, 70, 130, 512, 8, explicit=True),
    "g": lambda size: _aggregates(size, 1228, 70, 130, 512, 3),
}
NAMES = tuple(_MAKERS)


def corpus(name: str, mebibytes: float) -> Corpus:
    """About ``mebibytes`` of frames."""
    frames, total = _MAKERS[name](int(mebibytes * KIB * KIB))
    return Corpus(name, frames, total)
