"""The newest boto3, beside this environment's: aiobotocore's newest release needs an older one."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "1.44.5"


def newest_boto3(cache_folder: Path) -> Path:
    """The folder of boto3 and what it needs; installed if it is not there. Many processes may call this."""
    target = cache_folder / VERSION
    with open(cache_folder / f"{VERSION}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=cache_folder) as scratch:
                folder = Path(scratch) / "boto3"
                packages = [f"boto3=={VERSION}", f"botocore=={VERSION}"]
                command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), *packages]
                subprocess.run(command, check=True, timeout=300, capture_output=True)
                os.rename(folder, target)
    return target
