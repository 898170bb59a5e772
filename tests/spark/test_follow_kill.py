"""kill -9 of a following validate, in the middle of a batch: nothing is missing, nothing is there twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from .test_live import Stream, read, stream

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(400)]
__all__ = ["stream"]


@pytest.mark.requirement("SPK-23", "SPK-17")
def test_kill_9_of_driver_jvm_and_workers(spark: Any, stream: Stream, tmp_path: Path) -> None:
    out = tmp_path / "followed"
    stream.put(60)
    command = [sys.executable, "-m", "kpl_codec.cli.main", "validate", "--follow", "--once", "--quiet"]
    given = ["--stream", stream.name, "--endpoint-url", stream.server.endpoint_url, "--region", "us-east-1"]
    process = subprocess.Popen(
        [*command, *given, "--output", str(out)],
        start_new_session=True,  # driver, JVM and workers die together
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 180
        while not any(out.glob("_work/*/tally")):  # the batch has begun, its job starts now
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.005)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (out / "totals" / "0.json").exists()  # the batch was not finished
    stream.put(10)
    assert stream.validate(out, "--follow", "--once") == 0
    stream.put(10)
    assert stream.validate(out, "--follow", "--once") == 0
    assert read(out) == stream.sent
    assert f" {sum(stream.sent.values())} " in (out / "summary.txt").read_text().replace(",", "")
