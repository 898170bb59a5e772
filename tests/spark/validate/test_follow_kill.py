"""kill -9 of a following validate, and of its workers: nothing is missing, nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.spark.source.killable import Killable

from .test_stream import Stream, read, stream

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(400)]
__all__ = ["stream"]


def following(stream: Stream, out: Path, *more: str) -> Killable:
    command = [sys.executable, "-m", "kpl_codec.cli.main", "validate", "--follow", "--quiet", *more]
    given = ["--stream", stream.name, "--endpoint-url", stream.server.endpoint_url, "--region", "us-east-1"]
    return Killable([*command, *given, "--output", str(out)], out.parent / "log")


def once_each(out: Path, stream: Stream) -> None:
    """Every user record that was sent is there, and no place in the stream twice."""
    names = pq.read_table(
        out / "user-records", columns=["shardId", "sequenceNumber", "subSequenceNumber"]
    ).to_pylist()
    twice = [name for name, times in Counter(tuple(row.values()) for row in names).items() if times > 1]
    assert not twice
    assert read(out) == stream.sent
    summary = (out / "summary.txt").read_text().replace(",", "")
    assert f" {sum(stream.sent.values())} " in summary


def batches(out: Path) -> int:
    """How many batches have been finished."""
    return max((int(path.stem) + 1 for path in out.glob("totals/*.json")), default=0)


@pytest.mark.slow
@pytest.mark.requirement("SPK-23", "SPK-17")
def test_kill_9_of_driver_jvm_and_workers(spark: Any, stream: Stream, tmp_path: Path) -> None:
    out = tmp_path / "followed"
    stream.put(60)
    with following(stream, out, "--once") as process:
        # The batch has begun, its job starts now.
        process.wait(lambda: any(out.glob("_work/*/tally")), 180)
    assert not (out / "totals" / "0.json").exists()  # the batch was not finished
    stream.put(10)
    assert stream.validate(out, "--follow", "--once") == 0
    stream.put(10)
    assert stream.validate(out, "--follow", "--once") == 0
    once_each(out, stream)


@pytest.mark.soak
@pytest.mark.requirement("SPK-23", "SPK-17")
def test_three_lives_of_following(spark: Any, stream: Stream, tmp_path: Path) -> None:
    chance = random.Random(7)
    out = tmp_path / "followed"
    workers = 0
    for life in range(3):
        stream.put(30)
        if life == 1:
            stream.split()
        with following(stream, out, "--interval", "0.2") as process:
            done = batches(out)
            process.wait(lambda: any(out.glob("_work/*/tally")), 180)
            for worker in process.workers()[-1:]:
                os.kill(worker, signal.SIGKILL)
                workers += 1
            process.wait(lambda done=done: batches(out) > done, 180)
            stream.put(30)
            # While the next batch is worked on, or its results are moved.
            process.wait(lambda: any(out.glob("_work/*")), 180)
            time.sleep(chance.random() * 0.5)
    stream.put(10)
    assert stream.validate(out, "--follow", "--once") == 0
    once_each(out, stream)
    print(
        f"killed: 3 drivers, {workers} workers; {sum(stream.sent.values())} user records in {batches(out)} "
        "batches: 0 missing, 0 twice"
    )
    assert workers >= 1
