"""The memory peak of each task, in fresh processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

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


def _run(code: str, *, pure: bool = False) -> float:
    environment = {**os.environ, **({"KPL_CODEC_PURE": "1"} if pure else {})}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    return float(done.stdout)


def show() -> None:
    print("\nmemory peak beyond the input, in times the input's size (16 MiB)")
    for corpus in "ad":
        for task in ("each object", "objects", "columns"):
            for contender, pure in (("KplCodec", False), ("KplCodec", True), ("AwsKinesisAgg", False)):
                if task == "columns" and contender == "AwsKinesisAgg":
                    continue
                code = _MEMORY.format(corpus=corpus, mib=16, contender=contender, task=task)
                label = contender + (" (pure)" if pure else "")
                print(f"  {corpus}  {task:12}{label:20}{_run(code, pure=pure):6.2f}")
