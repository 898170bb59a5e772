"""What a function gives, it also takes: given its own output it changes nothing, or refuses it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.format.records import Tag
from kpl_codec.spark import deaggregate, verify

pytestmark = pytest.mark.spark

SHARDS = kpl.ShardMap(
    [kpl.Shard(f"shardId-{n:012d}", held) for n, held in enumerate(kpl.ALL_HASH_KEYS.split(2))],
    stream="orders",
)
SCHEMA = "streamName string, shardId string, sequenceNumber string, partitionKey string, data binary"
USERS = [kpl.UserRecord(f"key-{n}", b"%d" % n, tags=(Tag("a", "b"),) if n % 2 else ()) for n in range(6)]


def kinesis_records(*, broken: bool) -> list[tuple[Any, ...]]:
    """Rows of `SCHEMA`: an aggregate of both shards, a plain record, an aggregate of one user record whose
    data is an aggregate, and if asked for one that is broken."""
    nested = kpl.encode([kpl.UserRecord("key", kpl.encode(USERS))])
    frames = [kpl.encode(USERS), b"plain", nested, kpl.encode(USERS[:1])]
    if broken:
        frames.append(kpl.encode(USERS)[:-1] + b"\0")
    return [
        ("orders", "shardId-000000000000", str(10**55 + number), f"outer-{number}", data)
        for number, data in enumerate(frames)
    ]


def rows_of(df: Any) -> Counter[str]:
    return Counter(repr(sorted(row.asDict(recursive=True).items())) for row in df.collect())


SPARK: dict[str, Callable[[Any], Any]] = {
    "strict": deaggregate,
    "kcl": lambda df: deaggregate(df, "kcl", shard_map=SHARDS),
    "report": lambda df: deaggregate(df, "report", tags=True),
    "verify": lambda df: verify(df, SHARDS, tags=True),
}


@pytest.mark.slow
@pytest.mark.requirement("SPK-2")
@pytest.mark.parametrize("name", SPARK)
def test_frames_of_their_own_output(name: str, spark: Any) -> None:
    rows = kinesis_records(broken=name != "strict")
    result = SPARK[name](spark.createDataFrame(rows, SCHEMA)).cache()
    assert rows_of(SPARK[name](result)) == rows_of(result)
