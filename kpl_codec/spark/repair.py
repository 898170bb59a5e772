"""Puts the user records again that the KCL drops: first a plan, then the puts with a log.

    plan = plan_repair(spark, "out/")             # out/ as `validate` left it; nothing is put
    apply_repair(spark, "out/", {"region": "eu-west-1"}, "orders")

The plan has a decision for every user record that the KCL drops:

    put                   it is put again, aggregated per shard
    already-delivered     an equal user record (keys and data) is delivered: its producer sent it again when
                          a shard was split. Looked for only where a reshard explains the drop
    cannot                its partition key is not known, or may not be written

Each copy has a tag that names its original (`validation.repaired`). By it the next `validate` reports the
originals as repaired, and no plan has them again.

Applying logs each delivery (old place, new place) and skips user records in the log, so a second run after a
failure puts the rest. If a process is killed, at most 2 * LOG_EVERY (500) user records were put without a log
entry; the next run puts them again. A new `validate` and a new plan do not: they know the copies by their
tags.

    out/repair/plan/      Parquet, with the user records themselves
    out/repair/log/       JSON Lines: one per user record put, or given up with its error
    out/repair/record.json   the sums
Specification: spec/07-spark.md, SPK-30 to SPK-33.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
from pyarrow import fs

from ..captures import is_local, open_path
from ..errors import EncodeError, KplError
from ..format.records import Tag
from ..limits import MAX_PARTITION_KEY_LENGTH
from ..producer import DeliveryError, ProducerConfig
from ..shards.misplacement_causes import ACROSS_SHARDS
from ..validation import repaired
from .repair_files import IDENTITY, LOG_EVERY, Log, planned, recorded_stream, write_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..aws.delivery_future import DeliveryFuture
    from ..aws.producer import Producer

#: A user record that is put again may wait long: nobody waits for it.
CONFIG = ProducerConfig(record_ttl=300_000)


class RepairError(KplError, ValueError):
    """The results in ``path`` cannot be repaired; ``code`` says why, the text what to do."""

    code: Literal["no-results", "several-streams", "no-plan", "planned", "other-stream"]
    requirement = "SPK-30"
    path: str
    text = "cannot repair from {path}: {code}"
    _WHY: ClassVar = {
        "no-results": "it holds no results of kpl-codec validate",
        "several-streams": "the results are of several streams; validate each by itself",
        "no-plan": "there is no plan yet; run it without --apply first",
        "planned": "there is a plan already; --apply puts it (to plan anew, delete repair/)",
        "other-stream": "its plan was applied to another stream",
    }

    def describe(self) -> str:
        """The text without the requirement."""
        return f"cannot repair from {self.path}: {self._WHY.get(self.code, self.code)}"


def _at(output: str) -> str:
    return os.path.abspath(output) if is_local(output) else output


def check_results(output: str, *, planned: bool) -> None:
    """Raises RepairError: no-results, no-plan where one must be ``planned``, planned where none may be."""
    system, inner = open_path(_at(output))

    def there(path: str) -> bool:
        return bool(system.get_file_info(f"{inner}/{path}").type != fs.FileType.NotFound)

    # The shard map is what validate writes last.
    if not (there("user-records") and there("shards.json")):
        raise RepairError(code="no-results", path=_at(output))
    if there("repair/plan/_SUCCESS") != planned:
        raise RepairError(code="no-plan" if planned else "planned", path=_at(output))


def plan_repair(spark: SparkSession, output: str) -> dict[str, int]:
    """Write the plan. Returns the number of user records by decision. Raises RepairError (no-results,
    planned, several-streams).

    An incomplete plan that a killed process left is replaced.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    check_results(output, planned=False)
    output = _at(output)
    rows = spark.read.parquet(f"{output}/user-records")
    dropped = rows.where("kcl = 'dropped'")
    # A plan is applied to one stream; it must not contain records of another.
    if dropped.where("streamName is not null").select("streamName").distinct().limit(2).count() > 1:
        raise RepairError(code="several-streams", path=output)
    lost = dropped.dropDuplicates(list(IDENTITY))
    content = [
        f.col("partitionKey").eqNullSafe(f.col("otherKey")),
        f.col("explicitHashKey").eqNullSafe(f.col("otherHashKey")),
        f.sha2("data", 256) == f.col("otherData"),
    ]
    delivered = (
        rows.where("kcl = 'delivered'")
        # A copy from a repair replaces only the user record that its tag names, not an equal one.
        .where(f"not coalesce(exists(tags, tag -> tag.key = '{repaired.TAG}'), false)")
        .dropDuplicates(list(IDENTITY))
        .groupBy(
            f.col("partitionKey").alias("otherKey"),
            f.col("explicitHashKey").alias("otherHashKey"),
            f.sha2("data", 256).alias("otherData"),
        )
        .agg(f.count("*").alias("copies"))
    )
    causes = (
        spark.read.parquet(f"{output}/findings")
        .where("cause is not null")
        .select(f.col("shardId").alias("onShard"), f.col("sequenceNumber").alias("number"), "cause")
        .dropDuplicates(["onShard", "number"])
    )
    told = lost.join(
        causes,
        f.col("shardId").eqNullSafe(f.col("onShard")) & f.col("sequenceNumber").eqNullSafe(f.col("number")),
        "left",
    )
    # SPK-31: "A user record that a producer has sent again after a reshard, and that is delivered, MUST NOT
    # be put once more; one of an aggregate that no reshard explains MUST be put."
    sent_again = f.col("cause").isNotNull() & (f.col("cause") != ACROSS_SHARDS)
    copy = Window.partitionBy("partitionKey", "explicitHashKey", f.sha2("data", 256)).orderBy(
        f.length("sequenceNumber").desc(), f.col("sequenceNumber").desc(), f.col("subSequenceNumber").desc()
    )
    again = told.where(sent_again).withColumn("copy", f.row_number().over(copy))
    found = again.join(delivered, content[0] & content[1] & content[2], "left").withColumn(
        "decision", f.when(f.col("copy") <= f.coalesce("copies", f.lit(0)), "already-delivered")
    )
    columns = [
        *IDENTITY,
        "expectedShardId",
        "partitionKey",
        "explicitHashKey",
        "data",
        "tags",
        "decision",
        "cause",
    ]
    usable = (
        "error is null and partitionKey is not null and length(partitionKey) between 1 and "
        f"{MAX_PARTITION_KEY_LENGTH} and sequenceNumber is not null"
    )
    rest = told.where(~sent_again).withColumn("decision", f.lit(None).cast("string"))
    decided = (
        found.selectExpr(*columns, "error")
        .unionByName(rest.selectExpr(*columns, "error"))
        .withColumn("decision", f.expr(f"coalesce(decision, if({usable}, 'put', 'cannot'))"))
        .select(*columns)
    )
    (
        decided.repartition("expectedShardId")
        .sortWithinPartitions(
            "expectedShardId", f.length("sequenceNumber"), "sequenceNumber", "subSequenceNumber"
        )
        .write.mode("overwrite")
        .parquet(f"{output}/repair/plan")
    )
    counts = spark.read.parquet(f"{output}/repair/plan").groupBy("decision").count().collect()
    return {row["decision"]: row["count"] for row in counts}


def apply_repair(
    spark: SparkSession, output: str, connection: Mapping[str, Any], stream: str
) -> dict[str, int]:
    """Put the user records of the plan that no earlier run has put. Returns their number by outcome: put (by
    this run), put-before, failed, already-delivered, cannot.

    ``connection``: arguments of `kpl_codec.aws.client.kinesis_client` (region, profile, role_arn ...).
    ``stream``: a name or an ARN. If ``output`` is a local folder, two runs at once share the plan files;
    elsewhere only one run is allowed.
    Raises RepairError (no-plan, other-stream).
    """
    check_results(output, planned=True)
    output = _at(output)
    system, inner = open_path(output)
    # SPK-30: "Nothing MUST be put before a plan was written that names every user record concerned and what
    # becomes of it."
    files = sorted(
        file.path
        for file in system.get_file_info(fs.FileSelector(f"{inner}/repair/plan"))
        if file.base_name.endswith(".parquet")
    )
    system.create_dir(f"{inner}/repair/log", recursive=True)
    record = f"{inner}/repair/record.json"
    if recorded_stream(system, record) not in (None, stream):
        raise RepairError(code="other-stream", path=output)
    write_record(system, record, stream, {})
    work = _task(files, output, dict(connection), stream)
    counts: Counter[str] = Counter()
    for row in (
        spark.range(0, len(files), 1, max(1, len(files))).mapInArrow(work, "outcome string, n long").collect()
    ):
        counts[row["outcome"]] += row["n"]
    write_record(system, record, stream, counts)
    return dict(counts)


def _task(
    files: list[str], output: str, connection: dict[str, Any], stream: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                counts = _put_file(files[number], output, number, connection, stream)
                yield pa.RecordBatch.from_arrays(
                    [pa.array(list(counts), pa.string()), pa.array(list(counts.values()), pa.int64())],
                    names=["outcome", "n"],
                )

    return run


def _put_file(path: str, output: str, number: int, connection: dict[str, Any], stream: str) -> Counter[str]:
    system, inner = open_path(output)
    with _turn(f"{inner}/repair/log/{number:05d}.lock") if is_local(output) else nullcontext():
        from ..aws.client import kinesis_client
        from ..aws.producer import Producer

        log = Log(system, f"{inner}/repair/log", number)
        with Producer(stream, config=CONFIG, client=kinesis_client(**connection)) as producer:
            return put_rows(planned(system, path), log, producer)


@contextmanager
def _turn(path: str) -> Iterator[None]:
    """Wait until no other process holds the lock ``path``. It ends with the process that holds it."""
    with open(path, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def put_rows(rows: Iterable[dict[str, Any]], log: Log, producer: Producer) -> Counter[str]:
    """Put the rows of a plan file (see `planned`) that the log does not have; the number by outcome, as of
    `apply_repair`. Raises InputError for a log that cannot be read."""
    # SPK-32: "What an earlier run has put MUST NOT be put again."
    done = log.done()
    counts: Counter[str] = Counter()
    waiting: deque[tuple[tuple[Any, ...], Any]] = deque()

    def settle(keep: int) -> None:
        while len(waiting) > keep:
            old, future = waiting.popleft()
            try:
                delivery = future.result()
            except DeliveryError as error:
                # SPK-33: "A user record that cannot be put MUST be named with the reason."
                log.add({"old": old, "outcome": "failed", "error": str(error), "stored": error.may_be_stored})
                counts["failed"] += 1
            else:
                new = delivery.shard_id, delivery.sequence_number, delivery.sub_sequence_number
                log.add({"old": old, "outcome": "put", "new": new})
                counts["put"] += 1
        log.write()

    try:
        for number, row in enumerate(rows, 1):
            old = tuple(row[name] for name in IDENTITY)
            if row["decision"] != "put":
                counts[row["decision"]] += 1
            elif old in done:
                counts["put-before"] += 1
            else:
                try:
                    future = _put(producer, row, old)
                except EncodeError as error:  # larger than the producer may put
                    log.add({"old": old, "outcome": "failed", "error": str(error), "stored": False})
                    counts["failed"] += 1
                else:
                    waiting.append((old, future))
            if number % LOG_EVERY == 0:
                settle(keep=LOG_EVERY)
    finally:  # also what was put before a row that cannot be read
        producer.flush()
        settle(keep=0)
    return counts


def _put(producer: Producer, row: dict[str, Any], old: tuple[Any, ...]) -> DeliveryFuture:
    """Puts a copy of the user record, with a tag that names the original. Raises EncodeError."""
    tags = tuple(Tag(tag["key"], tag["value"]) for tag in row["tags"] or ())
    key, data, hash_key = row["partitionKey"], row["data"], row["explicitHashKey"]
    try:
        return producer.put(key, data, hash_key, (*tags, Tag(repaired.TAG, repaired.tag_value(old))))
    except EncodeError:  # too large with the tag; then only the log has it
        return producer.put(key, data, hash_key, tags)
