"""The compiled twin under AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m fuzz.sanitize
    python -m fuzz.sanitize --hypothesis-profile=search --hypothesis-seed=7

Copies the repository aside, builds `_speedups` there with both sanitizers of GCC, and runs `TESTS`: every
reader and writer, frames in Arrow buffers that end where they must, buffers that lie, the threads and objects
of `fuzz.hostile`. A bad access ends it. Options go to pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
TESTS = ["tests/test_hostile.py", "tests/test_speedups.py", "tests/arrow/test_arrow.py"]
TESTS += ["tests/deaggregation/test_records.py", "tests/format/test_codec.py", "tests/spec/test_laws.py"]
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g"
FLAGS += " -DKPL_NO_SPARES"  # no table is used again: what still reads it after it was freed is seen


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        ignore = shutil.ignore_patterns(".*", "*.so", "_speedups.c", "__pycache__", "build")
        copy = shutil.copytree(REPOSITORY, Path(scratch, "copy"), ignore=ignore)
        building = {"CFLAGS": FLAGS, "LDFLAGS": FLAGS, "KPL_CODEC_REQUIRE_SPEEDUPS": "1"}
        setup = "from setuptools import setup; setup()"
        build = [sys.executable, "-c", setup, "-q", "build_ext", "--inplace"]
        subprocess.run(build, cwd=copy, env={**os.environ, **building}, check=True)
        runtimes = [
            subprocess.check_output(["gcc", f"-print-file-name=lib{name}.so"], text=True).strip()
            for name in ("asan", "ubsan")
        ]
        environment = {
            **os.environ,
            "LD_PRELOAD": " ".join(runtimes),
            # The interpreter keeps what it needs until it ends; that is no leak of ours.
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "PYTHONMALLOC": "malloc",  # an arena would hide where an object ends
            "KPL_CODEC_REQUIRE_SPEEDUPS": "1",
            "PYTHONPATH": str(copy),
        }
        tests = [sys.executable, "-m", "pytest", "--capture=sys", "-m", "not soak", *TESTS, *sys.argv[1:]]
        return subprocess.run(tests, cwd=copy, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
