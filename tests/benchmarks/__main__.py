"""Every speed claim: `python -m tests.benchmarks`, on a quiet machine with nothing beside it.

First the codec, in one table, then the parts of `parts.py`. Each line of the table is one task on one corpus.
Contenders are processes of their own that take turns, a round each; the median of their CPU times counts, and
only as a ratio to another contender's in the same run. What they make is compared by digest before that.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

import kpl_codec

from ..kcl import real_kcl
from . import corpora
from .parts import PARTS
from .tasks import CONTENDERS

ROOT = Path(__file__).parents[2]
#: The figures of the last whole run, and the page that says when it was and of what.
RESULTS, PAGE = ROOT / "spec/benchmarks.json", Path(__file__).with_name("README.md")
OF_RESULTS = r"`spec/benchmarks\.json` is of [-\d]+, commit [-\w]+"
TASKS = (
    *("objects drained", "objects kept", "objects+placement", "kcl policy", "report"),
    *("columns", "columns+placement", "encode"),
)
#: Whose time stands for a task that a contender does not have: columns are compared with objects.
STANDS_FOR = {
    "objects drained": "objects",
    "objects kept": "objects",
    "kcl policy": "objects+placement",
    "report": "objects+placement",
    "columns": "objects",
    "columns+placement": "objects+placement",
}


class Contender:
    """A worker process that answers one question at a time."""

    def __init__(
        self, name: str, command: list[str], environment: dict[str, str], folder: Path = ROOT
    ) -> None:
        """``folder``: the process's working folder."""
        self.name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
            env={**os.environ, **environment},
        )  # fmt: skip

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


def contenders(directory: Path, foreign: dict[str, str], names: list[str]) -> list[Contender]:
    """Of ``names``: ours, the limit and the KCL; and ``foreign`` ones: a command by name."""
    started = [Contender(name, [*shlex.split(foreign[name]), str(directory)], {}) for name in foreign]
    for name in filter(names.__contains__, CONTENDERS):
        command = [sys.executable, "-m", "tests.benchmarks.worker", name, str(directory)]
        started.append(Contender(name, command, {"KPL_CODEC_PURE": "1"} if "pure" in name else {}))
    if "KCL" in names:
        command = real_kcl.command("BenchmarkWorker", str(directory))
        started.append(Contender("KCL", command, {}, real_kcl.SOURCES))
    return started


def write(corpus: corpora.Corpus, directory: Path) -> None:
    (directory / corpus.name).write_bytes(pickle.dumps(corpus))
    (directory / f"{corpus.name}.frames").write_bytes(
        b"".join(len(frame).to_bytes(4, "big") + frame for frame in corpus.frames)
    )


def measure(everyone: list[Contender], corpus: corpora.Corpus, task: str, rounds: int) -> dict[str, float]:
    """Median CPU seconds by contender, of those that have the task (or what stands for it)."""
    asked: dict[str, str] = {}
    made: dict[str, str] = {}
    for contender in everyone:
        for candidate in (task, STANDS_FOR.get(task, task)):
            answer = contender.ask(corpus.name, candidate, check=True)  # the first turn warms up
            if "unsupported" not in answer:
                asked[contender.name] = candidate
                if answer["digest"] and task != "encode":
                    made[contender.name] = answer["digest"]
                break
    if len(set(made.values())) > 1:
        raise SystemExit(f"{task} of corpus {corpus.name}: contenders disagree: {made}")
    times: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(rounds):
        for contender in everyone:
            if contender.name in asked:
                times[contender.name].append(contender.ask(corpus.name, asked[contender.name])["seconds"])
    return {name: median(seconds) for name, seconds in times.items()}


def line(task: str, corpus: corpora.Corpus, times: dict[str, float], others: list[str]) -> list[str]:
    """Compiled and pure: million user records a second, and how many times faster than each other one."""
    cells = [task, corpus.name]
    for ours in ("kpl_codec", "kpl_codec (pure)"):
        took = times.get(ours)
        cells.append(f"{corpus.user_records / took / 1e6:.2f}" if took else "-")
        for other in others:
            cells.append(f"{times[other] / took:.2f}" if took and times.get(other) else "-")
    return cells


#: Whom we are compared with: the names are the heads of their columns, too.
OTHERS = ("limit", "KCL")


def show(cells: list[str]) -> None:
    widths = [18, 6, *[7] * (len(cells) - 2)]
    print(
        "  ".join(
            cell.ljust(w) if i < 2 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
        ),
        flush=True,
    )


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
    parser.add_argument("--mib", type=float, default=8, help="size of each corpus in MiB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--corpora", default="abcdfg", help=f"of {''.join(corpora.NAMES)}")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument(
        "--parts", default=",".join(["codec", *PARTS]), help="of what to measure: %(default)s"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all of it runs")
    parser.add_argument(
        "--contender",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="one of your own: see README.md",
    )
    everyone_else = ",".join(["kpl_codec (pure)", *OTHERS])
    parser.add_argument(
        "--beside", default=everyone_else, help="whom to measure beside kpl_codec: %(default)s"
    )
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the figures as JSON, too")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := set(parts) - {"codec", *PARTS}:
        parser.error(f"no part {min(unknown)!r}")
    about = conditions(options)
    foreign = dict(given.split("=", 1) for given in options.contender)
    names = ["kpl_codec", *options.beside.split(",")]
    heads = {name: name[:7] for name in (*OTHERS, *foreign) if name in (*names, *foreign)}
    if options.quick:
        options.mib, options.rounds = 1, 3
    measured = codec(options, foreign, names, heads) if "codec" in parts else []
    found: dict[str, Any] = {}
    for name in filter(PARTS.__contains__, parts):
        print(f"\n{name}", flush=True)
        found[name] = PARTS[name](options.quick)
    if options.results:
        about |= {"mib": options.mib, "rounds": options.rounds}
        options.results.write_text(json.dumps({**about, "measured": measured, **found}, indent=1) + "\n")
        if options.results.resolve() == RESULTS:
            PAGE.write_text(re.sub(OF_RESULTS, of_results(about), PAGE.read_text()))


def of_results(about: Mapping[str, object]) -> str:
    return f"`spec/benchmarks.json` is of {about['date']}, commit {about['commit']}"


def codec(
    options: argparse.Namespace, foreign: dict[str, str], names: list[str], heads: dict[str, str]
) -> list[dict[str, object]]:
    """The table of tasks, corpora and contenders: CPU seconds."""
    print(
        f"{options.mib:g} MiB a corpus, medians of {options.rounds} alternating rounds, CPU time; faster by:"
    )
    wide = 9 * len(heads) + 7
    print(f"{'':26}  {'compiled':-^{wide}}  {'pure Python':-^{wide}}")
    show(["task", "corpus", *2 * ["M/s", *heads.values()]])
    measured: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        everyone = contenders(directory, foreign, names)
        try:
            for name in options.corpora:
                corpus = corpora.corpus(name, options.mib)
                write(corpus, directory)
                for task in options.tasks.split(","):
                    times = measure(everyone, corpus, task, options.rounds)
                    show(line(task, corpus, times, list(heads)))
                    measured.append({"task": task, "corpus": name, "seconds": times})
        finally:
            for contender in everyone:
                contender.close()
    return measured


if __name__ == "__main__":
    main()
