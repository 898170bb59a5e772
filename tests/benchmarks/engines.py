"""`kpl-codec validate` as a user starts it, on the local engine and on Spark.

    python -m tests.benchmarks.engines [MILLIONS ...]

For each number of million user records (default: 0.001 and 1) both commands take turns, each a process of its
own from nothing to its exit. Says seconds, CPU seconds of all processes, and the ratio. Times are of this
machine on this day; only the ratios travel.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from kpl_codec.captures import Location
from kpl_codec.cli.generate import Recipe, write_capture

from .child import Child, run

ENGINES = ("local", "spark")
ROUNDS = 3


def measure(scratch: Path, engine: str) -> Child:
    shutil.rmtree(scratch / "out", ignore_errors=True)
    inputs = [str(scratch / "in"), "--shards", str(scratch / "shards.json")]
    command = [sys.executable, "-m", "kpl_codec.cli.main", "validate", "--quiet", "--engine", engine]
    child = run([*command, *inputs, "--output", str(scratch / "out")])
    assert child.status == 0
    return child


def main(millions: list[float]) -> None:
    """Prints a line for each size and engine."""
    print("millions     MB engine    seconds       CPU  x local")
    for million in millions:
        scratch = Path(tempfile.mkdtemp(prefix="kpl-codec-engines-"))
        try:
            recipe = Recipe(round(million * 1_000_000))
            (scratch / "shards.json").write_text(recipe.shard_map().to_json())
            (scratch / "in").mkdir()
            write_capture(recipe, Location(scratch / "in"))
            size = sum(file.stat().st_size for file in (scratch / "in").iterdir())
            runs: dict[str, list[Child]] = {engine: [] for engine in ENGINES}
            for _ in range(max(1, round(ROUNDS / max(million, 1)))):
                for engine in ENGINES:
                    runs[engine].append(measure(scratch, engine))
            base = median(child.seconds for child in runs["local"])
            for engine, children in runs.items():
                seconds = median(child.seconds for child in children)
                cpu = median(child.cpu for child in children)
                ratio = seconds / base
                print(f"{million:>8} {size >> 20:>6} {engine:<8} {seconds:>8.2f} {cpu:>9.2f} {ratio:>8.2f}")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main([float(argument) for argument in sys.argv[1:]] or [0.001, 1])
