"""The property suite at scale: the laws of tests/, with many more examples, until a budget is spent.

    python -m fuzz.properties --seconds 600 --directory DIR     round after round, until time is up
    python -m fuzz.properties --seconds 600 --directory DIR tests/format tests/spec/test_laws.py

Every round has another seed and ``--examples`` examples a law; a round begun is finished. ``--directory``
keeps Hypothesis's example database: a law that failed is tried with the failing example first, in the next
round and the next run. Exit code 1 after the first round with a failure. Also checked each round: memory
linear in the input.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import kpl_codec as kpl

from .invariants import frame

REPOSITORY = Path(__file__).parents[1]
LAWS = (
    "tests/format",
    "tests/shards",
    "tests/deaggregation",
    "tests/spec/test_laws.py",
    "tests/spec/test_strategies.py",
)

#: Peak bytes of Python memory per byte of input, at most: a user record of 6 bytes is a tuple and ints.
BYTES_PER_BYTE = 400
FIXED = 1_000_000

_PLUGIN = """
import os
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
settings.register_profile(
    "scale",
    max_examples=int(os.environ["KPL_CODEC_EXAMPLES"]),
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    database=DirectoryBasedExampleDatabase(os.environ["KPL_CODEC_EXAMPLE_DATABASE"]),
)
"""


def hostile_frames(size: int) -> dict[str, bytes]:
    """Large frames that cost a careless decoder far more memory than they have bytes."""
    key = b"\x0a\x01a"
    return {
        "tiny user records": frame(key + b"\x1a\x04\x08\x00\x1a\x00" * (size // 6)),
        "one long key": frame(b"\x0a\xe8\x07" + b"k" * 1000 + b"\x1a\x04\x08\x00\x1a\x00" * (size // 6)),
        "keys alone": frame(b"\x0a\x00" * (size // 2)),
        "broken keys": frame(b"\x0a\x01\xff" * (size // 3)),
        "records without anything": frame(key + b"\x1a\x00" * (size // 2)),
        "groups": frame(key + b"\x2b\x2c" * (size // 2)),
        "open groups": frame(key + b"\x2b" * size),
        "wrong wire types": frame(b"\x08\x00" * (size // 2)),
        "tags": frame(key + b"\x1a\xfc\x7f\x08\x00\x1a\x00" + b"\x22\x02\x0a\x00" * 4094),
    }


def check_memory(size: int = 20_000) -> list[str]:
    """The hostile frames that cost more than BYTES_PER_BYTE to decode, explain or report."""
    found = []
    for name, data in hostile_frames(size).items():
        record = kpl.KinesisRecord("a", data, "1")
        for what, use in (
            ("decode", lambda data=data: kpl.decode(data)),
            ("explain", lambda data=data: kpl.explain(data)),
            ("report", lambda record=record: sum(1 for _ in kpl.deaggregate([record], "report"))),
            ("kcl", lambda record=record: sum(1 for _ in kpl.deaggregate([record], "kcl"))),
        ):
            tracemalloc.start()
            try:
                use()
            except kpl.DecodeError:
                pass
            finally:
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
            if peak > FIXED + BYTES_PER_BYTE * len(data):
                found.append(f"{what} of {name}: {peak} bytes for {len(data)}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("laws", nargs="*", default=list(LAWS))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--directory", type=Path, required=True)
    args = parser.parse_args()
    database = args.directory / "examples"
    database.mkdir(parents=True, exist_ok=True)
    (args.directory / "kpl_codec_scale.py").write_text(_PLUGIN)
    environment = {
        **os.environ,
        "KPL_CODEC_EXAMPLES": str(args.examples),
        "KPL_CODEC_EXAMPLE_DATABASE": str(database),
        "PYTHONPATH": os.pathsep.join([str(args.directory), str(REPOSITORY)]),
    }
    end = time.monotonic() + args.seconds
    examples = 0
    for seed in range(1, 10**6):
        greedy = check_memory()
        if greedy:
            print(*greedy, sep="\n")
            return 1
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "kpl_codec_scale", "-q", f"--hypothesis-seed={seed}",
             "--hypothesis-profile=scale", "--hypothesis-show-statistics", "-k", "not layers", *args.laws],
            cwd=REPOSITORY, env=environment, text=True, capture_output=True,
        )  # fmt: skip
        examples += sum(map(int, re.findall(r"(\d+) passing", done.stdout)))
        if done.returncode:
            print(done.stdout[-6000:])
            return 1
        print(f"round {seed}: clean, {examples} examples so far", flush=True)
        if time.monotonic() > end:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
