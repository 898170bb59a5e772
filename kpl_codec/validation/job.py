"""The validate job: files -> tasks -> an engine that runs them -> results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from ..captures import is_local, plan
from ..shards.shard_map import ShardMap
from .results import Validation, finish, prepare_output
from .task import Job, pack


class Engine(Protocol):
    """Runs the tasks of a job."""

    @property
    def cores(self) -> int:
        """How many tasks run side by side."""

    def check_format(self, output_format: str) -> None:
        """Raises FormatError if user records cannot be written in that format."""

    def run(self, job: Job, output_format: str) -> None:
        """Runs `Job.run` for every task, or `Job.rows` and writes them in another format than Parquet."""

    def progress(self) -> tuple[int, int]:
        """Tasks done, and tasks known."""


def validate(
    inputs: Sequence[str],
    shard_map: ShardMap,
    output: str,
    *,
    engine: Engine,
    output_format: str = "parquet",
    title: str | None = None,
    task_bytes: int | None = None,
) -> Validation:
    """Check everything under ``inputs`` and write the results under ``output``, which must be empty.

    Raises InputError, OutputError and FormatError before anything is started. What is wrong inside the
    input is never raised, it is found.
    """
    if is_local(output):
        output = os.path.abspath(output)  # workers have folders of their own
    pieces = plan(inputs)
    if task_bytes is None:
        # Enough tasks for all cores to end together, but none below 2 or above 64 MiB.
        total = sum(piece.stop - piece.start for piece in pieces)
        task_bytes = max(2 << 20, min(64 << 20, total // (4 * engine.cores)))
    engine.check_format(output_format)
    prepare_output(output)
    # SPK-43: "Both engines MUST give the same user records, findings, counts, summary and report."
    engine.run(Job(pack(pieces, task_bytes=task_bytes), shard_map, output), output_format)
    return finish(output, shard_map, inputs=inputs, title=title)
