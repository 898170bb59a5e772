"""The output folder of a validate job, and how the files of its tasks become results.

out/user-records/     Parquet (or another format of Spark): the columns of `check.checked_schema`
out/findings/         Parquet: one row per finding (report/scan.py), with file and place
out/summary.txt       what was printed
out/summary.json      the same for machines; its schema is spec/summary.schema.json
out/report.html       the same with pictures and evidence, one page, no network
out/shards.json       the shard map it was judged with: written last, so without it the job did not end
out/_work/            what tasks write while the job runs
out/spark.log         what Spark and its workers printed (from the command line)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from .. import __version__
from ..captures import InputError, open_path
from ..errors import KplError
from ..report.build import build_report
from ..report.counters import Tally
from ..report.facts import report_json
from ..report.model import Finding, Report
from ..report.page import render_page
from ..report.printed import summary_text
from ..report.scan import findings_batch
from ..report.whole import findings_of_the_whole
from ..shards.shard import Distribution
from ..shards.shard_map import ShardMap
from .repeats import repeated
from .storage import move_folder, sweep, write_text
from .task import gather, make_folders, work_folder

#: Spark's output goes here if the output folder is local.
LOG = "spark.log"


class OutputError(KplError, ValueError):
    """The output folder cannot be used. ``code``: not-empty, not-writable, or other-state (what `--follow`
    keeps there was written by another version, or is damaged); ``path``."""

    code: Literal["not-empty", "not-writable", "other-state"]
    requirement = "SPK-20"
    path: str
    reason: str = "name another folder, or remove this one"
    text = "cannot write to {path}: {code} ({reason})"


class FormatError(KplError, ValueError):
    """User records cannot be written as ``format``. ``reason`` says what is missing."""

    code = "no-such-format"
    format: str
    reason: str
    text = "no format {format}: {reason}"


@dataclass(frozen=True, slots=True)
class Validation:
    """The report, and where the results are."""

    report: Report
    output: str

    @property
    def clean(self) -> bool:
        """Whether there is at least one Kinesis record, and no finding that needs attention."""
        return self.report.clean


def read_shard_map(path: str, distribution: Distribution = "USER_PARTITION_KEY") -> ShardMap:
    """The shard map in a file as ``aws kinesis list-shards`` prints it. Raises InputError, ShardMapError."""
    system, inner = open_path(path)
    try:
        with system.open_input_stream(inner) as source:
            text = source.read()
    except FileNotFoundError:
        raise InputError(code="no-such-path", path=path) from None
    except OSError as error:
        raise InputError(code="unreadable", path=path, reason=str(error)) from None
    return ShardMap.from_json(text, distribution, source=path)


def check_output(path: str) -> None:
    """Raises OutputError if there is something in the folder already."""
    system, inner = open_path(path)
    info = system.get_file_info(inner)
    # SPK-20: "An output folder that is not empty MUST be refused: results of two runs must not mix."
    held = system.get_file_info(fs.FileSelector(inner)) if info.type == fs.FileType.Directory else []
    if info.type == fs.FileType.File or any(file.base_name != LOG for file in held):
        raise OutputError(code="not-empty", path=path)


def prepare_output(path: str) -> None:
    """Make the output folder and the tasks' folders. Raises OutputError if it is in use or cannot be made."""
    check_output(path)
    try:
        make_folders(work_folder(path))
    except OSError as error:
        raise OutputError(code="not-writable", path=path, reason=str(error)) from None


def finish(
    output: str,
    shard_map: ShardMap,
    *,
    inputs: Sequence[str],
    title: str | None = None,
    source: str | None = None,
) -> Validation:
    """Add up the tasks' counts, move their files to their final place, and write the report."""
    work = work_folder(output)
    system, inner = open_path(output)
    tally = gather(work)
    repeats = repeated(work)
    report = write_report(
        output, tally, shard_map, inputs=inputs, title=title, source=source, findings=repeats
    )
    # SPK-21: "An input without a single Kinesis record MUST NOT be called clean."
    whole = [*repeats, *findings_of_the_whole(tally, shard_map)]
    if whole:
        table = pa.Table.from_batches([findings_batch(whole)])
        pq.write_table(table, f"{inner}/_work/findings/part-whole.parquet", filesystem=system)
    # SPK-42: "A job that ends before its time MUST leave nothing where results stand in a local folder; a
    # worker that is lost MUST be an error, and none outlives the job."
    for name in ("user-records", "findings"):
        written = f"{inner}/_work/{name}"
        if system.get_file_info(written).type == fs.FileType.NotFound:
            written = f"{inner}/{name}"
        sweep(system, written)
        if written != f"{inner}/{name}":
            move_folder(system, written, f"{inner}/{name}")
    system.delete_dir(f"{inner}/_work")
    write_text(system, f"{inner}/shards.json", shard_map.to_json())
    return Validation(report, output)


def write_report(
    output: str,
    tally: Tally,
    shard_map: ShardMap,
    *,
    inputs: Sequence[str] = (),
    title: str | None = None,
    stream_name: str | None = None,
    source: str | None = None,
    complete: bool = True,
    findings: Sequence[Finding] = (),
) -> Report:
    """The report of ``tally``; it is written to ``output`` as text and as a page."""
    report = build_report(
        tally,
        shard_map,
        generated=datetime.now(timezone.utc),
        version=__version__,
        title=title or "Kinesis stream validation",
        stream_name=stream_name,
        source=source,
        inputs=list(inputs),
        complete=complete,
        findings=findings,
    )
    system, inner = open_path(output)
    write_text(system, f"{inner}/summary.txt", summary_text(report))
    write_text(system, f"{inner}/summary.json", report_json(report))
    write_text(system, f"{inner}/report.html", render_page(report))
    return report
