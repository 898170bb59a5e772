"""Does the Spark pipeline scale? `python -m tests.benchmarks.spark_scale [MILLIONS ...]`

For 1, 4 and 16 million user records, in one session, interleaved:

    identity     mapInArrow that hands the batches of Kinesis records on: what Spark itself costs
    deaggregate  strict                                                  (all into the noop sink)
    verify       report, with placement
      to Parquet   the same, written by Spark
      and back     mapInArrow that hands those user records on, written by Spark: what it takes at least
                   to get them through Spark and into Parquet
    validate     the whole job: Parquet in, user records and findings as Parquet out, written by the tasks

Says the time of each as a ratio to identity on the same data, time per million user records (linear: the
same in every row), and the most memory a Python worker ever had (flat: the same in every row). Times are of
this machine on this day; only the ratios travel.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kpl_codec.cli.generate import Recipe
from kpl_codec.spark import deaggregate, local_session, verify
from kpl_codec.spark.validate_engine import SparkEngine
from kpl_codec.validate import validate

from .engines import capture

#: Of one million user records; the more there are, the fewer.
ROUNDS = 3


def _status(pid: str) -> tuple[int, int, str]:
    """Parent, peak resident memory in MiB and command of a process."""
    fields = dict(
        line.split(":", 1) for line in Path("/proc", pid, "status").read_text().splitlines() if ":" in line
    )
    command = Path("/proc", pid, "cmdline").read_text()
    return int(fields["PPid"]), int(fields.get("VmRSS", "0 kB").split()[0]) // 1024, command


class WorkerMemory(threading.Thread):
    """Watches the Python workers of this process's Spark; ``peak`` is the most one of them had, in MiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.1):
            processes: dict[int, tuple[int, int, str]] = {}
            for entry in Path("/proc").iterdir():
                with contextlib.suppress(OSError, KeyError):
                    if entry.name.isdigit():
                        processes[int(entry.name)] = _status(entry.name)
            for pid, (parent, size, command) in processes.items():
                while parent in processes and parent != os.getpid():
                    parent = processes[parent][0]
                if parent == os.getpid() and pid != parent and "pyspark" in command and "java" not in command:
                    self.peak = max(self.peak, size)

    def __enter__(self) -> WorkerMemory:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()


def identity(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def measure(run: Callable[[], None]) -> tuple[float, int]:
    with WorkerMemory() as memory:
        started = time.perf_counter()
        run()
        return time.perf_counter() - started, memory.peak


def main(millions: list[float]) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="kpl-codec-scale-"))
    spark = local_session("scale", memory="3g", log_file=str(scratch / "spark.log"))
    print("millions what           seconds  s / million  x identity    MiB")
    try:
        for million in millions:
            recipe = Recipe(int(million * 1_000_000), shard_count=8)
            given = str(scratch / f"capture-{million}")
            capture(Path(given), recipe)
            shard_map = recipe.shard_map()
            records = spark.read.parquet(given)

            def whole(given: str = given, shard_map: Any = shard_map) -> None:
                shutil.rmtree(scratch / "out", ignore_errors=True)
                validate([given], shard_map, str(scratch / "out"), engine=SparkEngine(spark))

            def into_nothing(df: Any) -> Callable[[], None]:
                return lambda: df.write.format("noop").mode("overwrite").save()

            def to_parquet(df: Any) -> None:
                df.write.mode("overwrite").parquet(str(scratch / "parquet"))

            def and_back() -> None:
                users = spark.read.parquet(str(scratch / "parquet"))
                again = users.mapInArrow(identity, users.schema)
                again.write.mode("overwrite").parquet(str(scratch / "again"))

            runs: dict[str, Callable[[], None]] = {
                "identity": into_nothing(records.mapInArrow(identity, records.schema)),
                "deaggregate": into_nothing(deaggregate(records)),
                "verify": into_nothing(verify(records, shard_map)),
                "  to Parquet": partial(to_parquet, verify(records, shard_map)),
                "  and back": and_back,
                "validate": whole,
            }
            if million > 4:  # they take most of the time, and are known by then
                del runs["  to Parquet"], runs["  and back"]
            taken: dict[str, list[float]] = {name: [] for name in runs}
            memory = dict.fromkeys(runs, 0)
            for _ in range(max(1, round(ROUNDS / million))):
                for name, run in runs.items():
                    seconds, peak = measure(run)
                    taken[name].append(seconds)
                    memory[name] = max(memory[name], peak)
            base = statistics.median(taken["identity"])
            for name, all_seconds in taken.items():
                seconds = statistics.median(all_seconds)
                print(
                    f"{million:>8} {name:<12} {seconds:>9.2f} {seconds / million:>12.2f} "
                    f"{seconds / base:>11.1f} {memory[name]:>6}",
                    flush=True,
                )
            for name in (given, "parquet", "again", "out"):
                shutil.rmtree(scratch / name, ignore_errors=True)
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("millions", nargs="*", type=float, default=[1.0, 4.0, 16.0])
    main(parser.parse_args().millions)
