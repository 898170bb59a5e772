"""Builds the harness with clang, and runs it: the code under test has sanitizers, the rest is fast."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from .. import corpus

REPOSITORY = Path(__file__).parents[2]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
#: Comparisons are not traced: only libFuzzer's own mutations would use what they say.
COUNTERS = ["-fsanitize=fuzzer-no-link", "-fno-sanitize-coverage=trace-cmp"]

NEEDED = {
    "clang++": "clang",
    "protoc": "protobuf-compiler",
    "/usr/include/google/protobuf/message_lite.h": "libprotobuf-dev",
}


def missing() -> list[str]:
    """The Debian packages that have to be installed first."""
    return sorted(
        {package for what, package in NEEDED.items() if not (shutil.which(what) or Path(what).exists())}
    )


def build(scratch: Path, *, root: Path = REPOSITORY) -> Path:
    """The harness, in ``scratch``, of the tree at ``root``. Raises CalledProcessError."""
    scratch.mkdir(parents=True, exist_ok=True)
    sources = root / "fuzz" / "native"
    flags = [*SANITIZERS, *COUNTERS]
    program = scratch / "native"

    def run(*command: object) -> None:
        subprocess.run([str(part) for part in command], cwd=scratch, check=True)

    schema = (root / "spec" / "kpl.proto").read_text()
    lite = schema.replace('syntax = "proto2";', 'syntax = "proto2";\noption optimize_for = LITE_RUNTIME;')
    (scratch / "kpl.proto").write_text(lite)
    run("protoc", "--cpp_out=.", "kpl.proto")
    run("clang", "-O2", "-g", "-Wall", "-Wextra", "-Werror", *flags, "-c", sources / "subject.c")
    parts = [*(sources / f"{name}.cc" for name in ("oracle", "harness", "mutator")), scratch / "kpl.pb.cc"]
    for part in parts:
        run("clang++", "-std=c++17", "-O2", "-g", "-Wall", "-Wextra", "-I", scratch, "-c", part)
    objects = ["subject.o", *(f"{part.stem}.o" for part in parts)]
    run("clang++", "-fsanitize=fuzzer", *SANITIZERS, *objects, "-lprotobuf-lite", "-o", program)
    return program


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
