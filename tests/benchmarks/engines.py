"""`kpl-codec validate` as a user starts it, on the local engine and on Spark.

    python -m tests.benchmarks.engines [MILLIONS ...]

For each number of million user records (default: 0.001 and 1) both commands take turns, each a process of its
own from nothing to its exit. Says seconds, CPU seconds of all processes, and the ratio. Times are of this
machine on this day; only the ratios travel.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kpl_codec.captures import Location
from kpl_codec.cli.generate import Recipe, write_capture

ENGINES = ("local", "spark")
ROUNDS = 3


def capture(folder: Path, recipe: Recipe) -> int:
    """Writes the records of ``recipe`` as Parquet; gives the bytes."""
    folder.mkdir()
    write_capture(recipe, Location(folder))
    return sum(file.stat().st_size for file in folder.iterdir())


def measure(scratch: Path, engine: str) -> tuple[float, float]:
    """Seconds and CPU seconds of one run."""
    shutil.rmtree(scratch / "out", ignore_errors=True)
    given = [str(scratch / "in"), "--shards", str(scratch / "shards.json")]
    command = [sys.executable, "-m", "kpl_codec.cli.main", "validate", "--quiet", "--engine", engine, *given]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run([*command, "--output", str(scratch / "out")], capture_output=True, check=False)
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu


def main(millions: list[float]) -> None:
    """Prints a line for each size and engine."""
    print("millions     MB engine    seconds       CPU  x local")
    for million in millions:
        scratch = Path(tempfile.mkdtemp(prefix="kpl-codec-engines-"))
        try:
            recipe = Recipe(round(million * 1_000_000))
            (scratch / "shards.json").write_text(recipe.shard_map().to_json())
            size = capture(scratch / "in", recipe)
            runs = {engine: [] for engine in ENGINES}
            for _ in range(max(1, round(ROUNDS / max(million, 1)))):
                for engine in ENGINES:
                    runs[engine].append(measure(scratch, engine))
            base = statistics.median(seconds for seconds, _ in runs["local"])
            for engine, taken in runs.items():
                seconds = statistics.median(seconds for seconds, _ in taken)
                cpu = statistics.median(cpu for _, cpu in taken)
                ratio = seconds / base
                print(f"{million:>8} {size >> 20:>6} {engine:<8} {seconds:>8.2f} {cpu:>9.2f} {ratio:>8.2f}")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main([float(argument) for argument in sys.argv[1:]] or [0.001, 1])
