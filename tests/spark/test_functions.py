"""The DataFrame functions in a real Spark session."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.errors import AnalysisException

import kpl_codec as kpl
from kpl_codec.arrow import deaggregate_batches
from kpl_codec.errors import CaptureError
from kpl_codec.format.compression import compress
from kpl_codec.spark import deaggregate, is_aggregated, verify

from ..arrow.test_arrow import OBSERVED, SPLIT, WHEN, batch_of
from ..deaggregation.test_policies import NOT_RAISING
from ..validate.test_streams import KEYS, LOST, map_of, rows_of

pytestmark = pytest.mark.spark
MAP = kpl.ShardMap(SPLIT)


def some_records(number: int) -> list[kpl.KinesisRecord]:
    chance = random.Random(number)
    records = []
    for i in range(number):
        data = chance.choice(OBSERVED)
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
    return spark.createDataFrame([tuple(row.values()) for row in rows], schema)


@contextmanager
def configured(spark: Any, **settings: str) -> Iterator[None]:
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


def plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.requirement("SPK-3", "SPK-5")
@pytest.mark.parametrize(
    "policy", [*(pytest.param(one, marks=pytest.mark.slow) for one in NOT_RAISING), "verify"]
)
def test_spark_equals_arrow(spark: Any, policy: Any) -> None:
    records = some_records(120)
    df = frame_of(spark, records)
    if policy == "verify":
        policy, users = "report", verify(df, MAP, tags=True)
    else:
        users = deaggregate(df, policy, shard_map=MAP, tags=True)
    got = [
        {name: plain(value) for name, value in row.asDict(recursive=True).items()} for row in users.collect()
    ]
    batches = deaggregate_batches([batch_of(records)], policy, shard_map=MAP, tags=True)
    expected = [row for batch in batches for row in batch.to_pylist()]
    for row in (*got, *expected):
        row.pop("approximateArrivalTimestamp")  # collect() gives it without a time zone
    assert got == expected


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


@pytest.mark.slow
@pytest.mark.requirement("ZIP-3", "ZIP-4", "ZIP-5")
def test_data_is_decompressed(spark: Any) -> None:
    data = [compress(bytes(5000), "gzip"), compress(b"a" * 900, "zlib"), b"bare"]
    frames = [kpl.encode([kpl.UserRecord("k", one) for one in data]), compress(b"b" * 900, "gzip")]
    df = frame_of(
        spark,
        [kpl.KinesisRecord("k", one, str(n), "shardId-000000000001", WHEN) for n, one in enumerate(frames)],
    )

    def values(df: Any) -> list[bytes]:
        return [bytes(row.data) for row in df.collect()]

    decoded = [bytes(5000), b"a" * 900, b"bare", b"b" * 900]
    once = deaggregate(df, max_decompressed_size=10**8)
    assert values(once) == values(verify(df, MAP, max_decompressed_size=10**8)) == decoded
    assert values(deaggregate(once, max_decompressed_size=10**8)) == decoded
    assert values(deaggregate(df)) == [*data, frames[1]]
    assert values(deaggregate(df, columns=["data"], max_decompressed_size=10**8)) == decoded
    checked = verify(df, MAP, max_decompressed_size=1000).select("error").collect()
    assert [row.error for row in checked] == ["decompressed-too-large", None, None, None]
    with pytest.raises(Exception, match=r"gzip data becomes more than 1000 bytes .* sequence number 0"):
        deaggregate(df, max_decompressed_size=1000).collect()  # Spark wraps it


@pytest.mark.slow
@pytest.mark.requirement("SPK-76")
def test_only_the_columns_named_are_made(spark: Any) -> None:
    from pyspark.sql import functions

    df = frame_of(spark, some_records(3)).withColumn("team", functions.lit("red"))
    wanted = ["data", "team", "placement", "shardIdFrom"]
    checked = verify(df.drop("shardId"), MAP, columns=wanted)
    assert checked.columns == wanted
    assert checked.collect() == verify(df.drop("shardId"), MAP).select(*wanted).collect()


@pytest.mark.requirement("SPK-5", "SPK-9", "ZIP-3")
@pytest.mark.parametrize(
    ("error", "match", "call"),
    [
        (CaptureError, "the column data is missing", lambda df: deaggregate(df.drop("data"))),
        (TypeError, "column data", lambda df: deaggregate(df.selectExpr("'x' as data"))),
        (ValueError, "policy", lambda df: deaggregate(df, "lenient")),
        (ValueError, "no column 'colour'", lambda df: deaggregate(df, columns=["colour"])),
        (
            ValueError,
            "size of .* is 0, give a size of at least 1 byte",
            lambda df: deaggregate(df, max_decompressed_size=0),
        ),
        (
            ValueError,
            "size of .* is 0, give a size of at least 1 byte",
            lambda df: verify(df, MAP, max_decompressed_size=0),
        ),
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
@pytest.mark.requirement("SPK-9")
def test_a_copied_column_may_have_any_name(spark: Any) -> None:
    """Spark takes the dot that Glue's relationalize makes, and a backtick, for syntax."""
    data = bytearray(kpl.encode([kpl.UserRecord("k", b"v")] * 2))
    names = ["data", "detail.type", "a`b", "column 1"]
    df = spark.createDataFrame([(data, "x", "y", "z")], names)
    rows = deaggregate(df).collect()
    assert [(row["detail.type"], row["a`b"], row["column 1"]) for row in rows] == [("x", "y", "z")] * 2
    some = deaggregate(df, columns=["detail.type", "partitionKey"])
    assert some.columns == ["detail.type", "partitionKey"]
    assert [tuple(row) for row in some.collect()] == [("x", "k")] * 2


@pytest.mark.requirement("SPK-5")
@pytest.mark.parametrize("name", ["data", "Data", "$json$data_infer_schema$_temporary$"])
def test_text_is_refused_with_what_to_do(spark: Any, name: str) -> None:
    df = spark.createDataFrame([("x", "k")], [name, "partitionKey"])
    with pytest.raises(TypeError) as caught:
        deaggregate(df)
    done = df.selectExpr(re.search(r"select (.*?), or", str(caught.value))[1])  # type: ignore[index]
    assert done.dtypes == [("data", "binary")]


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

    from kpl_codec.shards.shard import Shard

    shards = [Shard(f"shardId-{n:012d}", held) for n, held in enumerate(kpl.ALL_HASH_KEYS.split(3000))]
    large = kpl.ShardMap(shards)
    df = frame_of(spark, some_records(40)).repartition(8)
    plan = verify(df, large)._jdf.queryExecution().logical()
    assert plan.functionExpr().func().command().size() < 20_000 < len(CloudPickleSerializer().dumps(large))
    assert len(verify(df, large).collect()) == len(verify(df, MAP).collect())


@pytest.mark.requirement("SPK-7", "FRM-1", "FRM-2", "FRM-3")
def test_is_aggregated_in_sql(spark: Any) -> None:
    """Without constant folding, too: Spark makes Java of `typeof` that does not compile, and then quietly
    runs the query without."""
    values = [*OBSERVED, b"", b"x", None, kpl.encode([kpl.UserRecord("k", b"v")])]
    df = spark.createDataFrame([(value,) for value in values], "data binary").repartition(2)
    folding = "org.apache.spark.sql.catalyst.optimizer.ConstantFolding"
    for settings in (
        {},
        {"spark.sql.optimizer.excludedRules": folding, "spark.sql.codegen.fallback": "false"},
    ):
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


@pytest.mark.slow
@pytest.mark.requirement("SPK-2", "SPK-5")
def test_carried_columns_keep_their_types(spark: Any) -> None:
    data = kpl.encode([kpl.UserRecord("k", b"1"), kpl.UserRecord("k", b"2")])
    df = spark.createDataFrame([(data,)], "data binary").selectExpr(
        "data", "cast(1.5 as decimal(10,2)) as price", "map('a', 1) as m", "localtimestamp() as t"
    )
    out = deaggregate(deaggregate(df))
    types = [(name, kind) for name, kind in df.dtypes if name != "data"]
    assert out.select("price", "m", "t").dtypes == types
    assert [(bytes(r.data), r.subSequenceNumber, r.m) for r in out.collect()] == [
        (b"1", 0, {"a": 1}),
        (b"2", 1, {"a": 1}),
    ]


def rows_of_stream(spark: Any, name: str) -> Any:
    return spark.createDataFrame(
        [tuple(row.values()) for row in rows_of(name)],
        "streamName string, shardId string, sequenceNumber string, partitionKey string, data binary",
    )


@pytest.mark.slow
@pytest.mark.requirement("SPK-5", "SPK-110")
@pytest.mark.parametrize("column", ["streamName", "stream"])
def test_a_map_judges_the_rows_of_its_stream(spark: Any, column: str) -> None:
    """Of a union, also by columns that do not have the stream. Databricks calls its column stream."""
    both = (
        rows_of_stream(spark, "a")
        .unionByName(rows_of_stream(spark, "b"))
        .withColumnRenamed("streamName", column)
    )
    for own, other in ("ab", "ba"):
        checked = verify(both, map_of(own, named=True))
        found = checked.groupBy("streamName", "placement").count().collect()
        counts = {(row.streamName, row.placement): row["count"] for row in found}
        expected = {(other, None): 3 * len(KEYS), (own, "expected"): 3 * len(KEYS) - LOST[own]}
        assert counts == expected | ({(own, "stray"): LOST[own]} if LOST[own] else {})
        lean = verify(both, map_of(own, named=True), columns=["placement"])
        assert lean.where("placement is null").count() == 3 * len(KEYS)
        if column == "streamName":
            given = deaggregate(both, "kcl", shard_map=map_of(own, named=True), columns=["data"])
            assert given.count() == 2 * 3 * len(KEYS) - LOST[own]


@pytest.mark.slow
@pytest.mark.requirement("SPK-111")
def test_rows_of_two_streams_need_a_map_that_says_whose_it_is(spark: Any) -> None:
    a, b = rows_of_stream(spark, "a"), rows_of_stream(spark, "b")
    nameless = map_of("a", named=False)
    for alone in (a, b):
        assert verify(alone, nameless).count() == 3 * len(KEYS)
    together = a.unionByName(b).coalesce(1)
    for asked in (verify(together, nameless), deaggregate(together, "kcl", shard_map=nameless)):
        with pytest.raises(Exception, match="stream=NAME"):
            asked.count()
    assert verify(together, kpl.ShardMap.from_json(nameless.to_json(), stream="a")).count() == 6 * len(KEYS)
