"""Runs the harness."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from .. import corpus

#: A frame of 300 bytes holds all the format has; what is larger is larger, not other.
LONGEST = 1000
ENVIRONMENT = {
    "ASAN_OPTIONS": "malloc_context_size=0:quarantine_size_mb=8:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def seeds() -> list[bytes]:
    """Frames of the vectors, and what earlier runs kept."""
    return list(dict.fromkeys([*corpus.kept("native"), *corpus.datas()]))


def write(directory: Path, inputs: Iterable[bytes]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(inputs):
        (directory / f"{number:05d}").write_bytes(data)
    return directory


def run(
    program: Path,
    directory: Path,
    inputs: list[bytes],
    *,
    seconds: float = 0,
    count: int = 0,
    seed: int = 0,
    quiet: bool = False,
) -> bool:
    """Fuzz from ``inputs`` on, for so many seconds or inputs; whether something was found. ``directory``
    gets what was found (crash-*), the corpus (`grown`) and the seeds."""
    grown = directory / "grown"
    grown.mkdir(parents=True, exist_ok=True)
    command = [
        str(program), f"-max_len={LONGEST}", "-timeout=120", "-rss_limit_mb=1024", "-print_final_stats=1",
        "-detect_leaks=0", "-reload=0", f"-artifact_prefix={directory}/", f"-seed={seed}",
        str(grown), str(write(directory / "seeds", inputs)),
    ]  # fmt: skip
    command += [f"-max_total_time={max(1, int(seconds))}"] if seconds else []
    command += [f"-runs={count}"] if count else []
    output = subprocess.DEVNULL if quiet else None
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, stdout=output, stderr=output)
    return done.returncode != 0


def merge(program: Path, directory: Path) -> list[bytes]:
    """The fewest inputs of the corpus, with the seeds, that reach what all of it reaches."""
    kept = directory / "kept"
    kept.mkdir()
    folders = [directory / "grown", directory / "seeds"]
    command = [str(program), "-merge=1", f"-max_len={LONGEST}", str(kept), *map(str, folders)]
    subprocess.run(command, env={**os.environ, **ENVIRONMENT}, check=True, stderr=subprocess.DEVNULL)
    return [path.read_bytes() for path in kept.iterdir()]
