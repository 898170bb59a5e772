"""Two attempts at one partition at the same time, on a real cluster: both read the same, one counts.

The cluster is a master and workers, each a process with a host name of its own: local sessions never
speculate, and a second attempt is only started on another host. So the workers listen on 127.0.0.1,
127.0.0.2 and so on.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyspark
import pytest

from kpl_codec.spark.session import ensure_java

from .killable import Killable
from .test_kills import Driver, sink_rows

pytestmark = [pytest.mark.spark, pytest.mark.server]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """The cluster's URL. One core and 600 MiB a worker; ended with all below it."""
    ensure_java()
    home = Path(pyspark.__file__).parent
    port, pages = _free_port(), _free_port()
    url = f"spark://127.0.0.1:{port}"
    settings = {"SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "192m", "SPARK_LOCAL_IP": "127.0.0.1"}
    environment = {**os.environ, **settings, "PYSPARK_PYTHON": sys.executable}
    run, deploy = str(home / "bin" / "spark-class"), "org.apache.spark.deploy"
    master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(pages)]
    commands = [[run, f"{deploy}.master.Master", *master]]
    for number in range(workers):
        worker = ["--host", f"127.0.0.{number + 1}", "--cores", "1", "--memory", "600m"]
        worker += ["--work-dir", str(folder / f"worker-{number}"), url]
        commands.append([run, f"{deploy}.worker.Worker", *worker])
    with contextlib.ExitStack() as running:
        for command in commands:
            running.enter_context(Killable(command, folder / "cluster.log", environment))
        _wait_for(f"http://127.0.0.1:{pages}/json/", workers, folder / "cluster.log")
        yield url


def _wait_for(page: str, workers: int, log: Path) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        # Before it has this page, the master answers with another one, which is no JSON.
        with contextlib.suppress(OSError, ValueError), urlopen(page, timeout=60) as answer:
            if json.load(answer)["aliveworkers"] == workers:
                return
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-4000:])


@pytest.mark.slow
@pytest.mark.requirement("SPK-50")
def test_a_speculative_attempt_reads_the_same_and_nothing_is_missing_or_twice(
    make_stream: Any, tmp_path: Path
) -> None:
    stream = make_stream(4)
    stream.put(40, width=20_000)  # too much to be carried: each shard has a task
    notes = tmp_path / "notes"
    notes.mkdir()
    with spark_cluster(tmp_path) as master:
        settings = {
            "spark.master": master,
            "spark.executor.memory": "512m",
            "spark.speculation": "true",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.interval": "100ms",
        }
        with Driver(
            tmp_path, stream.options(), available_now=True, slow=str(notes), spark=settings
        ) as driver:
            assert driver.wait_death(240) == 0, driver.log.read_text()[-4000:]
    stream.check(sink_rows(tmp_path))
    assert int((tmp_path / "sink" / "speculative").read_text()) >= 1
    # The first attempt had read all of its rows when the second read them again.
    attempts = {tuple(note.name.split("-")[:2]): json.loads(note.read_text()) for note in notes.iterdir()}
    batch = min(batch for batch, _ in attempts)
    assert len(attempts[batch, "0"]) > 10
    assert attempts[batch, "1"] == attempts[batch, "0"]
