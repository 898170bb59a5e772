"""The data source in a real Spark session on a real server."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import NoRegionError
from pyspark.errors import PySparkException

import kpl_codec as kpl
from kpl_codec.aws import StreamUnavailable, read_stream
from kpl_codec.format.compression import compress
from kpl_codec.spark import KinesisDataSource, deaggregate
from kpl_codec.spark.source.offsets import OffsetError

from .support import Stream, rows_in

#: Whether a run of Trigger.AvailableNow reads everything (PySpark 4.2 and newer). Before, it is one batch,
#: and a shard is read only in a batch after its parents.
AVAILABLE_NOW = find_spec("pyspark.sql.streaming.datasource") is not None

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(200)]


def read(spark: Any, stream: Stream, **options: Any) -> Any:
    return spark.read.format("kpl-kinesis").options(**stream.options(**options)).load()


def run_available_now(frame: Any, target: str, folder: Path, **options: Any) -> Any:
    """The query of one run, which has ended."""
    writer = frame.writeStream.format(target).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_what_can_be_refused_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, make_stream: Any
) -> None:
    options = make_stream().options()
    KinesisDataSource.check(options)
    with pytest.raises(StreamUnavailable, match=r"failed for stream nosuch: ResourceNotFoundException"):
        KinesisDataSource.check({**options, "stream": "nosuch"})
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "nosuch")
    with pytest.raises(NoRegionError, match=r"^no region: give region, or set AWS_DEFAULT_REGION$"):
        KinesisDataSource.check({"stream": "orders"})
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


@pytest.mark.slow
def test_what_spark_wraps_begins_with_our_sentence(spark: Any, make_stream: Any) -> None:
    stream = make_stream()
    data = bytearray(kpl.encode([kpl.UserRecord("a", b"1234")]))
    data[-1] ^= 1
    records = spark.createDataFrame([("a", data)], "partitionKey string, data binary")
    stream.client.put_record(StreamName=stream.name, PartitionKey="a", Data=bytes(data))
    numbers = spark.range(1).write.format("kpl-kinesis")
    query = spark.readStream.format("kpl-kinesis").options(**stream.options(stream="nosuch")).load()
    batch = spark.read.format("kpl-kinesis").options(**stream.options(stream="nosuch"))
    for action, sentence in (
        (lambda: read(spark, stream, regoin="x"), "kpl-kinesis has no option regoin"),
        (lambda: batch.load().count(), "DescribeStreamSummary failed for stream"),
        (lambda: read(spark, stream).collect(), "the digest is"),
        (lambda: deaggregate(records).collect(), "the digest is"),
        (lambda: query.writeStream.format("noop").start().awaitTermination(60), "DescribeStreamSummary"),
        (lambda: numbers.options(**stream.options()).mode("append").save(), "option schema = 'id'"),
    ):
        with pytest.raises(PySparkException) as caught:
            action()
        first = str(caught.value).partition(sentence)[0]
        assert re.search(r"(: |\n)kpl_codec[.\w]+: $", first), str(caught.value)
        assert "Traceback" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.requirement("SPK-62")
def test_a_batch_read_between_two_positions(spark: Any, make_stream: Any) -> None:
    stream = make_stream(2)
    stream.put(5)
    stream.split("shardId-000000000000")
    early = set(stream.sent)
    time.sleep(0.3)
    between = int(time.time() * 1000)
    time.sleep(0.3)
    stream.put(5)
    late = set(stream.sent) - early
    stream.check(rows_in(read(spark, stream)))
    assert {name for name, _, _ in rows_in(read(spark, stream, endingPosition=between))} == early
    found = rows_in(read(spark, stream, startingPosition=between))
    assert {name for name, _, _ in found} == late
    assert len(found) == len(late)
    if AVAILABLE_NOW:  # a frame and its views keep what their first query planned; before 4.1 each is planned
        frame = read(spark, stream)
        frame.createOrReplaceTempView("planned_once")
        first_count = spark.sql("SELECT count(*) AS n FROM planned_once").first().n
        stream.put(2)
        assert spark.sql("SELECT count(*) AS n FROM planned_once").first().n == frame.count() == first_count
        assert read(spark, stream).count() == len(stream.sent) > first_count


@pytest.mark.slow
@pytest.mark.requirement("SPK-64", "ZIP-3")
def test_columns_by_option_and_by_schema(spark: Any, make_stream: Any) -> None:
    stream = make_stream(2)
    stream.put(2)
    frame = bytearray(kpl.encode([kpl.UserRecord("key", b"data")]))
    frame[-1] ^= 1
    stream.client.put_record(StreamName=stream.name, PartitionKey="broken", Data=bytes(frame))
    checked = read(spark, stream, policy="report", placement=True, tags=True)
    rows = checked.where("error is not null").collect()
    assert [(row.partitionKey, row.error) for row in rows] == [("broken", "checksum-mismatch")]
    verdicts = {row.placement for row in checked.where("aggregated").select("placement").collect()}
    assert verdicts == {"expected"}
    stream.client.put_record(StreamName=stream.name, PartitionKey="k", Data=compress(b"packed", "gzip"))
    (row,) = (
        read(spark, stream, policy="report", maxDecompressedSize=10**6).where("partitionKey = 'k'").collect()
    )
    assert bytes(row.data) == b"packed"
    raw = read(spark, stream, policy="none")
    assert "subSequenceNumber" not in raw.columns
    assert raw.count() == len({name[:2] for name in stream.sent}) + 2
    some = spark.read.format("kpl-kinesis").schema("DATA binary, shardId string")
    some = some.options(**stream.options(policy="kcl")).load()
    assert some.columns == ["DATA", "shardId"]
    assert some.count() == len(stream.sent) + 2  # the KCL hands out the broken frame as it is
    wrong = spark.read.format("kpl-kinesis").schema("data string").options(**stream.options())
    with pytest.raises(Exception, match="columns of"):
        wrong.load().collect()


@pytest.mark.slow
@pytest.mark.requirement("SPK-55", "SPK-57", "SPK-58", "LIN-2")
def test_available_now_into_parquet(spark: Any, make_stream: Any, tmp_path: Path) -> None:
    stream = make_stream(2)
    stream.put(8)

    def run(**options: Any) -> Any:
        options = stream.options(policy="report", placement=True, **options)
        frame = spark.readStream.format("kpl-kinesis").options(**options).load()
        return run_available_now(frame, "parquet", tmp_path, path=str(tmp_path / "table"))

    query = run(maxFetchRecordsPerShard=3)
    # Before 4.2 Spark hands on no limits, and makes one batch of a run.
    assert len([p for p in query.recentProgress if p["numInputRows"]]) >= (3 if AVAILABLE_NOW else 1)
    stream.check(rows_in(spark.read.parquet(str(tmp_path / "table"))))
    # What Spark shows: where each shard stands, and how far behind the query is.
    end = json.loads(query.recentProgress[0].json)["sources"][0]["endOffset"]
    end = json.loads(end) if isinstance(end, str) else end
    assert end["shards"].keys() >= {"shardId-000000000000"}
    if AVAILABLE_NOW:  # before, Spark does not ask
        latest = json.loads(query.recentProgress[0].json)["sources"][0]["latestOffset"]
        latest = json.loads(latest) if isinstance(latest, str) else latest
        assert latest["millisBehindLatest"] >= 0
    # The next run finds reshards and new records; a start given later does not matter any more.
    stream.split("shardId-000000000001")
    stream.put(8)
    stream.merge("shardId-000000000000", "shardId-000000000002")
    stream.put(8)
    for _ in range(1 if AVAILABLE_NOW else 3):  # parents, then children
        run(startingPosition="LATEST")
    stream.check(rows_in(spark.read.parquet(str(tmp_path / "table"))))


@pytest.mark.slow
@pytest.mark.requirement("SPK-50", "SPK-85")
def test_a_task_dies_and_nothing_is_missing_or_twice(spark: Any, make_stream: Any, tmp_path: Path) -> None:
    """Spark tries the task again. `model_query` has this, and deaths of drivers, in every order; programs of
    the guide are killed in `tests/guides/test_guides.py`."""
    stream, died = make_stream(2), tmp_path / "died"
    stream.put(60, width=20_000)  # more than a partition may carry: tasks read

    def die_once(batches: Any) -> Any:
        for number, batch in enumerate(batches):
            yield batch
            if number and not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    frame = spark.readStream.format("kpl-kinesis").options(**stream.options(maxBatchBytes=100_000)).load()
    frame = frame.mapInArrow(die_once, frame.schema)
    run_available_now(frame, "parquet", tmp_path, path=str(tmp_path / "table"))
    assert died.exists()
    stream.check(rows_in(spark.read.parquet(str(tmp_path / "table"))))


@pytest.mark.slow
@pytest.mark.requirement("SPK-117")
def test_no_row_is_lost_by_doing_what_the_text_says(spark: Any, make_stream: Any, tmp_path: Path) -> None:
    """A stream that was created again: Spark's file sink passes over batch numbers that it has had."""
    stream = make_stream(1)

    def run(folder: str, **options: Any) -> int:
        frame = spark.readStream.format("kpl-kinesis").options(**stream.options(**options)).load()
        run_available_now(frame, "parquet", tmp_path / folder, path=str(tmp_path / folder))
        return int(spark.read.parquet(str(tmp_path / folder)).count())

    stream.put(2)
    before = run("first")
    stream.kinesis.delete_stream(stream.name)
    stream.kinesis.create_stream(stream.name, 1)
    again = len(stream.put(3))
    assert run("second") == again  # with a new checkpoint and folder
    assert run("first", failOnDataLoss="false") == before + again
    for said in (OffsetError.text, OffsetError.todo):
        assert re.search(r"checkpoint of its own, and its sink an output folder", said)
        assert "TRIM_HORIZON" in said
        assert "at LATEST it passes over what was put" in said


@pytest.mark.slow
@pytest.mark.requirement("SPK-67", "SPK-68", "SPK-69")
def test_a_batch_write_is_aggregated_and_arrives(spark: Any, make_stream: Any) -> None:
    stream = make_stream(3)
    frame = spark.range(500).selectExpr("concat('key-', id % 40) partitionKey", "cast(id as string) data")

    def save(rows: Any, mode: str = "append", **options: Any) -> None:
        rows.write.format("kpl-kinesis").options(**stream.options(**options)).mode(mode).save()

    save(frame)
    records = list(read_stream(stream.client, stream.name))
    users = list(kpl.deaggregate(records))
    assert sorted(int(user.data) for user in users) == list(range(500))
    assert {user.partition_key for user in users} == {f"key-{i}" for i in range(40)}
    assert len(records) < 100
    with pytest.raises(Exception, match="append"):
        save(frame, "overwrite")
    with pytest.raises(Exception, match="null"):
        save(spark.sql("select 'k' partitionKey, cast(null as binary) data"))
    assert len(list(read_stream(stream.client, stream.name))) == len(records)


@pytest.mark.slow
@pytest.mark.requirement("SPK-118")
def test_a_table_of_the_catalog_is_refused_before_a_row_is_put(
    spark: Any, make_stream: Any, tmp_path: Path
) -> None:
    stream = make_stream(1)
    settings = stream.options()
    options = ", ".join(f"'{name}' '{value}'" for name, value in settings.items())
    rows = spark.sql("SELECT 'k' AS partitionKey, cast('y' AS binary) AS data")
    followed = spark.readStream.format("kpl-kinesis").options(**settings).load()

    def to_table() -> None:
        writer = followed.select("partitionKey", "data").writeStream.format("kpl-kinesis").options(**settings)
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        writer.toTable("made").awaitTermination()

    ways = {
        "CREATE TABLE": lambda: spark.sql(f"CREATE TABLE made USING `kpl-kinesis` OPTIONS ({options})"),
        "CREATE TABLE AS": lambda: spark.sql(
            f"CREATE TABLE made USING `kpl-kinesis` OPTIONS ({options}) AS SELECT 'k' partitionKey, 'y' data"
        ),
        "saveAsTable": lambda: rows.write.format("kpl-kinesis").options(**settings).saveAsTable("made"),
        "create": lambda: rows.writeTo("made").using("kpl-kinesis").options(**settings).create(),
        "toTable": to_table,
    }
    stream.put(1)  # for toTable
    before = len(list(read_stream(stream.client, stream.name)))
    try:
        for name, way in ways.items():
            with pytest.raises(PySparkException, match=r"(?i)temporary view"):
                way()
            # toTable has made the table before anything is asked.
            assert spark.catalog.tableExists("made") == (name == "toTable"), name
        # Of a table with columns Spark asks nothing; whoever uses it gives the options.
        for use in ("SELECT * FROM made", "INSERT INTO made SELECT 'k', cast('x' AS binary)"):
            with pytest.raises(PySparkException, match=r"WITH \(stream = 'orders'\)"):
                spark.sql(use).count()
        assert len(list(read_stream(stream.client, stream.name))) == before
        spark.sql(f"INSERT INTO made WITH ({options}) SELECT 'k', cast('x' AS binary)")
        found = spark.sql(f"SELECT * FROM made WITH ({options}) WHERE data = cast('x' AS binary)").collect()
        assert [tuple(row) for row in found] == [("k", b"x")]
        rows.writeTo("made").options(**settings).append()
        assert spark.read.options(**settings).table("made").count() == len(stream.sent) + 2
    finally:
        spark.sql("DROP TABLE IF EXISTS made")


@pytest.mark.slow
@pytest.mark.requirement("SPK-67", "SPK-118")
def test_from_stream_to_streams(spark: Any, make_stream: Any, tmp_path: Path) -> None:
    """By the sink, and by a write in foreachBatch, which is no table."""
    source = make_stream(2)
    source.put(10)
    targets = [Stream(source.kinesis, f"{source.name}-{way}", 2) for way in ("sink", "batches")]
    frame = spark.readStream.format("kpl-kinesis").options(**source.options()).load()
    columns = frame.select("partitionKey", "data", "explicitHashKey")
    options = targets[0].options(**{"sink.ordering": "partition-key"})
    run_available_now(columns, "kpl-kinesis", tmp_path / "sink", **options)

    def write(batch: Any, _number: int) -> None:
        batch.write.format("kpl-kinesis").options(**targets[1].options()).mode("append").save()

    writer = columns.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "batches"))
    writer.trigger(availableNow=True).start().awaitTermination()
    for target in targets:
        users = kpl.deaggregate(read_stream(target.client, target.name))
        assert sorted(source.data.values()) == sorted((user.partition_key, user.data) for user in users)
