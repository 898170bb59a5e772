"""What short commands take, from nothing to their exit: CPU seconds, the least and the median.

    python -m tests.benchmarks.first_answers [RUNS]

`cat` and `validate` read three user records, from a Parquet file. "with pandas" is the same without
`kpl_codec.without_pandas`: then pyarrow imports pandas, where it is installed.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = {
    "--help": "--help",
    "explain": "explain naive-aggregator",
    "cat": "cat in/capture",
    "validate": "validate in/capture --shards in/shards.json --output out",
}
_WAYS = {"": "entry()", ", with pandas": "main.hide_pandas = lambda: None; entry()"}


def once(way: str, line: str, folder: Path) -> float:
    """CPU seconds of one process."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    program = f"from kpl_codec.cli import main; from kpl_codec.cli.main import entry; {way}"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", program, *line.split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(runs: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        once("entry()", "generate --user-records 3 --output in", folder)
        lines = {
            f"{command}{told}": (way, line)
            for command, line in COMMANDS.items()
            for told, way in _WAYS.items()
            if not told or command in ("cat", "validate")
        }
        found: dict[str, list[float]] = {told: [] for told in lines}
        for _ in range(runs):
            for told, (way, line) in lines.items():
                found[told].append(once(way, line, folder))
    for told, seconds in found.items():
        print(f"{told:22} {min(seconds):.2f} {statistics.median(seconds):.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
