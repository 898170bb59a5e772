"""Import time, memory peak, and how time grows with the input; each in fresh processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]

_IMPORT = "import time; t = time.process_time(); import {0}; print(time.process_time() - t)"
# The peak of the process while it works, over what it holds before, the input in both forms included;
# columns are used and let go, batch by batch.
_MEMORY = """
from tests.benchmarks.corpora import corpus
from tests.benchmarks.tasks import KplCodec, AwsKinesisAgg
def kib(what):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(what))
small = corpus({corpus!r}, 0.1)
list({contender}(small).tasks()[{task!r}](small))  # imports
c = corpus({corpus!r}, {mib})
contender = {contender}(c)
run = contender.tasks()[{task!r}]
if {task!r}.startswith("columns"):
    contender.batch()
open("/proc/self/clear_refs", "w").write("5")  # the peak starts from here
before = kib("VmRSS")
rows = sum(getattr(made, 'num_rows', 1) for made in run(c))
print((kib("VmHWM") - before) * 1024 / c.size)
"""
_GROWTH = """
import time
from collections import deque
from tests.benchmarks.corpora import corpus
from tests.benchmarks.tasks import KplCodec
c = corpus("a", {mib})
run = KplCodec(c).tasks()[{task!r}]
deque(run(c), maxlen=0)
times = []
for _ in range({rounds}):
    start = time.process_time(); deque(run(c), maxlen=0); times.append(time.process_time() - start)
print(sorted(times)[len(times) // 2] / c.size * 2**20 * 1000)
"""


def _run(code: str, *, pure: bool = False) -> float:
    environment = {**os.environ, **({"KPL_CODEC_PURE": "1"} if pure else {})}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    return float(done.stdout)


def show() -> None:
    print("\nimport time, CPU ms (median of 5 fresh processes, alternating)")
    names = ("kpl_codec", "kpl_codec (pure)", "aws_kinesis_agg.deaggregator", "aiokpl.aggregation", "kinesis")
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(5):
        for name in names:
            times[name].append(_run(_IMPORT.format(name.split()[0]), pure="pure" in name) * 1000)
    ours = median(times["kpl_codec"])
    for name in names:
        print(f"  {name:32}{median(times[name]):8.1f}  {median(times[name]) / ours:.2f} x ours")

    print("\nmemory peak beyond the input, in times the input's size (16 MiB)")
    for corpus in "ad":
        for task in ("each object", "objects", "columns"):
            for contender, pure in (("KplCodec", False), ("KplCodec", True), ("AwsKinesisAgg", False)):
                if task == "columns" and contender == "AwsKinesisAgg":
                    continue
                code = _MEMORY.format(corpus=corpus, mib=16, contender=contender, task=task)
                label = contender + (" (pure)" if pure else "")
                print(f"  {corpus}  {task:12}{label:20}{_run(code, pure=pure):6.2f}")

    print("\nCPU ms per MiB of corpus a, as the input grows (linear: all the same)")
    print(f"  {'':26}" + "".join(f"{mib:>9} MiB" for mib in (1, 4, 16, 64)))
    for task in ("each object", "objects", "columns", "columns+placement"):
        for pure in (False, True):
            cells = [
                _run(_GROWTH.format(mib=mib, task=task, rounds=max(1, 16 // mib)), pure=pure)
                for mib in (1, 4, 16, 64)
            ]
            label = task + (" (pure)" if pure else "")
            print(f"  {label:26}" + "".join(f"{cell:13.2f}" for cell in cells), flush=True)
