"""validate under the real spark-submit, as a user would call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from kpl_codec.spark.session import ensure_java
from tests.captures.test_captures import answer
from tests.validate.test_job import LOWER, MAP

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.slow
@pytest.mark.requirement("SPK-19", "SPK-17")
def test_spark_submit(tmp_path: Path) -> None:
    ensure_java()
    job = subprocess.run(
        [sys.executable, "-m", "kpl_codec.spark.job"], capture_output=True, text=True, check=True
    ).stdout.strip()
    (tmp_path / "a.jsonl").write_text(json.dumps(answer(b"x", b"y", shard=LOWER)) + "\n{")
    (tmp_path / "shards.json").write_text(MAP.to_json())
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    given = [str(tmp_path / "a.jsonl"), "--shards", str(tmp_path / "shards.json")]
    done = subprocess.run(
        [submit, "--master", "local[1]", job, "validate", *given, "--output", str(tmp_path / "out")],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr[-3000:]  # findings: the line that is no JSON
    assert pq.read_table(tmp_path / "out" / "user-records").num_rows == 2
    assert "report.html" in done.stdout
