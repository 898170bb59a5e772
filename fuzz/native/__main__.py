"""The compiled parser, as users run it, at 10^5 inputs a second: libFuzzer, both sanitizers, and
protobuf's C++ runtime beside it, which must read the same user records or refuse as well.

    python -m fuzz.native --seconds 60
    python -m fuzz.native --inputs 100000000 --directory DIR
    python -m fuzz.native DIR/crash-...          these inputs again, nothing else
    python -m fuzz.native --defects              wire.h with a defect, each is found

What differs on purpose is the list of verdicts in oracle.h. Needs clang and protobuf's C++ library
with its compiler, and says so where they are missing. ``--keep`` adds what the run found new to
fuzz/corpora/native.txt, as few inputs as reach it. Exit code 1: something was found; 2: a tool is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .. import corpus
from . import defects
from .build import build, merge, missing, run, seeds


def main() -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="python -m fuzz.native",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--inputs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31))
    parser.add_argument("--directory", type=Path, help="for what was found and the corpus; else a scratch")
    parser.add_argument("--keep", action="store_true", help="minimise the corpus into fuzz/corpora")
    parser.add_argument("--defects", action="store_true", help="whether each of a list of defects is found")
    parser.add_argument("files", nargs="*", type=Path)
    args = parser.parse_args()
    if missing():
        print(f"fuzz.native: first install {' '.join(missing())} (apt-get install ...)", file=sys.stderr)
        return 2
    if args.defects:
        return defects.main(args.seconds or 60)
    with contextlib.ExitStack() as stack:
        directory = args.directory or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory = directory.resolve()
        program = build(directory / "build")
        if args.files:
            return subprocess.run([program, *args.files]).returncode and 1
        begun = time.monotonic()
        seconds = args.seconds or (0 if args.inputs else 60)
        found = run(program, directory, seeds(), seconds=seconds, count=args.inputs, seed=args.seed)
        print(f"seed {args.seed}, {time.monotonic() - begun:.0f} s", flush=True)
        if found:
            for path in directory.glob("*-*"):
                print(f"{path}: {path.read_bytes().hex()}")
            return 1
        if args.keep:
            corpus.keep("native", merge(program, directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
