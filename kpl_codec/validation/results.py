"""The output folder of a validate job, and how the files of its tasks become results.

out/user-records/     Parquet: the columns of `check.checked_schema`; not with --no-user-records
out/findings/         Parquet: one row per finding (report/scan.py), with file and place
out/summary.txt       what was printed
out/summary.json      the same for machines; its schema is spec/summary.schema.json
out/report.html       the same with pictures and evidence, one page, no network
out/shards.json       the shard map it was judged with: written last, so without it the job did not end
out/_work/            what tasks write while the job runs
out/spark.log         what Spark and its workers printed (from the command line)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from typing import Any, Literal

import pyarrow as pa

from .. import __version__
from ..captures import Location
from ..errors import KplError
from ..findings import Finding
from ..report.build import build_report, findings_of_the_whole
from ..report.counters import Tally
from ..report.model import About, Report
from ..report.page import render_page
from ..report.scan import findings_batch
from ..report.summary import report_facts, summary_text
from ..shards.shard import Distribution
from ..shards.shard_map import ShardMap
from .repeats import repeated
from .task import gather, make_folders, work_folder

#: Spark's output goes here if the output folder is local.
LOG = "spark.log"


class OutputError(KplError, ValueError):
    """The output folder ``path`` cannot be used. ``code``: not-empty, not-writable, or other-state (what
    `--follow` keeps there was written by another version, or is damaged)."""

    code: Literal["not-empty", "not-writable", "other-state"]
    requirement = "SPK-20"
    path: str
    reason: str = "name another folder, or remove this one"
    text = "cannot write to {path}: {code} ({reason})"
    concerns = "Whoever runs the command. Nothing was written."
    todo = "Name a new or empty folder: results of two runs must not mix."


@dataclass(frozen=True, slots=True)
class Validation:
    """The report, and where the results are. Jupyter shows the page."""

    report: Report
    output: Location

    @property
    def clean(self) -> bool:
        """Whether there is at least one Kinesis record, and no finding that needs attention."""
        return self.report.clean

    @property
    def summary(self) -> dict[str, Any]:
        """What is in ``summary.json``; its schema is spec/summary.schema.json."""
        return report_facts(self.report)

    def _repr_html_(self) -> str:
        style = "width:100%;height:80vh;border:0"
        page = escape(render_page(self.report))
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'

    def __repr__(self) -> str:
        return f"<Validation in {self.output.path}: {'clean' if self.clean else 'findings'}>"


def read_shard_map(path: str, distribution: Distribution = "USER_PARTITION_KEY") -> ShardMap:
    """The shard map in a file as ``aws kinesis list-shards`` prints it. Raises InputError, ShardMapError."""
    return ShardMap.from_json(Location(path).read(), distribution, source=path)


def check_output(output: Location) -> None:
    """Raises OutputError if there is something in the folder already."""
    # SPK-20: "An output folder that is not empty MUST be refused: results of two runs must not mix."
    kind = output.kind()
    if kind == "file" or (kind == "folder" and any(file.name != LOG for file in output.files())):
        raise OutputError(code="not-empty", path=output.path)


def prepare_output(output: Location) -> None:
    """Make the output folder and the tasks' folders. Raises OutputError if it is in use or cannot be made."""
    check_output(output)
    try:
        make_folders(work_folder(output))
    except OSError as error:
        raise OutputError(code="not-writable", path=output.path, reason=str(error)) from None


def finish(
    output: Location, shard_map: ShardMap, more: Callable[[int], Iterable[Finding]], **about: Any
) -> Validation:
    """Add up the tasks' counts, move their files to their final place, and write the report. ``more``:
    findings about the stream, by the number of its aggregated records; ``about``: fields of `About`."""
    work = work_folder(output)
    tally = gather(work)
    found = [*repeated(work), *more(tally.records["aggregated"])]
    report = write_report(output, tally, shard_map, found, **about)
    # SPK-21: "An input without a single Kinesis record MUST NOT be called clean."
    whole = [*found, *findings_of_the_whole(tally, shard_map)]
    if whole:
        (work / "findings/part-whole.parquet").write_table(pa.table(findings_batch(whole)))
    # SPK-42: "A job that ends before its time MUST leave nothing where results stand in a local folder; a
    # worker that is lost MUST be an error, and none outlives the job."
    for name in ("user-records", "findings"):
        (work / name).move_to(output / name)
        (output / name).sweep()
    work.delete()
    (output / "shards.json").write(shard_map.to_json().encode())
    return Validation(report, output)


def write_report(
    output: Location, tally: Tally, shard_map: ShardMap, findings: Sequence[Finding] = (), **about: Any
) -> Report:
    """Writes the report of ``tally`` to ``output``. ``about``: fields of `About`."""
    made = About(datetime.now(timezone.utc), __version__, **about)
    report = build_report(tally, shard_map, made, findings)
    (output / "summary.txt").write(summary_text(report).encode())
    (output / "summary.json").write(json.dumps(report_facts(report), indent=2).encode() + b"\n")
    (output / "report.html").write(render_page(report).encode())
    return report
