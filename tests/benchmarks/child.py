"""What a command costs as a process of its own, from nothing to its exit."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple


class Child(NamedTuple):
    """``cpu``: seconds, with the processes that it started; ``mebibytes``: the peak of its memory."""

    status: int
    seconds: float
    cpu: float
    mebibytes: int
    output: bytes


def run(command: Sequence[str]) -> Child:
    with TemporaryFile() as output:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, cwd=Path(__file__).parents[2])
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        cpu, mebibytes = used.ru_utime + used.ru_stime, used.ru_maxrss // 1024
        return Child(process.returncode, seconds, cpu, mebibytes, output.read())
