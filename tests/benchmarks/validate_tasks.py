"""What the tasks of a validate job take, beside reading and deaggregating the same files with placement.

    python -m tests.benchmarks.validate_tasks [MILLIONS [ROUNDS]]

CPU seconds of one process, in turns, medians: reading and deaggregating (all columns); the tasks without user
records (`--no-user-records`); and with them.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kpl_codec.arrow import Deaggregator
from kpl_codec.captures import Location, plan, read_piece
from kpl_codec.cli.generate import Recipe
from kpl_codec.shards.shard_map import ShardMap
from kpl_codec.validate.task import Job, discard, make_folders, pack, work_folder

from .engines import capture


def read(job: Job) -> None:
    """Read and deaggregate what the tasks read."""
    for task in job.tasks:
        for piece in task:
            deaggregator: Deaggregator | None = None
            for batch in read_piece(piece):
                deaggregator = deaggregator or Deaggregator(batch.schema, "report", shard_map=job.shard_map)
                for _ in deaggregator.process(batch):
                    pass


def run(job: Job) -> None:
    """Do the tasks."""
    discard(job.output)
    make_folders(work_folder(job.output))
    for number in range(len(job.tasks)):
        job.run(number)


def main(millions: float, rounds: int) -> None:
    recipe = Recipe(round(millions * 1_000_000))
    shard_map: ShardMap = recipe.shard_map()
    with tempfile.TemporaryDirectory() as folder:
        capture(Path(folder, "in"), recipe)
        tasks = pack(plan([str(Path(folder, "in"))]), task_bytes=16 << 20)
        jobs = [
            Job(tasks, shard_map, Location(Path(folder, name)), user_records=name == "all")
            for name in ("read", "findings", "all")
        ]
        work: list[Callable[[Job], None]] = [read, run, run]
        taken: list[list[float]] = [[], [], []]
        for number in range(rounds + 1):
            for times, do, job in zip(taken, work, jobs, strict=True):
                begun = time.process_time()
                do(job)
                if number:
                    times.append(time.process_time() - begun)
        base, *others = (statistics.median(times) for times in taken)
        print(f"reading and deaggregating {base:.2f} s of CPU time")
        for name, seconds in zip(("without user records", "with user records"), others, strict=True):
            print(f"tasks {name} {seconds:.2f} s, {seconds / base:.2f} times")


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((float, int), [*sys.argv[1:], "1", "7"][:2], strict=True)))
