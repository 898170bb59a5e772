"""The property suite at scale: the laws of tests/, with many more examples, until a budget is spent.

    python -m fuzz.properties --seconds 600 --directory DIR     round after round, until time is up
    python -m fuzz.properties --seconds 600 --directory DIR tests/format tests/spec/test_laws.py

Every round has another seed and ``--examples`` examples a law; a round begun is finished. ``--directory``
keeps Hypothesis's example database: a law that failed is tried with the failing example first, in the next
round and the next run. Exit code 1 after the first round with a failure.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
LAWS = (
    "tests/format",
    "tests/shards",
    "tests/deaggregation",
    "tests/spec/test_laws.py",
    "tests/spec/test_strategies.py",
)

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
