"""A real Spark cluster of processes: a master and workers, each with a host name of its own.

Local sessions never speculate, and a second attempt is only started on another host: so the workers
listen on 127.0.0.1, 127.0.0.2 and so on.
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
from urllib.request import urlopen

from .killable import Killable


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """The cluster's URL. One core and 600 MiB a worker; ended with all below it."""
    import pyspark

    from kpl_codec.spark.session import ensure_java

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
        with contextlib.suppress(OSError, ValueError), urlopen(page, timeout=5) as answer:
            if json.load(answer)["aliveworkers"] == workers:
                return
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-4000:])
