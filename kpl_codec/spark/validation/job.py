"""The validate job: captured Kinesis records in files -> user records, findings, and a report.

    result = validate(spark, ["captures/"], shard_map, "out/")

One pass: each task reads its files, opens and judges every record, and writes user records, findings and
counts. Then the counts become the report.

    out/user-records/     Parquet (or another format): the columns of `checking.checked_schema`
    out/findings/         Parquet: one row per finding (report/scan.py), with file and place
    out/summary.txt       what was printed
    out/report.html       the same with pictures and evidence, one page, no network
    out/shards.json       the shard map it was judged with
    out/spark.log         what Spark and its workers printed (from the command line)
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ... import __version__
from ...errors import KplError
from ...report.build import build_report, findings_of_the_whole
from ...report.counters import Tally
from ...report.model import Finding, Report
from ...report.page import render_page
from ...report.scan import findings_batch
from ...report.summary import summary_text
from ...shards.shard_map import ShardMap
from ..captures import InputError, Piece, is_local, open_path, plan
from .task import WRITTEN, checked_schema, gather, pack, task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: What Spark prints goes here, where the output folder is local.
LOG = "spark.log"
#: Kinesis records captured more than once that get a finding each.
MAX_LISTED = 1000


class OutputError(KplError, ValueError):
    """The output folder cannot be used. ``code``: not-empty or not-writable; ``path``."""

    code: Literal["not-empty", "not-writable"]
    requirement = "SPK-20"
    path: str
    reason: str = ""
    text = "cannot write to {path}: {code}"


class FormatError(KplError, ValueError):
    """This Spark has no data source of the name ``format``."""

    code = "no-such-format"
    format: str
    text = (
        "this Spark has no format {format}: its package is not there (for delta: spark-submit --packages "
        "io.delta:..., and Delta Lake's two settings of the session)"
    )


@dataclass(frozen=True, slots=True)
class Validation:
    """What came out: the report, and where the results are."""

    report: Report
    output: str

    @property
    def clean(self) -> bool:
        """Nothing was found that needs anybody's attention, in at least one Kinesis record."""
        return self.report.clean


def read_shard_map(path: str, distribution: Any = "USER_PARTITION_KEY") -> ShardMap:
    """The shard map in a file as ``aws kinesis list-shards`` prints it. Raises InputError, ShardMapError."""
    system, inner = open_path(path)
    try:
        with system.open_input_stream(inner) as source:
            text = source.read()
    except FileNotFoundError:
        raise InputError(code="no-such-path", path=path) from None
    except OSError as error:
        raise InputError(code="unreadable", path=path, reason=str(error)) from None
    return ShardMap.from_json(text, distribution)


def check_output(path: str) -> None:
    """Raises OutputError if there is something in the folder already."""
    system, inner = open_path(path)
    info = system.get_file_info(inner)
    # SPK-20: "An output folder that is not empty MUST be refused: results of two runs must not mix."
    held = system.get_file_info(fs.FileSelector(inner)) if info.type == fs.FileType.Directory else []
    if info.type == fs.FileType.File or any(file.base_name != LOG for file in held):
        raise OutputError(code="not-empty", path=path)


def check_format(spark: SparkSession, name: str) -> None:
    """Raises FormatError if Spark does not know a format of that name."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        spark.read.format(name).load("/no-such-path")
    except (PySparkException, Py4JError) as error:  # that there is no such path is the good answer
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            raise FormatError(format=name) from None


def prepare_output(path: str) -> None:
    """Make the folder and what tasks write to. Raises OutputError if it is in use or cannot be made."""
    check_output(path)
    system, inner = open_path(path)
    try:
        for name in ("findings", "tally"):
            system.create_dir(f"{inner}/_work/{name}", recursive=True)
    except OSError as error:
        raise OutputError(code="not-writable", path=path, reason=str(error)) from None


def validate(
    spark: SparkSession,
    inputs: Sequence[str],
    shard_map: ShardMap,
    output: str,
    *,
    output_format: str = "parquet",
    title: str | None = None,
    task_bytes: int | None = None,
) -> Validation:
    """Check everything under ``inputs`` and write the results under ``output``, which must be empty.

    Raises InputError, OutputError and FormatError before anything is started. What is wrong inside the
    input is never raised, it is found.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    if is_local(output):
        output = os.path.abspath(output)  # workers and the JVM have folders of their own
    pieces = plan(inputs)
    tasks = pack(pieces, task_bytes or _task_bytes(spark, pieces))
    if output_format != "parquet":
        check_format(spark, output_format)
    prepare_output(output)
    beside = f"{output}/_work"
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    users = f"{output}/user-records"
    if output_format == "parquet":
        numbers.mapInArrow(task(tasks, shard_map, beside, users), WRITTEN).collect()
    else:
        schema = from_arrow_schema(checked_schema(shard_map))
        numbers.mapInArrow(task(tasks, shard_map, beside), schema).write.format(output_format).save(users)
    tally = gather(beside)
    extra = repeated(spark, output, output_format)
    return finish(tally, shard_map, output, inputs, extra, title=title)


def _task_bytes(spark: SparkSession, pieces: Sequence[Piece]) -> int:
    """Bytes of a task: enough tasks for all cores to end together, but none below 2 or above 64 MiB."""
    from pyspark.errors import PySparkException

    try:
        cores = spark.sparkContext.defaultParallelism
    except PySparkException:  # Spark Connect does not tell
        cores = 8
    total = sum(piece.stop - piece.start for piece in pieces)
    return max(2 << 20, min(64 << 20, total // (4 * cores)))


def finish(
    tally: Tally,
    shard_map: ShardMap,
    output: str,
    inputs: Sequence[str],
    extra: Sequence[Finding] = (),
    *,
    title: str | None = None,
    source: str | None = None,
    complete: bool = True,
) -> Validation:
    """Move the findings to their place and write the report of ``tally``."""
    streams = ", ".join(sorted(tally.streams)) or None
    report = build_report(
        tally,
        shard_map,
        generated=datetime.now(timezone.utc),
        version=__version__,
        title=title or "Kinesis stream validation",
        stream_name=streams,
        source=source,
        inputs=list(inputs),
        complete=complete,
        findings=extra,
    )
    system, inner = open_path(output)
    # SPK-21: "An input without a single Kinesis record MUST NOT be called clean."
    whole = [*extra, *findings_of_the_whole(tally, shard_map)]
    if whole:
        table = pa.Table.from_batches([findings_batch(whole)])
        pq.write_table(table, f"{inner}/_work/findings/part-whole.parquet", filesystem=system)
    sweep(system, f"{inner}/user-records")
    sweep(system, f"{inner}/_work/findings")
    move_folder(system, f"{inner}/_work/findings", f"{inner}/findings")
    system.delete_dir(f"{inner}/_work")
    write_text(system, f"{inner}/summary.txt", summary_text(report))
    write_text(system, f"{inner}/report.html", render_page(report))
    write_text(system, f"{inner}/shards.json", shard_map.to_json())
    return Validation(report, output)


def sweep(system: Any, folder: str) -> None:
    """Delete what attempts that were killed left in a folder."""
    for file in system.get_file_info(fs.FileSelector(folder)):
        if re.match(r"\.part-.*\.[0-9a-f]{32}$", file.base_name):
            system.delete_file(file.path)


def write_text(system: Any, path: str, text: str) -> None:
    """Write a file so that readers see the old one or the new one, never half of one."""
    with system.open_output_stream(path + ".new") as out:
        out.write(text.encode())
    system.move(path + ".new", path)


def move_folder(system: Any, source: str, target: str) -> None:
    """Move the files in ``source`` to ``target``: at once, or one by one in an object store, which has no
    folders to move."""
    if isinstance(system, fs.LocalFileSystem):
        system.move(source, target)
        return
    for file in system.get_file_info(fs.FileSelector(source)):
        system.move(file.path, f"{target}/{file.base_name}")


def repeated(spark: SparkSession, output: str, output_format: str) -> list[Finding]:
    """Kinesis records that were captured more than once: a finding for each of MAX_LISTED, and one for
    all others."""
    from pyspark.sql import functions as f

    rows: DataFrame = spark.read.format(output_format).load(f"{output}/user-records")
    keys = ["streamName", "shardId", "sequenceNumber", "subSequenceNumber"]
    repeated = (
        rows.where("sequenceNumber is not null and subSequenceNumber = 0")
        .groupBy(*keys)
        .agg(f.count("*").alias("times"), f.max(f.struct("file", "line")).alias("place"))
        .where("times > 1")
    )
    found = repeated.limit(MAX_LISTED + 1).collect()
    findings = [
        Finding(
            kind="duplicate",
            shard_id=row.shardId,
            sequence_number=row.sequenceNumber,
            file=row.place.file,
            line=row.place.line,
            user_records=row.times,
            detail=f"captured {row.times} times",
        )
        for row in found[:MAX_LISTED]
    ]
    if len(found) > MAX_LISTED:
        sums = repeated.agg(f.count("*").alias("records"), f.sum("times").alias("times")).collect()[0]
        others = sums.records - MAX_LISTED
        detail = f"{others:,} more Kinesis records were captured more than once; they are not listed"
        times = sums.times - sum(row.times for row in found[:MAX_LISTED])
        findings.append(Finding(kind="duplicate", user_records=times, detail=detail))
    return findings
