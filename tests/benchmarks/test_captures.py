"""Generated captures: exact in number, the same however they are made, with the faults asked for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpl_codec.captures import Location
from kpl_codec.cli.main import main

from . import captures
from .captures import Recipe, write_capture, write_generated


def test_the_same_in_however_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(seed: int, file_bytes: int) -> pa.Table:
        monkeypatch.setattr(captures, "_FILE_BYTES", file_bytes)
        folder = Location(tmp_path / f"{seed}-{file_bytes}").make_folder()
        write_capture(Recipe(5_001, shard_count=3, per_aggregate=50, seed=seed), folder)
        assert (len(folder.files()) > 5) == (file_bytes == 50_000)
        return pq.read_table(folder.path)

    assert made(7, 50_000) == made(7, 10**9) != made(8, 10**9)


def test_generated_and_validated(tmp_path: Path) -> None:
    made = tmp_path / "made"
    recipe = Recipe(20_000, per_aggregate=100, shard_count=3, mixed_every=40, broken_every=50)
    write_generated(recipe, Location(made).make_folder())
    out = tmp_path / "out"
    given = [str(made / "capture"), "--shards", str(made / "shards.json"), "--output", str(out)]
    assert main(["validate", "--quiet", *given]) == 1
    found = pq.read_table(out / "findings")["kind"].to_pylist()
    assert found.count("checksum-mismatch") == 4  # of 200 Kinesis records
    assert found.count("mixed-aggregate") == 4  # one of five is broken as well
    assert pq.read_table(out / "user-records").num_rows == 196 * 100 + 4
