"""Everything that runs on Spark, on a session of Spark Connect: a process of its own, run by `test_connect`.

    python -m tests.spark.connect.session '{"options": {...}, "folder": ...}'

A process has either a Connect session or a classic one. This one starts a Connect server in another process,
works as its client only, and prints what it got as one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer
from typing import Any

import kpl_codec as kpl

#: Seconds until a server must be up.
_PATIENCE = 120


def serve() -> None:
    """A Connect server on a port that it chooses and prints, until standard input ends."""
    from kpl_codec.spark import local_session

    plugin = "org.apache.spark.sql.connect.SparkConnectPlugin"
    settings = {"spark.plugins": plugin, "spark.connect.grpc.binding.port": 0}
    session: Any = local_session("connect", cores=2, memory="1g", quick_start=True, settings=settings)
    service = getattr(session._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    print("PORT", getattr(service, "MODULE$").localPort(), flush=True)
    sys.stdin.read()


@contextmanager
def connect_session() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    command = [sys.executable, "-m", "tests.spark.connect.session", "serve"]
    with (
        TemporaryFile() as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log) as server,
    ):
        too_late = Timer(_PATIENCE, server.kill)
        too_late.start()
        try:
            assert server.stdout is not None
            word, _, port = server.stdout.readline().decode().strip().partition(" ")
            too_late.cancel()
            if word != "PORT":
                log.seek(0)
                raise RuntimeError(f"the Connect server did not come up: {log.read().decode()[-4000:]}")
            yield SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
        finally:
            too_late.cancel()
            server.kill()


def names(frame: Any) -> list[list[Any]]:
    columns = ("shardId", "sequenceNumber", "subSequenceNumber", "partitionKey", "data")
    rows = frame.select(*columns).collect()
    return sorted([row[0], row[1], row[2], row[3], bytes(row[4]).decode()] for row in rows)


def main(settings: dict[str, Any]) -> dict[str, Any]:
    with connect_session() as spark:
        return work(spark, settings)


def work(spark: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """What each part gives on a session."""
    from kpl_codec.spark import KinesisDataSource, deaggregate, is_aggregated, verify
    from kpl_codec.spark.validate_engine import SparkEngine
    from kpl_codec.validate.validate_job import validate

    folder, options = Path(settings["folder"]), settings["options"]
    found: dict[str, Any] = {"session": type(spark).__module__}

    shard_map = kpl.ShardMap.from_json(settings["shards"])
    data = kpl.encode([kpl.UserRecord("a", b"1"), kpl.UserRecord("b", b"2", str(2**127))])
    given = spark.createDataFrame(
        [(data, "shardId-000000000000", "1"), (b"plain", "shardId-000000000000", "2")],
        "DATA binary, shardId string, sequenceNumber string",
    )
    found["functions"] = [
        deaggregate(given).count(),
        [row[0] for row in verify(given, shard_map).select("placement").collect()],
        given.where(is_aggregated("data")).count(),
    ]

    spark.dataSource.register(KinesisDataSource)
    reader = spark.read.format("kpl-kinesis").options(**options)
    found["batch"] = names(reader.load())

    stream = spark.readStream.format("kpl-kinesis").options(**options).load()
    sink, checkpoint = str(folder / "sink"), str(folder / "checkpoint")
    writer = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start(sink)
    query.awaitTermination()
    found["stream"] = names(spark.read.parquet(sink))

    rows = spark.createDataFrame(
        [(f"k{n}", b"%d" % n) for n in range(20)], "partitionKey string, data binary"
    )
    written = {**options, "streamName": settings["target"]}
    rows.write.format("kpl-kinesis").options(**written).mode("append").save()
    target = spark.read.format("kpl-kinesis").options(**written).load()
    found["write"] = sorted(bytes(row[0]).decode() for row in target.select("data").collect())

    engine = SparkEngine(spark)
    checked = folder / "checked"
    result = validate([settings["capture"]], shard_map, str(checked), engine=engine)
    found["validate"] = [result.clean, spark.read.parquet(str(checked / "user-records")).count()]
    return found


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        print("RESULT " + json.dumps(main(json.loads(sys.argv[1]))), flush=True)
