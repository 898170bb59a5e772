"""Generated captures: exact in number, the same however they are made, with the faults asked for."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kpl_codec.captures import generated as module
from kpl_codec.captures.generated import Generation, Recipe
from kpl_codec.captures.location import Location
from kpl_codec.cli.main import main
from kpl_codec.validation import LocalEngine
from tests.benchmarks.spark_generate import generated

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def digest(df: Any) -> str:
    rows = sorted((row.shardId, row.sequenceNumber, bytes(row.data)) for row in df.collect())
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def test_the_same_however_many_tasks_make_it(spark: Any) -> None:
    recipe = Recipe(5_001, shards=3, per_aggregate=50, seed=7)
    assert digest(generated(spark, recipe, tasks=1)) == digest(generated(spark, recipe, tasks=5))
    assert digest(generated(spark, Recipe(5_001, shards=3, per_aggregate=50, seed=8))) != digest(
        generated(spark, recipe)
    )


def test_the_local_engine_makes_the_same(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FILE_BYTES", 50_000)
    generation = Generation(Recipe(5_001, shards=3, per_aggregate=50, seed=7), Location(str(tmp_path)))
    assert generation.tasks > 5
    LocalEngine(cores=1).run_all(generation, generation.tasks)
    assert digest(spark.read.parquet(str(tmp_path))) == digest(generated(spark, generation.recipe))


def test_generated_and_validated(tmp_path: Path, capsys: Any) -> None:
    made = tmp_path / "made"
    given = ["--user-records", "20000", "--per-aggregate", "100", "--shard-count", "3", "--output", str(made)]
    assert main(["generate", *given, "--mixed-every", "40", "--broken-every", "50"]) == 0
    out = tmp_path / "out"
    given = ["--input", str(made / "capture"), "--shards", str(made / "shards.json"), "--output", str(out)]
    assert main(["validate", "--quiet", *given]) == 1
    found = pq.read_table(out / "findings")["kind"].to_pylist()
    assert found.count("checksum-mismatch") == 4  # of 200 Kinesis records
    assert found.count("mixed-aggregate") == 4  # one of five is broken as well
    assert pq.read_table(out / "user-records").num_rows == 196 * 100 + 4
    assert main(["generate", "--user-records", "0", "--output", str(tmp_path / "none")]) == 2
