"""What a function gives, it also takes: given its own output it changes nothing, or refuses it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kpl_codec as kpl
from kpl_codec.adapters import to_lambda
from kpl_codec.cli.main import main
from kpl_codec.format.records import Tag
from kpl_codec.spark import deaggregate, handled_runs, verify
from kpl_codec.validate.repair_marks import TAG, tag_value

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
    "handled_runs": lambda df: handled_runs(df if "subSequenceNumber" in df.columns else deaggregate(df)),
}


@pytest.mark.slow
@pytest.mark.requirement("SPK-113", "SPK-2")
@pytest.mark.parametrize("name", SPARK)
def test_frames_of_their_own_output(name: str, spark: Any) -> None:
    rows = kinesis_records(broken=name not in ("strict", "handled_runs"))
    result = SPARK[name](spark.createDataFrame(rows, SCHEMA)).cache()
    assert rows_of(SPARK[name](result)) == rows_of(result)


@pytest.mark.requirement("SPK-113", "SPK-34")
def test_a_repair_of_what_was_repaired_plans_nothing(tmp_path: Path) -> None:
    _, *place, _, data = kinesis_records(broken=False)[0]
    right: dict[str, list[Any]] = {shard_id: [] for shard_id in SHARDS}
    for sub, user in enumerate(USERS):
        tags = (*user.tags, Tag(TAG, tag_value((*place, sub))))
        shard = SHARDS.shard_for(kpl.format.hash_keys.partition_key_hash(user.partition_key))
        right[shard.shard_id].append(user._replace(tags=tags))
    records = [kpl.KinesisRecord("k", data, place[1], place[0])]
    for shard_id, some in right.items():
        number = str(10**55 + 100 + len(records))
        records.append(kpl.KinesisRecord("k", kpl.encode(some), number, shard_id))
    (tmp_path / "shards.json").write_text(SHARDS.to_json())
    planned = []
    for copies in (1, len(records)):
        event = to_lambda(records[:copies], stream_arn="arn:aws:kinesis:us-east-1:1:stream/orders")
        (tmp_path / "capture.json").write_text(json.dumps(event))
        results = tmp_path / f"results-{copies}"
        inputs = [str(tmp_path / "capture.json"), "--shards", str(tmp_path / "shards.json")]
        how = ["--quiet", "--engine", "local", "--cores", "1"]
        main(["validate", *how, *inputs, "--output", str(results)])
        assert main(["repair", "--quiet", str(results)]) == 0
        files = (results / "repair/plan").glob("part-*")
        planned.append(sum(pq.read_metadata(file).num_rows for file in files))
        # The plan itself is not planned again.
        assert main(["repair", "--quiet", str(results)]) == 2
    assert planned == [len(USERS), 0]
