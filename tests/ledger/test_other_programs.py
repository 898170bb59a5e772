"""A ledger is opened as it is by what the guide names: zcat, jq, Spark."""

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

from ..audit.model import rows_of

GUIDE = (Path(__file__).parents[2] / "spec/guides/was-everything-handled.md").read_text()
SHARDS = [f"shardId-{number:012d}" for number in range(2)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger/produced with two files and rows of every kind."""
    others: list[RowKind] = [kind for kind in KINDS if kind != "delivered"]
    for _ in range(2):
        with closing(Ledger(tmp_path / "ledger/produced").writer("orders")) as ledger:
            for shard in SHARDS:
                ledger.note(rows_of("delivered", 10**55, shard_id=shard, user_records=3))
            ledger.note(
                [
                    Row(kind, SHARDS[0], sequence_number="7", user_records=1, at=1 << 40, digest=b"12345678")
                    for kind in others
                ]
            )
    return tmp_path


@pytest.mark.skipif(shutil.which("jq") is None, reason="install jq to run what the guide shows")
def test_zcat_and_jq(folder: Path) -> None:
    (zcat,) = re.findall(r"^zcat ledger.*", GUIDE, re.MULTILINE)
    (jq,) = re.findall(r"`(zcat [^`]* jq [^`]*)`", GUIDE)
    expected = {zcat: ["4"], jq: [f"{shard}\t3" for shard in SHARDS for _ in range(2)]}
    for command, lines in expected.items():
        done = subprocess.run(command, shell=True, cwd=folder, check=True, capture_output=True, text=True)
        assert sorted(done.stdout.splitlines()) == lines, command


@pytest.mark.slow
@pytest.mark.spark
def test_spark(folder: Path, spark: Any) -> None:
    assert "spark.read.json(" in GUIDE
    table = spark.read.json(str(folder / "ledger/produced"))
    files = (folder / "ledger/produced").iterdir()
    lines = [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert {key for line in lines for key in line} == set(table.columns)
    delivered = table.where("kind = 'delivered'").groupBy("shard").sum("user_records").collect()
    assert sorted(map(tuple, delivered)) == [(shard, 6) for shard in SHARDS]
