"""Runs a validate job: makes tasks of files or shards, has an engine run them, and writes the results:

out/user-records/     Parquet: the columns of `check.user_record_schema`; not with --no-user-records
out/findings/         Parquet: one row per finding (scan.py), with file and place
out/summary.txt       the printed summary; also summary.json for programs, report.html with a picture
out/shards.json       the shard map of the verdicts, written last: if it is missing, the job did not end
out/_work/            what tasks write while the job runs
out/spark.log         what Spark and its workers printed (from the command line)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa

from ..base.arguments import check_arguments
from ..captures import Location, plan
from ..findings import Finding
from ..findings.counters import OTHERS, Tally
from ..shards.shard_map import ShardMap
from ..shards.stream_name import SeveralStreams, streams_named
from .report.facts import input_findings, report_facts
from .report.page import report_page
from .report.schema import Facts
from .report.summary import summary_text
from .results import RESULTS, new_results
from .results import OutputError as OutputError
from .scan import findings_batch
from .task import (
    Job,
    find_duplicates,
    gather,
    gather_account,
    make_folders,
    only_parts,
    pack,
    shard_parts,
    work_folder,
)

if TYPE_CHECKING:
    from ..aws.fetch_by_sequence_number import RecordLocation, UnreadableEntry
    from ..aws.stream_reading import Start

#: Spark's output goes here if the output folder is local.
LOG = "spark.log"


@dataclass(frozen=True, slots=True)
class Validation:
    """What was found, and where the results are. ``summary``: the members of ``summary.json``, whose schema
    is spec/summary.schema.json; ``findings``: examples of each kind."""

    summary: Facts
    findings: Sequence[Finding]
    output: Location

    @property
    def clean(self) -> bool:
        """Whether there is at least one Kinesis record, and no finding that needs attention."""
        return self.summary["clean"]

    def __repr__(self) -> str:
        return f"<Validation in {self.output.path}: {'clean' if self.clean else 'findings'}>"


def read_shard_map(path: str) -> ShardMap:
    """The shard map in a file as ``aws kinesis list-shards`` prints it. Raises InputError, ShardMapError."""
    return ShardMap.from_json(Location(path).read(), source=path)


@contextmanager
def whole_results(output: Location) -> Iterator[Location]:
    """The folder to write results in, with the tasks' folders: `new_results`. Raises OutputError."""
    with new_results(output, keep=LOG) as folder:
        make_folders(work_folder(folder))
        yield folder


class Engine(Protocol):
    """Runs the tasks of a job."""

    @property
    def cores(self) -> int:
        """How many tasks run in parallel."""

    def run(self, job: Job) -> None:
        """Run `Job.run` for every task."""

    def progress(self) -> tuple[int, int]:
        """The number of finished tasks and of all known tasks."""


def validate(
    inputs: Sequence[str],
    shard_map: ShardMap,
    *,
    output: str | Location,
    engine: Engine,
    task_bytes: int | None = None,
    user_records: bool = True,
) -> Validation:
    """Check everything under ``inputs`` and write the results under ``output``, which must be empty; without
    ``user_records`` only the findings and the report, in half of the time. Raises InputError, OutputError,
    SeveralStreams, and an engine's error, after which ``output`` is empty again. Errors in the input become
    findings."""
    check_arguments("validate", locals(), required=("shard_map", "engine"))
    pieces = plan(inputs)
    # Enough tasks to keep all cores busy until the end, each of 2 to 64 MiB.
    each = sum(piece.weight for piece in pieces) // (4 * engine.cores)
    tasks = pack(pieces, task_bytes=task_bytes or max(2 << 20, min(64 << 20, each)))
    return _run(
        Job(tasks, shard_map, Location(output), user_records=user_records), engine, inputs, is_captures=True
    )


def validate_stream(
    client_settings: Mapping[str, Any],
    stream: str,
    *,
    shard_map: ShardMap,
    output: str | Location,
    engine: Engine,
    start: Start = "TRIM_HORIZON",
    only: Sequence[RecordLocation | UnreadableEntry] | Literal["all"] = "all",
    user_records: bool = True,
) -> Validation:
    """Check ``stream`` (a name or an ARN) from ``start`` to now: every shard that it has, a task each.

    ``client_settings``: arguments of `kpl_codec.aws.kinesis_client`. ``user_records``: as in `validate`.
    ``only``: read only the records at these places (see `kpl_codec.aws.find_sequence_numbers`); records that
    are gone are findings. Raises as `validate` does, StreamUnavailable, and ValueError for a ``start`` beside
    ``only``.
    """
    check_arguments("validate_stream", locals(), required=("shard_map", "engine", "client_settings"))
    if only != "all" and start != "TRIM_HORIZON":  # the records of ``only`` are read whatever their times
        raise ValueError("start of validate_stream is given with only, give one of them")
    # SPK-17: also shards that the map does not have. Their records are findings.
    parts = shard_parts(client_settings, stream, start)
    source = f"Kinesis stream {stream}"
    if only != "all":
        parts = only_parts(parts[0], only)
        source += ", just the records asked for"
    job = Job([[part] for part in parts], shard_map, Location(output), user_records=user_records)

    return _run(job, engine, [stream], is_captures=False, source=source)


def _run(
    job: Job,
    engine: Engine,
    inputs: Sequence[str],
    *,
    is_captures: bool,
    **about: Any,
) -> Validation:
    """Runs the tasks, adds up their counts, moves their files to the final place, and writes the report.
    ``is_captures``: whether ``inputs`` are captures, else a stream; ``about``: more for `report_facts`."""
    output, shard_map = job.output, job.shard_map
    # SPK-43: "Both engines MUST give the same user records, findings, counts, summary and report."
    with whole_results(output) as folder:
        job, work = replace(job, output=folder), work_folder(folder)
        engine.run(job)
        tally, account = gather(work), gather_account(work)
        # SPK-111: the task that has seen the second stream has ended; tasks of one stream each show it here.
        if len(names := streams_named(tally.streams, shard_map.stream)) > 1:
            raise SeveralStreams(first=names[0], second=names[1])
        findings = [*find_duplicates(work), *account.findings(job.given)]
        if is_captures:
            findings += _not_captured(tally, shard_map)
        # SPK-21: "An input without a single Kinesis record MUST NOT be called clean."
        whole = [*findings, *input_findings(tally, shard_map)]
        # ACC-11: "summary.json MUST say how many rows each folder of results has, as whoever wrote them
        # counted them."
        # (Of user records also where they are not wanted: SPK-94.)
        rows = {
            "findings": account.rows["findings"] + len(whole),
            "user-records": account.rows["user-records"],
        }
        read = account.facts(job.given)
        facts, shown = write_report(
            folder,
            tally,
            shard_map,
            findings,
            inputs=inputs,
            read=read,
            rows=rows,
            run=job.run_id,
            **about,
        )
        if whole:
            part = f"{job.run_id}/findings/part-whole"
            (work / "findings/part-whole.parquet").write_table(pa.table(findings_batch(whole)), RESULTS, part)
        for name in ("user-records", "findings"):
            (work / name).move_to(folder / name)
            (folder / name).sweep()
        work.delete()
        (folder / "shards.json").write(shard_map.to_json().encode())
    return Validation(facts, shown, output)


def _not_captured(tally: Tally, shard_map: ShardMap) -> Iterator[Finding]:
    # CAP-31: "A closed shard of the map of which captures hold no record MUST be told: its records may have
    # been left out."
    if tally.records["kinesis"] and not {None, OTHERS} & tally.shards.keys():
        for shard_id, shard in shard_map.items():
            if not shard.open and shard_id not in tally.shards:
                yield Finding("not-captured", shard_id, detail="no record of this shard was in the input")


def write_report(
    output: Location, tally: Tally, shard_map: ShardMap, findings: Sequence[Finding] = (), **about: Any
) -> tuple[Facts, list[Finding]]:
    """Writes the report of ``tally`` to ``output``. ``about``: options of `report_facts`. Returns it."""
    facts, shown = report_facts(tally, shard_map, findings, generated=datetime.now(timezone.utc), **about)
    (output / "summary.txt").write(summary_text(facts, shown).encode())
    (output / "summary.json").write(json.dumps(facts, indent=2).encode() + b"\n")
    (output / "report.html").write(report_page(facts, shown).encode())
    return facts, shown
