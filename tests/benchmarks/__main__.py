"""Every speed claim: `python -m tests.benchmarks`, on a quiet machine with nothing beside it.

First the codec, in one table, then the other `PARTS`. Each line of the table is one task on one corpus.
Contenders are processes of their own that take turns, a round each; the median of their CPU times counts, and
only as a ratio to another contender's in the same run. What they make is compared by digest before that.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

import kpl_codec
from kpl_codec.captures import Location

from ..kcl import real_kcl
from . import corpora
from .captures import write_generated

ROOT = Path(__file__).parents[2]
#: The figures of the last whole run.
RESULTS = ROOT / "spec/benchmarks.json"
TASKS = (
    "objects drained",
    "objects kept",
    "objects+placement",
    "kcl policy",
    "report",
    "columns",
    "columns+placement",
)
OURS = ("kpl_codec", "kpl_codec (pure)")


class Contender:
    """A worker process that answers one question at a time."""

    def __init__(self, name: str, directory: Path) -> None:
        """``directory``: has the corpora."""
        command, folder = [sys.executable, "-m", "tests.benchmarks.worker", str(directory)], ROOT
        if name == "KCL":
            command, folder = real_kcl.command("BenchmarkWorker", str(directory)), real_kcl.SOURCES
        environment = {**os.environ, "KPL_CODEC_PURE": "1" if "pure" in name else "0"}
        self.name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment
        )

    def ask(self, corpus: str, task: str, *, check: bool = False) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"corpus": corpus, "task": task, "check": check}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} died in {task} of corpus {corpus}")
        return json.loads(line)  # type: ignore[no-any-return]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def write(corpus: corpora.Corpus, directory: Path) -> None:
    """``.frames``, for the KCL: for each frame 4 bytes of length, big-endian, then the frame."""
    (directory / corpus.name).write_bytes(pickle.dumps(corpus))
    frames = b"".join(len(frame).to_bytes(4, "big") + frame for frame in corpus.frames)
    (directory / f"{corpus.name}.frames").write_bytes(frames)


def measure(everyone: list[Contender], corpus: str, task: str, rounds: int) -> dict[str, float]:
    """Median CPU seconds by contender. The KCL has one task, which is compared with all of ours."""
    asked = {contender.name: "kcl policy" if contender.name == "KCL" else task for contender in everyone}
    made = {
        contender.name: contender.ask(corpus, asked[contender.name], check=True)["digest"]
        for contender in everyone  # the first turn warms up
    }
    if len(set(made.values())) > 1:
        raise SystemExit(f"{task} of corpus {corpus}: contenders disagree: {made}")
    times: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(rounds):
        for contender in everyone:
            times[contender.name].append(contender.ask(corpus, asked[contender.name])["seconds"])
    return {name: median(seconds) for name, seconds in times.items()}


def show(cells: Sequence[str]) -> None:
    task, corpus, *figures = cells
    print(f"{task:18}  {corpus:6}", *(figure.rjust(7) for figure in figures), sep="  ", flush=True)


def of_codec(options: argparse.Namespace) -> list[dict[str, object]]:
    """CPU seconds by task, corpus and contender. Compiled and pure: million user records a second, and how
    many times faster than the KCL."""
    print(f"{options.mib} MiB a corpus, medians of {options.rounds} alternating rounds, CPU time; faster by:")
    print(f"{'':26}  {'compiled':-^16}  {'pure Python':-^16}")
    show(["task", "corpus", "M/s", "KCL", "M/s", "KCL"])
    measured: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as scratch:
        everyone = [Contender(name, Path(scratch)) for name in (*OURS, "KCL")]
        for name in options.corpora:
            corpus = corpora.corpus(name, options.mib)
            write(corpus, Path(scratch))
            for task in options.tasks.split(","):
                times = measure(everyone, name, task, options.rounds)
                measured.append({"task": task, "corpus": name, "seconds": times})
                cells = [task, name]
                for ours in OURS:
                    cells.append(f"{corpus.user_records / times[ours] / 1e6:.2f}")
                    cells.append(f"{times['KCL'] / times[ours]:.2f}")
                show(cells)
        for contender in everyone:
            contender.close()
    return measured


def of_producers(options: argparse.Namespace) -> dict[str, float]:
    from . import producers  # here and below: what is imported takes a second

    found = producers.measure(2_000 if options.quick else 20_000, 1 if options.quick else 5)
    for name, taken in found.items():
        print(f"{name:28} {taken:8.1f} µs of CPU a user record")
    return found


def of_spark(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    from . import spark_functions

    return spark_functions.main("g" if options.quick else "abg", 2 if options.quick else 256, options.rounds)


def of_validate(options: argparse.Namespace) -> dict[str, float]:
    """The whole command, from nothing to its exit, with the processes that it starts."""
    user_records = 20_000 if options.quick else 1_000_000
    seconds, cpu = [], []
    with tempfile.TemporaryDirectory() as folder:
        write_generated(user_records, Location(f"{folder}/made").make_folder())
        sides = [f"{folder}/made/capture", "--shards", f"{folder}/made/shards.json"]
        command = [sys.executable, "-m", "kpl_codec.cli.main", "validate", *sides, "--output"]
        for number in range(options.rounds):
            before = os.times()
            done = subprocess.run([*command, f"{folder}/{number}"], cwd=ROOT, stdout=subprocess.DEVNULL)
            after = os.times()
            assert done.returncode in (0, 1)
            seconds.append(after.elapsed - before.elapsed)
            cpu.append(sum(after[2:4]) - sum(before[2:4]))
    print(f"validate {user_records:,} user records: {median(seconds):.2f} s, {median(cpu):.2f} s of CPU")
    return {"user records": user_records, "seconds": round(median(seconds), 2), "cpu": round(median(cpu), 2)}


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "codec": of_codec,
    "producers": of_producers,
    "spark": of_spark,
    "validate": of_validate,
}


def conditions(options: argparse.Namespace) -> dict[str, object]:
    """When and where the results were measured, and of what: a page that shows them says it."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = (row for row in cpuinfo.read_text().splitlines() if row.startswith("model name"))
        processor = next((row.partition(":")[2].strip() for row in models), processor)
    commit = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return {
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "commit": subprocess.run(commit, capture_output=True, text=True, check=False).stdout.strip(),
        "machine": f"{os.cpu_count()} cores of {processor}, {platform.system()}",
        "python": platform.python_version(),
        "version": kpl_codec.__version__,
        "mib": options.mib,
        "rounds": options.rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m tests.benchmarks", description=__doc__
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="of what to measure: %(default)s")
    parser.add_argument("--corpora", default="abcdfg", help=f"of {''.join(corpora.NAMES)}")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all of it runs")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the figures as JSON, too")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := set(parts) - PARTS.keys():
        parser.error(f"no part {min(unknown)!r}")
    options.mib, options.rounds = (1, 1) if options.quick else (8, 5)
    found = conditions(options)
    for name in parts:
        print(f"\n{name}", flush=True)
        found["measured" if name == "codec" else name] = PARTS[name](options)
    if options.results:
        options.results.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
