"""Builds the harness with clang: the code under test with sanitizers, the rest as fast as it goes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

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
