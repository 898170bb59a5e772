"""Functions, batch and streaming reads, writes and validate on Spark Connect, as on a classic session.

A process has either a Connect session or a classic one. So the test starts this file as a program, which
starts a Connect server in another process and works as its client only.
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

import pytest

import kpl_codec as kpl
from kpl_codec.adapters import to_lambda
from kpl_codec.testing.local_kinesis import LocalKinesis
from tests.spark.source.support import Stream

pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
pytestmark = [pytest.mark.spark, pytest.mark.server]
PROGRAM = [sys.executable, "-m", "tests.spark.connect.test_connect"]
#: Seconds until a server must be up.
_PATIENCE = 120


@pytest.mark.slow
@pytest.mark.requirement("SPK-5", "SPK-7", "SPK-17", "SPK-58", "SPK-62", "SPK-67")
def test_everything_runs_on_connect(kinesis_local: LocalKinesis, stream_name: str, tmp_path: Path) -> None:
    stream, target = Stream(kinesis_local, stream_name, 2), f"{stream_name}-target"
    kinesis_local.create_stream(target)
    stream.put(10)
    data = kpl.encode([kpl.UserRecord("a", b"1"), kpl.UserRecord("b", b"2")])
    record = kpl.KinesisRecord("a", data, "1", "shardId-000000000000")
    arn = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
    (tmp_path / "capture.json").write_text(json.dumps(to_lambda([record], stream_arn=arn)))
    settings = {
        "options": stream.options(),
        "target": target,
        "shards": json.dumps({"Shards": stream.client.list_shards(StreamName=stream.name)["Shards"]}),
        "sent": sorted([*name, key, body.decode()] for name, (key, body) in stream.data.items()),
        "folder": str(tmp_path),
    }
    root = Path(__file__).parents[3]
    process = subprocess.run(
        [*PROGRAM, json.dumps(settings)], cwd=root, capture_output=True, text=True, timeout=280, check=False
    )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-4000:]


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

    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with TemporaryFile() as log, subprocess.Popen([*PROGRAM, "serve"], stderr=log, **pipes) as server:
        too_late = Timer(_PATIENCE, server.kill)
        too_late.start()
        try:
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
    return sorted([*row[:4], bytes(row.data).decode()] for row in rows)


def work(spark: Any, settings: dict[str, Any]) -> None:
    from kpl_codec.spark import KinesisDataSource, deaggregate, is_aggregated, verify
    from kpl_codec.spark.validate_engine import SparkEngine
    from kpl_codec.validate.validate_job import validate

    assert type(spark).__module__ == "pyspark.sql.connect.session"
    folder, options = Path(settings["folder"]), settings["options"]
    shard_map = kpl.ShardMap.from_json(settings["shards"])
    data = kpl.encode([kpl.UserRecord("a", b"1"), kpl.UserRecord("b", b"2", str(2**127))])
    records = [(data, "shardId-000000000000", "1"), (b"plain", "shardId-000000000000", "2")]
    df = spark.createDataFrame(records, "DATA binary, shardId string, sequenceNumber string")
    assert deaggregate(df).count() == len(verify(df, shard_map).select("placement").collect()) == 3
    assert df.where(is_aggregated("data")).count() == 1

    spark.dataSource.register(KinesisDataSource)
    assert names(spark.read.format("kpl-kinesis").options(**options).load()) == settings["sent"]
    stream = spark.readStream.format("kpl-kinesis").options(**options).load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "sink")).awaitTermination()
    assert names(spark.read.parquet(str(folder / "sink"))) == settings["sent"]

    target = {**options, "stream": settings["target"]}
    rows = [(f"k{n}", b"%d" % n) for n in range(20)]
    frame = spark.createDataFrame(rows, "partitionKey string, data binary")
    frame.write.format("kpl-kinesis").options(**target).mode("append").save()
    written = spark.read.format("kpl-kinesis").options(**target).load().select("data").collect()
    assert sorted(int(bytes(row.data)) for row in written) == list(range(20))

    capture, checked = str(folder / "capture.json"), folder / "checked"
    result = validate([capture], shard_map, output=str(checked), engine=SparkEngine(spark))
    assert not result.clean
    assert spark.read.parquet(str(checked / "user-records")).count() == 2


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        with connect_session() as session:
            work(session, json.loads(sys.argv[1]))
