"""A foreign contender of `python -m tests.benchmarks`; its argument is the folder of the corpora."""

import subprocess
import sys
import tempfile
from pathlib import Path

from . import build

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        path = build(Path(scratch))
        sys.exit(subprocess.run(["java", "-cp", path, "OpenerWorker", *sys.argv[1:]], check=False).returncode)
