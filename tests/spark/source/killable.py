"""A process with workers below it, made to be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).parents[3]


class Killable:
    """A process and all below it; what they print goes to ``log``."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as out:
            streams: Any = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, start_new_session=True, **streams
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def tree(self) -> list[int]:
        """The process and its descendants."""
        found = [self.process.pid]
        for pid in found:
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    found += map(int, (task / "children").read_text().split())
        return found

    def workers(self) -> list[int]:
        """The Python workers that read: children of the daemon, not the daemon itself."""
        daemons = [pid for pid in self.tree() if "pyspark.daemon" in _command(pid)]
        return [pid for pid in daemons if _parent(pid) in daemons]

    def kill(self) -> None:
        """kill -9 of all of it."""
        _kill(reversed(self.tree()))
        self.process.wait()

    def wait(self, until: Callable[[], bool], timeout: float = 120) -> None:
        end = time.monotonic() + timeout
        while not until():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{self.process.poll()}: {self.log.read_text()[-4000:]}")
            time.sleep(0.02)

    def wait_death(self, timeout: float = 300) -> int:
        """How it ended. What it leaves behind is ended too."""
        below, end = self.tree(), time.monotonic() + timeout
        while self.process.poll() is None:
            if time.monotonic() > end:
                raise AssertionError(self.log.read_text()[-4000:])
            below = self.tree() if self.process.poll() is None else below
            time.sleep(0.02)
        _kill(below)
        return self.process.wait()


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
