"""The validate job: files -> tasks -> an engine that runs them -> results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ..captures import Location, plan
from ..shards.shard_map import ShardMap
from .repaired import Repaired, read_copied, read_logs
from .results import Validation, finish, prepare_output
from .task import Job, clear, discard, gather, pack, work_folder


class Engine(Protocol):
    """Runs the tasks of a job."""

    @property
    def cores(self) -> int:
        """How many tasks run in parallel."""

    def check_format(self, output_format: str) -> None:
        """Raises FormatError if user records cannot be written in that format."""

    def run(self, job: Job, output_format: str) -> None:
        """Runs `Job.run` for every task; for other formats than Parquet runs `Job.rows` and writes the
        rows."""

    def progress(self) -> tuple[int, int]:
        """The number of finished tasks and of all known tasks."""


def run_knowing_repairs(run: Callable[[Repaired], None], output: Location, known: Repaired) -> None:
    """Calls ``run`` with the user records known to be repaired. If copies in the records show further repairs
    that may concern dropped user records, calls it again with these."""
    run(known)
    found = known | read_copied(work_folder(output) / "copies")
    tally = gather(work_folder(output))
    if found != known and any(kcl == "dropped" for *_, kcl in tally.groups):
        clear(output)
        run(found)


def validate(
    inputs: Sequence[str],
    shard_map: ShardMap,
    output: str | Location,
    *,
    engine: Engine,
    output_format: str = "parquet",
    title: str | None = None,
    repairs: Sequence[str] = (),
    task_bytes: int | None = None,
) -> Validation:
    """Check everything under ``inputs`` and write the results under ``output``, which must be empty.

    ``repairs``: folders of earlier results whose repair was applied after ``inputs`` were captured.

    Raises InputError, OutputError and FormatError before it starts, and an engine's error if that fails; then
    ``output`` is as empty as before. Errors inside the input are never raised; they become findings.
    """
    folder = Location(output)
    pieces = plan(inputs)
    if task_bytes is None:
        # Enough tasks to keep all cores busy until the end, each of 2 to 64 MiB.
        total = sum(piece.stop - piece.start for piece in pieces)
        task_bytes = max(2 << 20, min(64 << 20, total // (4 * engine.cores)))
    engine.check_format(output_format)
    prepare_output(folder)
    # SPK-43: "Both engines MUST give the same user records, findings, counts, summary and report."
    job = Job(pack(pieces, task_bytes=task_bytes), shard_map, folder, read_logs(repairs))

    def run(repaired: Repaired) -> None:
        engine.run(replace(job, repaired=repaired), output_format)

    try:
        run_knowing_repairs(run, folder, job.repaired)
    except BaseException:
        discard(folder)
        raise
    return finish(folder, shard_map, inputs=inputs, title=title)
