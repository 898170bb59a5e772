"""What a function gives, it also takes: given its own output it changes nothing, or refuses it."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kpl_codec as kpl
from kpl_codec.arrow import deaggregate_batches, deaggregate_table
from kpl_codec.cli.main import main
from kpl_codec.format.records import Tag
from kpl_codec.spark import deaggregate, handled_runs, register_table_function, verify
from kpl_codec.validate.repair_marks import TAG, tag_value

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SHARDS = kpl.ShardMap(
    [kpl.Shard(f"shardId-{n:012d}", held) for n, held in enumerate(kpl.ALL_HASH_KEYS.split(2))],
    stream="orders",
)
USERS = [kpl.UserRecord(f"key-{n}", b"%d" % n, tags=(Tag("a", "b"),) if n % 2 else ()) for n in range(6)]


def table(*, broken: bool) -> pa.Table:
    """An aggregate of both shards, a plain record, an aggregate of one user record whose data is an
    aggregate, and if asked for one that is broken."""
    nested = kpl.encode([kpl.UserRecord("key", kpl.encode(USERS))])
    frames = [kpl.encode(USERS), b"plain", nested, kpl.encode(USERS[:1])]
    if broken:
        frames.append(kpl.encode(USERS)[:-1] + b"\0")
    rows = [
        {
            "streamName": "orders",
            "shardId": "shardId-000000000000",
            "sequenceNumber": str(10**55 + number),
            "partitionKey": f"outer-{number}",
            "data": data,
        }
        for number, data in enumerate(frames)
    ]
    return pa.Table.from_pylist(rows)


def rows_of(made: Any) -> Counter[str]:
    rows = (
        made.to_pylist()
        if isinstance(made, pa.Table)
        else [row.asDict(recursive=True) for row in made.collect()]
    )
    return Counter(repr(sorted(row.items())) for row in rows)


def by_batches(given: pa.Table, **options: Any) -> pa.Table:
    return pa.Table.from_batches(list(deaggregate_batches(given.to_batches(max_chunksize=2), **options)))


def by_sql(df: Any) -> Any:
    register_table_function(df.sparkSession, "opened_again", policy="report")
    df.createOrReplaceTempView("to_open")
    return df.sparkSession.sql("SELECT * FROM opened_again(TABLE(SELECT * FROM to_open))")


ARROW: dict[str, Callable[[pa.Table], pa.Table]] = {
    "strict": lambda given: deaggregate_table(given, "strict").table,
    "kcl": lambda given: deaggregate_table(given, "kcl").table,
    "kcl, by a map": lambda given: deaggregate_table(given, "kcl", shard_map=SHARDS).table,
    "report": lambda given: deaggregate_table(given, "report").table,
    "report, by a map": lambda given: deaggregate_table(given, "report", shard_map=SHARDS, tags=True).table,
    "batches": lambda given: by_batches(given, policy="report", shard_map=SHARDS),
}
SPARK: dict[str, Callable[[Any], Any]] = {
    "strict": deaggregate,
    "kcl": lambda df: deaggregate(df, "kcl", shard_map=SHARDS),
    "report": lambda df: deaggregate(df, "report", tags=True),
    "verify": lambda df: verify(df, SHARDS, tags=True),
    "handled_runs": lambda df: handled_runs(df if "subSequenceNumber" in df.columns else deaggregate(df)),
    "table function": by_sql,
}


@pytest.mark.requirement("SPK-113", "SPK-2")
@pytest.mark.parametrize("name", ARROW)
def test_columns_of_their_own_output(name: str) -> None:
    made = ARROW[name](table(broken=name != "strict"))
    again = ARROW[name](made)
    assert rows_of(again) == rows_of(made)
    assert rows_of(ARROW[name](again)) == rows_of(made)


@pytest.mark.slow
@pytest.mark.requirement("SPK-113", "SPK-2")
@pytest.mark.parametrize("name", SPARK)
def test_frames_of_their_own_output(name: str, spark: Any) -> None:
    if name == "table function" and spark.version < "4.1":
        pytest.skip("needs PySpark 4.1")
    given = table(broken=name not in ("strict", "handled_runs")).to_pylist()
    schema = "streamName string, shardId string, sequenceNumber string, partitionKey string, data binary"
    made = SPARK[name](spark.createDataFrame([tuple(row.values()) for row in given], schema)).cache()
    assert rows_of(SPARK[name](made)) == rows_of(made)


@pytest.mark.requirement("SPK-113", "SPK-34")
def test_a_repair_of_what_was_repaired_plans_nothing(tmp_path: Path) -> None:
    given = table(broken=False).slice(0, 1).to_pylist()[0]
    place = given["shardId"], given["sequenceNumber"]
    right: dict[str, list[Any]] = {shard_id: [] for shard_id in SHARDS}
    for sub, user in enumerate(USERS):
        tags = (*user.tags, Tag(TAG, tag_value((*place, sub))))
        shard = SHARDS.shard_for(kpl.format.hash_keys.partition_key_hash(user.partition_key))
        right[shard.shard_id].append(user._replace(tags=tags))
    lines = [(*place, given["data"])]
    for shard, some in right.items():
        lines.append((shard, str(10**55 + 100 + len(lines)), kpl.encode(some)))
    planned = []
    for copies in (1, len(lines)):
        with (tmp_path / "capture.jsonl").open("w") as out:
            for shard, number, data in lines[:copies]:
                record = {
                    "Data": base64.b64encode(data).decode(),
                    "PartitionKey": "k",
                    "SequenceNumber": number,
                    "ApproximateArrivalTimestamp": 1.7e9,
                }
                out.write(json.dumps({"StreamName": "orders", "ShardId": shard, "Records": [record]}) + "\n")
        (tmp_path / "shards.json").write_text(SHARDS.to_json())
        results = tmp_path / f"results-{copies}"
        inputs = [str(tmp_path / "capture.jsonl"), "--shards", str(tmp_path / "shards.json")]
        how = ["--quiet", "--engine", "local", "--cores", "1"]
        main(["validate", *how, *inputs, "--output", str(results)])
        assert main(["repair", "--quiet", str(results)]) == 0
        files = (results / "repair/plan").glob("part-*")
        planned.append(sum(pq.read_metadata(file).num_rows for file in files))
        # The plan itself is not planned again.
        assert main(["repair", "--quiet", str(results)]) == 2
    assert planned == [len(USERS), 0]


@pytest.mark.requirement("SPK-113")
@pytest.mark.parametrize(
    "command",
    [["generate", "--user-records", "200", "--shard-count", "2", "--output"], ["conformance", "--export"]],
    ids=["generate", "export"],
)
def test_a_folder_that_was_written_is_refused_or_the_same(command: list[str], tmp_path: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {str(f.relative_to(tmp_path)): f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}

    assert main([*command, str(tmp_path / "out")]) == 0
    first = contents()
    assert main([*command, str(tmp_path / "out")]) in (0, 2)
    assert contents() == first
