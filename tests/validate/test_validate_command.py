"""``kpl-codec validate`` for machines: its exit status, and its summary as JSON."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from kpl_codec import UserRecord, encode
from kpl_codec.cli.main import main
from kpl_codec.format.hash_keys import ALL_HASH_KEYS
from kpl_codec.shards.shard import Shard
from kpl_codec.shards.shard_map import ShardMap

SHARD = "shardId-000000000000"
SCHEMA = json.loads((Path(__file__).parents[2] / "spec" / "summary.schema.json").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A capture that holds one Kinesis record twice: a warning, and nothing worse."""
    (tmp_path / "shards.json").write_text(ShardMap([Shard(SHARD, ALL_HASH_KEYS)]).to_json())
    data = base64.b64encode(encode([UserRecord("a", b"1"), UserRecord("b", b"2")])).decode()
    records = [{"SequenceNumber": "7", "PartitionKey": "a", "Data": data}] * 2
    (tmp_path / "capture.json").write_text(json.dumps({"ShardId": SHARD, "Records": records}))
    return tmp_path


def validate(folder: Path, output: str, *argv: str) -> int:
    given = [str(folder / "capture.json"), "--shards", str(folder / "shards.json")]
    return main(["validate", *given, "--output", str(folder / output), "--quiet", *argv])


@pytest.mark.requirement("SPK-19")
@pytest.mark.parametrize(("severity", "status"), [("info", 1), ("warning", 1), ("error", 0), ("critical", 0)])
def test_fail_on_says_what_counts(severity: str, status: int, folder: Path) -> None:
    assert validate(folder, "out", "--fail-on", severity) == status


def test_json_is_the_summary_that_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(folder, "out", "--json") == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "out" / "summary.json").read_text())
    jsonschema.validate(printed, SCHEMA)
    assert printed["worst"] == "warning"
    assert printed["totals"]["userRecords"] == 4
    assert main(["findings", str(folder / "out"), "--json-lines"]) == 1
    capsys.readouterr()
    assert main(["findings", str(folder / "out"), "--json-lines", "--fail-on", "error"]) == 0
    assert {json.loads(row)["kind"] for row in capsys.readouterr().out.splitlines()} == {"duplicate"}


#: The command as its script runs it; then it tells whether pandas was imported.
_PROGRAM = """
import sys
from kpl_codec.cli.main import entry
try:
    entry()
finally:
    print("with" if sys.modules.get("pandas") else "without", "pandas", file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("line", "pandas"),
    [
        ("cat capture.json", "without"),
        ("validate capture.json --shards shards.json --output local --quiet", "without"),
        pytest.param(
            "validate capture.json --shards shards.json --output spark --quiet --engine spark",
            "with",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_only_spark_loads_pandas(line: str, pandas: str, folder: Path) -> None:
    command = [sys.executable, "-c", _PROGRAM, *line.split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr.splitlines()[-1] == f"{pandas} pandas"
    assert done.returncode == (0 if "cat" in line.split() else 1)
