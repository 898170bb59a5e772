"""A ledger is opened as it is by what the guide names: zcat, jq, DuckDB, Spark; Athena's columns are those of
the format."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kpl_codec.audit import Ledger, Row
from kpl_codec.ledger.ledger_rows import KINDS, RowKind

GUIDE = (Path(__file__).parents[2] / "spec/guides/was-everything-handled.md").read_text()
SHARDS = [f"shardId-{number:012d}" for number in range(2)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger/produced with two files and rows of every kind."""
    others: list[RowKind] = [kind for kind in KINDS if kind != "delivered"]
    for _ in range(2):
        with closing(Ledger(tmp_path / "ledger/produced").writer("orders")) as ledger:
            ledger.note(
                [
                    Row("delivered", shard, sequence_number=str(10**55 + n), user_records=3, at=n)
                    for n, shard in enumerate(SHARDS)
                ]
            )
            ledger.note(
                [
                    Row(kind, SHARDS[0], sequence_number="7", user_records=1, at=1 << 40, digest=b"12345678")
                    for kind in others
                ]
            )
    return tmp_path


def lines(folder: Path) -> list[dict[str, Any]]:
    files = (folder / "ledger/produced").iterdir()
    return [json.loads(line) for file in files for line in gzip.open(file).read().splitlines()]


@pytest.mark.skipif(shutil.which("jq") is None, reason="install jq to run what the guide shows")
def test_zcat_and_jq(folder: Path) -> None:
    (zcat,) = re.findall(r"^zcat ledger.*", GUIDE, re.MULTILINE)
    (jq,) = re.findall(r"`(zcat [^`]* jq [^`]*)`", GUIDE)
    expected = {zcat: ["4"], jq: [f"{shard}\t3" for shard in SHARDS for _ in range(2)]}
    for command, lines in expected.items():
        done = subprocess.run(command, shell=True, cwd=folder, check=True, capture_output=True, text=True)
        assert sorted(done.stdout.splitlines()) == lines, command


def columns_of_athena() -> dict[str, str]:
    (columns,) = re.findall(r"CREATE EXTERNAL TABLE ledger \((.*?)\)", GUIDE, re.DOTALL)
    return dict(re.findall(r"(\w+) (string|int|bigint)", columns))


def test_the_columns_of_athena_are_keys_of_a_line_and_hold_their_values(folder: Path) -> None:
    columns = columns_of_athena()
    values = {key: value for line in lines(folder) for key, value in line.items() if value is not None}
    rows = {key for line in lines(folder) if line["kind"] in KINDS for key in line}
    assert rows <= columns.keys() <= values.keys()
    for column, kind in columns.items():
        assert type(values[column]) is (str if kind == "string" else int), column
    assert columns["at_ms"] == "bigint"  # the others are below 2^31


@pytest.mark.slow
@pytest.mark.spark
def test_spark(folder: Path, spark: Any) -> None:
    assert "spark.read.json(" in GUIDE
    table = spark.read.json(str(folder / "ledger/produced"))
    assert columns_of_athena().keys() <= set(table.columns)
    delivered = table.where("kind = 'delivered'").groupBy("shard").sum("user_records").collect()
    assert sorted(map(tuple, delivered)) == [(shard, 6) for shard in SHARDS]
