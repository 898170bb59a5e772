"""The validate job on Spark: `SparkEngine` checks captured files, `follow` a stream for as long as it runs.

A batch of `follow` is checked against the shard map as it was at the batch's start. A batch that is repeated
reads the same records (SPK-50 to SPK-54) and replaces its files. `totals/N.json` counts everything up to
batch N; the last two are kept:

    out/user-records/batch=0/   out/findings/batch=0/   out/totals/0.json   out/checkpoint/
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from ..captures import CAPTURE_SCHEMA, Location
from ..captures.account import Account
from ..captures.capture_rows import capture_batch
from ..captures.results import RESULTS, OutputError, check_output
from ..findings import Finding
from ..findings.counters import Tally
from ..rendering.labels import number as shown
from ..rendering.labels import plural
from ..shards.shard_map import ShardMap
from ..validate.repair_marks import Copies
from ..validate.report.build import input_findings
from ..validate.report.scan import findings_batch
from ..validate.task import (
    Job,
    check_task,
    gather,
    gather_account,
    make_folders,
    part_name,
    work_folder,
    write_users,
)
from ..validate.validate_job import LOG, Validation, write_report
from .functions import broadcast, context_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: The version of the files totals/N.json: it changes whenever the fields of a Tally change.
_TOTALS_VERSION: Final = 3


class SparkEngine:
    """Runs tasks on the workers of ``spark``. They write Parquet themselves: Spark would turn columns into
    rows first, which takes several times as long as the whole task."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @property
    def cores(self) -> int:
        """How many tasks run at a time; 8 on Spark Connect, which does not tell."""
        context = context_of(self.spark)
        return 8 if context is None else context.defaultParallelism

    def progress(self) -> tuple[int, int]:
        """How many tasks of the running stages are done, and how many they have; 0, 0 on Spark Connect."""
        context = context_of(self.spark)
        if context is None:
            return 0, 0
        tracker = context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage is not None]
        return sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)

    def run(self, job: Job) -> None:
        work = broadcast(self.spark, job)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    work().run(number)
                yield batch

        numbers = self.spark.range(0, len(job.tasks), 1, len(job.tasks))
        numbers.mapInArrow(run, numbers.schema).collect()


def supports_available_now() -> bool:
    """Whether one run of `follow` with ``once`` reads everything (PySpark 4.2 and newer). Before, a run is
    one batch, and a shard is read only in a batch after its parents."""
    return find_spec("pyspark.sql.streaming.datasource") is not None


class _Totals(NamedTuple):
    """What following has counted up to a batch. ``given``: rows that Spark says its source gave."""

    tally: Tally
    account: Account
    given: int

    def findings(self) -> Iterator[Finding]:
        # ACC-10: "What following has checked MUST be as many records as Spark counts that its source gave."
        yield from self.account.findings(self.account.sources)
        read = sum(source.records for source in self.account.sources.values())
        if read != self.given:
            detail = f"{plural(self.given, 'record')} given by Spark's source, {shown(read)} read"
            yield Finding("not-accounted", detail=detail)


def _capture_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = {
        field.name: batch[field.name].cast(field.type)
        for field in CAPTURE_SCHEMA
        if field.name in batch.schema.names
    }
    return capture_batch(columns, batch.num_rows)


def follow(
    spark: SparkSession,
    options: Mapping[str, str],
    read_shard_map: Callable[[], ShardMap],
    output: str | Location,
    *,
    once: bool = False,
    interval: float = 30.0,
    on_batch: Callable[[Validation, int], None] = lambda validation, number: None,
) -> StreamingQuery:
    """Start a query that checks the stream batch by batch.

    ``options``: of the data source. ``once``: end when the records that are there are checked; the next run
    goes on from there. ``interval``: seconds between batches otherwise. ``on_batch`` gets the result so far
    and the batch's number. An output folder of an earlier `follow` is continued; any other that is not empty
    is refused (OutputError).
    """
    from .source.datasource import KinesisDataSource

    spark.dataSource.register(KinesisDataSource)
    output = Location(output)
    if (output / "checkpoint").kind() is None:
        check_output(output, LOG)
        (output / "totals").make_folder()

    def each(df: DataFrame, number: int) -> None:
        on_batch(_batch(df, number, read_shard_map(), output, options["stream"]), number)

    stream = spark.readStream.format("kpl-kinesis").options(**{**options, "policy": "none"}).load()
    writer = stream.writeStream.foreachBatch(each).option("checkpointLocation", f"{output}/checkpoint")
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{interval} seconds"}
    return writer.trigger(**trigger).start()


def _batch(df: DataFrame, number: int, shard_map: ShardMap, output: Location, stream: str) -> Validation:
    """Check one batch, and replace the files of an earlier attempt at it."""
    work_folder(output).delete()
    # Each attempt has its own folder, because tasks of a failed one may still be writing.
    run_id = uuid4().hex
    work = work_folder(output) / f"{number}-{run_id}"
    users = work / "user-records"
    make_folders(work)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        account = Account()

        def captured() -> Iterator[pa.RecordBatch]:
            for batch in map(_capture_columns, batches):
                for shard in pc.value_counts(batch["shardId"]).to_pylist():
                    source = account.of(shard["values"] or "", 1, unit="shard")
                    source.records += shard["counts"]
                yield batch

        context = TaskContext.get()
        name = part_name(context.partitionId() if context is not None else 0)
        rows = check_task(captured(), shard_map, work, name, account, Copies(), run_id)
        yield pa.record_batch([[write_users(rows, shard_map, users, name, run_id=run_id)]], ["rows"])

    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    rows_given = Observation()
    given = 0
    if df.observe(rows_given, count(lit(1)).alias("rows")).mapInArrow(run, "rows long").collect():
        given = rows_given.get["rows"]
    else:
        write_users([], shard_map, users, part_name(0), run_id=run_id)  # a batch without tasks
    totals = _Totals(gather(work), gather_account(work), given)
    if number:
        before = _totals(output / f"totals/{number - 1}.json")
        totals.tally.merge(before.tally)
        totals.account.add(before.account)
        totals = totals._replace(given=given + before.given)
    for source in totals.account.sources.values():
        source.spans = [[0, 1]]  # each batch has read it to where the next one begins
    for name in ("user-records", "findings"):
        target = (output / name).make_folder() / f"batch={number}"
        target.delete()
        (work / name).move_to(target)
        target.sweep()
    # SPK-23: "What following wrote for a batch MUST be replaced when the batch runs again; the totals of a
    # batch are made of those of the batch before."
    tally, account = (json.loads(part.to_bytes()) for part in totals[:2])
    stored = {"version": _TOTALS_VERSION, "tally": tally, "account": account, "given": totals.given}
    (output / f"totals/{number}.json").write(json.dumps(stored).encode())
    (output / f"totals/{number - 2}.json").delete()
    work_folder(output).delete()
    return _report(totals, shard_map, output, stream)


def _report(totals: _Totals, shard_map: ShardMap, output: Location, stream: str) -> Validation:
    source, findings = f"Kinesis stream {stream}, followed", list(totals.findings())
    about: dict[str, Any] = {"stream_name": stream, "source": source, "complete": False}
    read = totals.account.facts(totals.account.sources)
    report = write_report(output, totals.tally, shard_map, findings, read=read, **about)
    whole = pa.table(findings_batch([*findings, *input_findings(totals.tally, shard_map)]))
    (output / "findings-of-the-whole.parquet").write_table(whole, RESULTS)
    (output / "shards.json").write(shard_map.to_json().encode())
    return Validation(report, output)


def result_so_far(output: str | Location, shard_map: ShardMap, stream: str) -> Validation | None:
    """The result of all batches so far, from the newest totals; None before the first."""
    output = Location(output)
    names = [file.name.removesuffix(".json") for file in (output / "totals").files()]
    numbers = [int(name) for name in names if name.isdigit()]
    if not numbers:
        return None
    return _report(_totals(output / f"totals/{max(numbers)}.json"), shard_map, output, stream)


def _totals(file: Location) -> _Totals:
    """The totals of all batches up to one. Raises OutputError (other-state)."""
    # SPK-92: "Totals that another version of following wrote, or that are damaged, MUST be refused, with what
    # to do instead."
    try:
        totals = json.loads(file.read())
        if totals["version"] != _TOTALS_VERSION:
            raise ValueError(f"version {totals['version']}")
        tally = Tally.from_bytes(json.dumps(totals["tally"]).encode())
        account = Account.from_bytes(json.dumps(totals["account"]).encode())
        return _Totals(tally, account, int(totals["given"]))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        reason = "its totals are of another version, or damaged: follow into another folder"
        raise OutputError(code="other-state", path=file.path, reason=reason) from None
