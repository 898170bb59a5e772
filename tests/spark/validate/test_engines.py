"""Spark and the local engine run the same tasks: the same user records, findings, counts and report. The
command runs under spark-submit, too."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

import kpl_codec as kpl
from kpl_codec.errors import CaptureError
from kpl_codec.spark.session import ensure_java
from kpl_codec.validate import LocalEngine, validate
from kpl_codec.validate.task import Job
from kpl_codec.validate.validate_command import SparkFailed, spark_errors
from tests.captures.test_captures import WHEN, answer, lambda_event
from tests.every import every
from tests.validate.test_job import LOWER, MAP, UPPER, sorted_by_shard

pytestmark = pytest.mark.spark


def every_form(folder: Path) -> None:
    """A capture in every form that is read, with every kind of fault."""
    folder.mkdir()
    users = sorted_by_shard(200)
    sound = [answer(kpl.encode(users[name]), shard=name, first=10 + n) for n, name in enumerate(users)]
    mixed = answer(kpl.encode(users[LOWER][:9] + users[UPPER][:9]), shard=LOWER, first=30)
    broken = answer(kpl.encode(users[LOWER])[:-1], b"plain", shard=LOWER, first=40)
    values = [*sound, mixed, broken, lambda_event(b"event", kpl.encode(users[UPPER][:5]))]
    lines = "\n".join(map(json.dumps, values)).replace("stream/payments", "stream/orders")
    (folder / "lines.jsonl").write_text(lines)
    (folder / "again.jsonl").write_text(json.dumps(mixed))
    damaged = ['{"Records": [{"Sequ', json.dumps(answer(b"x", first=90)), "17"]
    (folder / "damaged.jsonl").write_text("\n".join(damaged))
    (folder / "spread.json").write_text("\n".join(json.dumps(value, indent=4) for value in sound))
    (folder / "array.json").write_text(json.dumps([answer(b"in", b"array", shard=UPPER, first=200)]))
    for number, packed in enumerate((gzip.compress, bz2.compress)):
        text = json.dumps(answer(b"packed", shard=LOWER, first=300 + number))
        (folder / f"packed-{number}").write_bytes(packed(text.encode()))
    (folder / "frame.bin").write_bytes(kpl.encode(users[LOWER][:3]))
    (folder / "empty.jsonl").write_text("")
    (folder / "noise").write_bytes(random.Random(3).randbytes(3000))
    columns = {
        "data": [kpl.encode(users[UPPER][:7]), b"row"],
        "stream": ["orders", "orders"],
        "sequenceNumber": ["400", "401"],
        "shardId": [UPPER, "shardId-000000000009"],
        "approximateArrivalTimestamp": pa.array([WHEN, WHEN], pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), folder / "rows.parquet")


def results(output: Path) -> dict[str, Any]:
    """Everything that a run left, without its folder, its time and its id."""

    def rows(name: str) -> list[str]:
        return sorted(map(repr, pq.read_table(output / name).to_pylist()))

    def without_time_and_id(name: str) -> str:
        text = re.sub(r'"run": "[0-9a-f]{32}"', "RUN", (output / name).read_text())
        return re.sub(r"20\d\d-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?", "TIME", text)

    return {
        "files": sorted(path.name for path in output.iterdir()),
        "user records": rows("user-records"),
        "findings": rows("findings"),
        "summary": (output / "summary.txt").read_bytes(),
        "report": without_time_and_id("report.html"),
        "summary as JSON": without_time_and_id("summary.json"),
        "shards": (output / "shards.json").read_bytes(),
    }


class TaskKilled(Job):
    """The worker of each fourth task is killed when its work is done: Spark tries it again."""

    def run(self, number: int) -> int:
        rows, mark = super().run(number), Path(self.output.path, f"killed-{number}")
        if number % 4 == 0 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return rows


@pytest.mark.slow
@pytest.mark.requirement("SPK-43", "SPK-17", "SPK-18", "SPK-22")
def test_both_engines_give_the_same(spark: Any, tmp_path: Path) -> None:
    """In many tasks, and where workers die."""
    from kpl_codec.spark.validate_engine import SparkEngine

    class Engine(SparkEngine):
        def run(self, job: Job) -> None:
            super().run(TaskKilled(**vars(job)))
            assert [file.unlink() for file in Path(job.output.path).glob("killed-*")]

    every_form(tmp_path / "in")
    for name, engine in (("local", LocalEngine(cores=2)), ("spark", Engine(spark))):
        validate([str(tmp_path / "in")], MAP, output=str(tmp_path / name), engine=engine, task_bytes=2000)
    local, on_spark = results(tmp_path / "local"), results(tmp_path / "spark")
    for name, value in local.items():
        assert value == on_spark[name], name
    kinds = {row["kind"] for row in pq.read_table(tmp_path / "local" / "findings").to_pylist()}
    assert {"duplicate", "mixed-aggregate", "checksum-mismatch", "capture-json", "capture-empty"} <= kinds


@pytest.mark.slow
@pytest.mark.requirement("SPK-19")
@every(
    "error, expected",
    [
        (OSError(28, "No space left on device"), "OSError: [Errno 28] No space left on device"),
        (MemoryError(), "MemoryError"),
        (CaptureError(code="json", field="line"), "line is not JSON [CAP-1]"),
    ],
)
def test_the_cause_in_a_worker_is_told(spark: Any, tmp_path: Path, error: Exception, expected: str) -> None:
    def fails(batches: Any) -> Any:
        raise error

    log = tmp_path / "log"
    with pytest.raises(SparkFailed) as caught, spark_errors(str(log)):
        spark.range(1).mapInArrow(fails, "id long").collect()
    assert caught.value.reason == expected
    assert "Traceback" in log.read_text()


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
