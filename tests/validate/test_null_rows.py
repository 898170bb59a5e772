"""Rows of captures without data, or without a sequence number: findings, and results that are whole."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kpl_codec as kpl
from kpl_codec.captures import Location
from kpl_codec.validate import LocalEngine, validate
from kpl_codec.validate.results import check_whole

from ..every import every

SHARD = "shardId-000000000000"
MAP = kpl.ShardMap([kpl.Shard(SHARD, kpl.ALL_HASH_KEYS)])
COUNT, PER_RECORD = 6, 3
SCHEMA = pa.schema(
    [
        ("shardId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("subSequenceNumber", pa.int64()),
        ("partitionKey", pa.string()),
        ("data", pa.binary()),
    ]
)
#: Which rows lack their data, and which their sequence number.
LACKING: dict[str, tuple[set[int], set[int]]] = {
    "nothing": (set(), set()),
    "data": ({3}, set()),
    "a number": (set(), {3}),
    "both, one row": ({3}, {3}),
    "both, two rows": ({3}, {5}),
    "all numbers": (set(), set(range(COUNT))),
    "all data": (set(range(COUNT)), set()),
    "all of both": (set(range(COUNT)), set(range(COUNT))),
}


def rows_of(no_data: set[int], no_number: set[int], *, opened: bool) -> list[dict[str, Any]]:
    users = [kpl.UserRecord(f"key {n}", b"%d" % n) for n in range(PER_RECORD)]
    return [
        {
            "shardId": SHARD,
            "sequenceNumber": None if number in no_number else str(10**55 + number),
            "subSequenceNumber": 0 if opened else None,
            "partitionKey": "key",
            "data": None if number in no_data else b"plain" if opened else kpl.encode(users),
        }
        for number in range(COUNT)
    ]


def write(rows: list[dict[str, Any]], form: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    if form == "Parquet":
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "a.parquet")
        return
    lines = []
    for row in rows:
        data = row["data"] and base64.b64encode(row["data"]).decode()
        named = {"SequenceNumber": row["sequenceNumber"], "PartitionKey": "key", "Data": data}
        lines.append(json.dumps({**named, "shardId": SHARD, "SubSequenceNumber": row["subSequenceNumber"]}))
    (folder / "a.jsonl").write_text("\n".join(lines))


@pytest.mark.requirement("SPK-1", "ACC-4", "ACC-11")
@pytest.mark.parametrize("user_records", [True, pytest.param(False, marks=pytest.mark.slow)])
@every("opened", [False, True])
@every("form", ["Parquet", "JSON"])
@every("lacking", LACKING)
def test_whatever_rows_lack_the_results_are_whole_and_say_what(
    lacking: str, form: str, opened: bool, user_records: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    no_data, no_number = LACKING[lacking]
    write(rows_of(no_data, no_number, opened=opened), form, folder / "in")
    result = validate(
        [str(folder / "in")],
        MAP,
        output=str(folder / "out"),
        engine=LocalEngine(),
        user_records=user_records,
    )
    names = ["findings", "user-records"] if user_records else ["findings"]
    check_whole(Location(folder / "out"), *names)
    for name in names:
        parts = (folder / "out" / name).glob("*.parquet")
        assert result.summary["rows"][name] == sum(pq.read_metadata(part).num_rows for part in parts)
    if form == "Parquet":
        each = 1 if opened else PER_RECORD
        assert result.summary["rows"]["user-records"] == (COUNT - len(no_data)) * each
    assert not (no_data and result.clean)
