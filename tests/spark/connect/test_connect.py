"""Functions, batch and streaming reads, writes and validate on Spark Connect, as on a classic session.

A process has either a Connect session or a classic one. So the test starts this file as a program, which is
only a client of a Connect server in the Java of the classic session.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kpl_codec as kpl
from kpl_codec.adapters import to_lambda
from kpl_codec.testing.local_kinesis import LocalKinesis
from tests.spark.source.support import Stream

pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.mark.slow
@pytest.mark.requirement("SPK-5", "SPK-7", "SPK-17", "SPK-58", "SPK-62", "SPK-67")
def test_everything_runs_on_connect(
    spark: Any, kinesis_local: LocalKinesis, stream_name: str, tmp_path: Path
) -> None:
    service = getattr(spark._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    server = getattr(service, "MODULE$")
    spark._jsc.sc().conf().set("spark.connect.grpc.binding.port", "0")
    server.start(spark._jsc.sc())
    stream, target = Stream(kinesis_local, stream_name, 2), f"{stream_name}-target"
    kinesis_local.create_stream(target)
    stream.put(10)
    data = kpl.encode([kpl.UserRecord("a", b"1"), kpl.UserRecord("b", b"2")])
    record = kpl.KinesisRecord("a", data, "1", "shardId-000000000000")
    arn = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
    (tmp_path / "capture.json").write_text(json.dumps(to_lambda([record], stream_arn=arn)))
    settings = {
        "address": f"sc://127.0.0.1:{server.localPort()}",
        "options": stream.options(),
        "target": target,
        "shards": json.dumps({"Shards": stream.client.list_shards(StreamName=stream.name)["Shards"]}),
        "sent": sorted([*name, key, body.decode()] for name, (key, body) in stream.data.items()),
        "folder": str(tmp_path),
    }
    program = [sys.executable, "-m", "tests.spark.connect.test_connect", json.dumps(settings)]
    root = Path(__file__).parents[3]
    process = subprocess.run(program, cwd=root, capture_output=True, text=True, timeout=280, check=False)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-4000:]


def names(frame: Any) -> list[list[Any]]:
    columns = ("shardId", "sequenceNumber", "subSequenceNumber", "partitionKey", "data")
    rows = frame.select(*columns).collect()
    return sorted([*row[:4], bytes(row.data).decode()] for row in rows)


def work(settings: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    from kpl_codec.spark import KinesisDataSource, deaggregate, is_aggregated, verify
    from kpl_codec.spark.validate_engine import SparkEngine
    from kpl_codec.validate.validate_job import validate

    spark: Any = SparkSession.builder.remote(settings["address"]).getOrCreate()
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
    work(json.loads(sys.argv[1]))
