"""The DataFrame functions in a real Spark session."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyspark
import pytest
from pyspark.errors import AnalysisException

import kpl_codec as kpl
from kpl_codec.arrow import deaggregate_batches
from kpl_codec.errors import CaptureError
from kpl_codec.format.compression import compress
from kpl_codec.spark import deaggregate, is_aggregated, verify
from tests.every import every

from ..arrow.test_arrow import OBSERVED, SPLIT, WHEN, batch_of
from ..validate.test_streams import KEYS, LOST, map_of, rows_of

pytestmark = pytest.mark.spark
MAP = kpl.ShardMap(SPLIT)


def some_records(number: int) -> list[kpl.KinesisRecord]:
    chance = random.Random(number)
    records = []
    for i in range(number):
        data = chance.choice([*OBSERVED, compress(bytes(900), "gzip")])
        if chance.random() < 0.5:
            keys = [f"key-{chance.randrange(9)}" for _ in range(20)]
            data = kpl.encode([kpl.UserRecord(key, b"x" * chance.randrange(50)) for key in keys])
        records.append(kpl.KinesisRecord(f"k{i}", data, str(i), f"shardId-{chance.randrange(3):012d}", WHEN))
    return records


def frame_of(spark: Any, records: list[kpl.KinesisRecord]) -> Any:
    rows = batch_of(records).to_pylist()
    schema = (
        "partitionKey string, data binary, sequenceNumber string, shardId string, "
        "approximateArrivalTimestamp timestamp, explicitHashKey string, subSequenceNumber long, file string"
    )
    # One task: to begin a Python worker takes longer than its work.
    return spark.createDataFrame([tuple(row.values()) for row in rows], schema).coalesce(1)


@contextmanager
def configured(spark: Any, **settings: str) -> Iterator[None]:
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


def rows_in(df: Any) -> list[dict[str, Any]]:
    """Without the time, which collect() gives without a time zone."""
    rows = [row.asDict(recursive=True) for row in df.drop("approximateArrivalTimestamp").collect()]
    return [
        {name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.items()}
        for row in rows
    ]


@pytest.mark.requirement("SPK-2", "SPK-3", "SPK-5", "ZIP-3", "ZIP-4", "ZIP-5")
@pytest.mark.parametrize("policy", [pytest.param("kcl", marks=pytest.mark.slow), "verify"])
def test_spark_equals_arrow(spark: Any, policy: Any) -> None:
    """Given its own output, a function changes nothing."""
    records, options = some_records(120), {"tags": True, "max_decompressed_size": 10**6}

    def function(df: Any) -> Any:
        if policy == "verify":
            return verify(df, MAP, **options)
        return deaggregate(df, policy, shard_map=MAP, **options)

    users = function(frame_of(spark, records))
    batches = deaggregate_batches(
        [batch_of(records)], "report" if policy == "verify" else policy, shard_map=MAP, **options
    )
    expected = [row for batch in batches for row in batch.to_pylist()]
    for row in expected:
        row.pop("approximateArrivalTimestamp")
    got = rows_in(users)
    assert got == expected
    assert rows_in(function(users)) == got


@pytest.mark.requirement("SPK-3", "SPK-5")
def test_small_batches_are_opened_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows, and the error of the strict policy, are those of one batch."""
    from kpl_codec.arrow import Deaggregator
    from kpl_codec.spark.functions import _task

    begun: list[int] = []
    process = Deaggregator.process
    monkeypatch.setattr(Deaggregator, "process", lambda self, batch: begun.append(1) or process(self, batch))
    whole = batch_of(some_records(200))
    task = _task("report", find_map=lambda: MAP, tags=True)
    rows = [row for batch in task(whole.slice(at, 5) for at in range(0, 200, 5)) for row in batch.to_pylist()]
    assert len(begun) == 1
    assert rows == [row for batch in task(iter([whole])) for row in batch.to_pylist()]
    task, errors = _task("strict"), []
    for size in (5, 200):
        with pytest.raises(kpl.DecodeError) as caught:
            list(task(whole.slice(at, size) for at in range(0, 200, size)))
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


@pytest.mark.requirement("SPK-5", "SPK-9", "ZIP-3")
@every(
    "error, match, call",
    [
        (CaptureError, "the column data is missing", lambda df: deaggregate(df.drop("data"))),
        (TypeError, "column data", lambda df: deaggregate(df.selectExpr("'x' as data"))),
        (ValueError, "policy", lambda df: deaggregate(df, "lenient")),
        (ValueError, "no column 'colour'", lambda df: deaggregate(df, columns=["colour"])),
        (ValueError, "at least 1 byte", lambda df: deaggregate(df, max_decompressed_size=0)),
        (ValueError, "at least 1 byte", lambda df: verify(df, MAP, max_decompressed_size=0)),
        (ValueError, "shardId", lambda df: verify(df.drop("shardId", "sequenceNumber"), MAP)),
        (ValueError, "hashKey", lambda df: verify(df.selectExpr("*", "7L as hashKey"), MAP)),
        (ValueError, "tags", lambda df: verify(df.selectExpr("*", "'a' as tags"), MAP, tags=True)),
        (ValueError, "Error", lambda df: verify(df.selectExpr("*", "'a' as Error"), MAP)),
        (ValueError, "2 times", lambda df: deaggregate(df.selectExpr("*", "'a' as SHARDID"))),
    ],
)
def test_mistakes_are_told_before_a_job_starts(spark: Any, error: Any, match: str, call: Any) -> None:
    df = frame_of(spark, some_records(1))
    with pytest.raises(error, match=match):
        call(df)


@pytest.mark.requirement("SPK-5")
def test_text_is_refused_with_what_to_do(spark: Any) -> None:
    for name in ("data", "Data", "$json$data_infer_schema$_temporary$"):
        df = spark.createDataFrame([("x", "k")], [name, "partitionKey"])
        with pytest.raises(TypeError) as caught:
            deaggregate(df)
        done = df.selectExpr(re.search(r"select (.*?), or", str(caught.value))[1])  # type: ignore[index]
        assert done.dtypes == [("data", "binary")]


@pytest.mark.slow
@pytest.mark.requirement("SPK-9")
def test_columns_of_a_catalog_table_are_lower_case(spark: Any) -> None:
    df = frame_of(spark, some_records(30))
    lower = df.toDF(*[name.lower() for name in df.columns])
    assert verify(lower, MAP).collect() == verify(df, MAP).collect()
    assert verify(lower, MAP).columns == verify(df, MAP).columns
    with configured(spark, **{"spark.sql.caseSensitive": "TRUE"}):  # Spark takes it in any case
        assert "shardid" in deaggregate(lower).columns  # another column than shardId
        with pytest.raises(ValueError, match="needs a column shardId"):
            verify(lower, MAP)


@pytest.mark.slow
@pytest.mark.requirement("SPK-2", "SPK-5", "SPK-9", "SPK-76")
def test_a_copied_column_may_have_any_name_and_type(spark: Any) -> None:
    """Spark takes the dot that Glue's relationalize makes, and a backtick, for syntax."""
    data = bytearray(kpl.encode([kpl.UserRecord("k", b"1"), kpl.UserRecord("k", b"2")]))
    df = spark.createDataFrame([(data, "x", "y", "z")], ["data", "detail.type", "a`b", "column 1"])
    df = df.selectExpr(
        "*", "cast(1.5 as decimal(10,2)) as price", "map('a', 1) as m", "localtimestamp() as t"
    )
    out = deaggregate(deaggregate(df))
    rows = [
        (bytes(row.data), row["detail.type"], row["a`b"], row["column 1"], row.m) for row in out.collect()
    ]
    assert rows == [(data, "x", "y", "z", {"a": 1}) for data in (b"1", b"2")]
    assert [kind for kind in df.dtypes if kind not in out.dtypes] == []
    some = deaggregate(df, columns=["detail.type", "partitionKey"])
    assert some.columns == ["detail.type", "partitionKey"]
    assert [tuple(row) for row in some.collect()] == [("x", "k")] * 2
    wanted = ["data", "detail.type", "placement", "shardIdFrom"]
    df = df.withColumnRenamed("column 1", "sequenceNumber")
    assert verify(df, MAP, columns=wanted).collect() == [
        tuple(row[name] for name in wanted) for row in verify(df, MAP).collect()
    ]


@pytest.mark.slow
@pytest.mark.requirement("SPK-16", "SPK-5")
def test_verify_takes_rows_of_the_connectors(spark: Any) -> None:
    """awslabs gives no shard id; Databricks says stream."""
    hinted = "49587497311274533994574834252742144236107130636007899138"
    data = kpl.encode([kpl.UserRecord("a", b"in"), kpl.UserRecord("a", b"out", str(2**127))])
    awslabs = spark.createDataFrame(
        [(data, "orders", "k", hinted), (data, "orders", "k", "1")],
        "data binary, streamName string, partitionKey string, sequenceNumber string",
    )
    rows = verify(awslabs, MAP).collect()
    shards = [("shardId-000000000000", "sequence-number")] * 2 + [(None, None)] * 2
    assert [(r.shardId, r.shardIdFrom) for r in rows] == shards
    assert [r.placement for r in rows][2:] == ["unknown-shard"] * 2
    databricks = awslabs.selectExpr(
        "partitionKey", "data", "streamName as stream", "'shardId-000000000001' as shardId", "sequenceNumber"
    )
    rows = verify(databricks, MAP).collect()
    assert {(r.streamName, r.shardId) for r in rows} == {("orders", "shardId-000000000001")}
    assert "shardIdFrom" not in rows[0]


@pytest.mark.slow
@pytest.mark.requirement("SPK-8")
def test_the_shard_map_goes_to_a_worker_once(spark: Any) -> None:
    from pyspark.serializers import CloudPickleSerializer

    shards = [kpl.Shard(f"shardId-{n:012d}", held) for n, held in enumerate(kpl.ALL_HASH_KEYS.split(3000))]
    large = kpl.ShardMap(shards)
    df = frame_of(spark, some_records(40)).repartition(8)
    plan = verify(df, large)._jdf.queryExecution().logical()
    assert plan.functionExpr().func().command().size() < 20_000 < len(CloudPickleSerializer().dumps(large))
    assert len(verify(df, large).collect()) == len(verify(df, MAP).collect())


@pytest.mark.slow
def test_workers_import_the_pyspark_that_is_installed(spark: Any) -> None:
    """The one in Spark's zip, which comes first, each process would compile anew."""
    files = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()
    assert files == [pyspark.__file__]


@pytest.mark.requirement("SPK-7", "FRM-1", "FRM-2", "FRM-3")
def test_is_aggregated_in_sql(spark: Any) -> None:
    """Without constant folding, too: Spark makes Java of `typeof` that does not compile, and then quietly
    runs the query without."""
    values = [*OBSERVED, b"", b"x", None, kpl.encode([kpl.UserRecord("k", b"v")])]
    df = spark.createDataFrame([(value,) for value in values], "data binary").repartition(2)
    folding = "org.apache.spark.sql.catalyst.optimizer.ConstantFolding"
    compiled = {"spark.sql.optimizer.excludedRules": folding, "spark.sql.codegen.fallback": "false"}
    for settings in ({}, compiled):
        with configured(spark, **settings):
            rows = df.select("data", is_aggregated("data")).collect()
        assert len(rows) == len(values)
        for data, answer in rows:
            assert answer == (None if data is None else kpl.is_aggregated(bytes(data)))
    with pytest.raises(AnalysisException, match=r"(?i)binary"):
        spark.sql("select 'text' as data").select(is_aggregated("data"))


@pytest.mark.requirement("SPK-6", "KCL-4")
def test_what_the_kcl_policy_drops_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    from kpl_codec.spark.functions import _task

    mixed = kpl.encode([kpl.UserRecord("a", b"in"), kpl.UserRecord("a", b"out", str(2**127))])
    batch = batch_of([kpl.KinesisRecord("a", mixed, "1", "shardId-000000000001", None, None)])
    assert list(_task("kcl", find_map=lambda: MAP, tags=True)(iter([batch]))) == []
    assert "{'out-of-range': 2}" in caplog.text


def rows_of_stream(spark: Any, name: str) -> Any:
    return spark.createDataFrame(
        [tuple(row.values()) for row in rows_of(name)],
        "streamName string, shardId string, sequenceNumber string, partitionKey string, data binary",
    )


@pytest.mark.slow
@pytest.mark.requirement("SPK-5", "SPK-110", "SPK-111")
def test_a_map_judges_the_rows_of_its_stream(spark: Any) -> None:
    """Of a union, also by columns that do not have the stream. Databricks calls its column stream. A map that
    does not say its stream is refused."""
    both = rows_of_stream(spark, "a").unionByName(rows_of_stream(spark, "b")).coalesce(1)
    of_each = 3 * len(KEYS)
    for own, other, column in (("a", "b", "streamName"), ("b", "a", "stream")):
        rows, named = both.withColumnRenamed("streamName", column), map_of(own, named=True)
        found = verify(rows, named).groupBy("streamName", "placement").count().collect()
        counts = {(row.streamName, row.placement): row["count"] for row in found}
        expected = {(other, None): of_each, (own, "expected"): of_each - LOST[own]}
        assert counts == expected | ({(own, "stray"): LOST[own]} if LOST[own] else {})
        lean = verify(rows, named, columns=["placement"])
        assert lean.where("placement is null").count() == of_each
    nameless = map_of("a", named=False)
    for asked in (verify(both, nameless), deaggregate(both, "kcl", shard_map=nameless)):
        with pytest.raises(Exception, match="stream=NAME"):
            asked.count()
    assert verify(rows_of_stream(spark, "b"), nameless).count() == of_each
