"""The Spark tests on other versions of PySpark, each in a virtual environment of its own.

    python -m tests.spark.source.versions                        # the oldest to the newest we work with
    python -m tests.spark.source.versions 4.0.5 --keep venvs     # environments stay there for the next time

With 3.5 what needs no data source: the DataFrame functions, generate and validate on files. Needs
Python 3.11; takes about two minutes a version, and 1 GB of disk. Exit status 0 if all tests passed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[3]
VERSIONS = ["3.5.9", "4.0.5", "4.1.4", "4.2.1"]
FILES = [
    "tests/spark/test_functions.py",
    "tests/captures",
    "tests/validate/test_job.py",
]
#: What needs the data source.
STREAMS = [
    "tests/spark/validate/test_follow.py",
    "tests/spark/source/test_datasource.py",
]


def environment(folder: Path, version: str) -> Path:
    """A Python with that PySpark and what the tests import; kpl_codec itself is taken from this checkout."""
    python = folder / version / "bin" / "python"
    if not python.exists():
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        needed = [*extras["dependencies"], "pytest-timeout", "aws-kinesis-agg", "six", "setuptools"]
        for extra in ("spark", "aws", "testing"):
            needed += extras["optional-dependencies"][extra]
        subprocess.run([sys.executable, "-m", "venv", folder / version], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", f"pyspark=={version}", *needed], check=True)
    return python


def run(folder: Path, version: str) -> bool:
    """Whether the tests pass; what they print is shown."""
    print(f"PySpark {version}", flush=True)
    python = environment(folder, version)
    files = FILES if version < "4" else FILES + STREAMS
    return not subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--tb=short", *files],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},  # for the workers
        check=False,
    ).returncode


def main() -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the environments here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kpl-codec-versions-") as scratch:
        passed = {version: run((args.keep or Path(scratch)).resolve(), version) for version in args.versions}
    for version, sound in passed.items():
        print(f"PySpark {version}: {'passed' if sound else 'FAILED'}")
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
