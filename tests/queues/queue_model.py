"""botocore's own model of queues, from a boto3 that is installed beside this environment's.

botocore 1.44 came with queues, and aiobotocore's newest release needs an older one. So boto3 1.44 is
installed into a folder of its own. Its model validates what goes over the wire; and the environment's own
botocore, also under aiobotocore, has the operations of queues when it finds that model (what AWS_DATA_PATH is
for).
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import botocore.session
from botocore.loaders import Loader
from botocore.model import ServiceModel

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


@cache
def model_of(folder: Path) -> ServiceModel:
    """Kinesis as that boto3 knows it."""
    return ServiceModel(loader_of(folder).load_service_model("kinesis", "service-2"), "kinesis")


@cache
def loader_of(folder: Path) -> Loader:
    return Loader(extra_search_paths=[str(folder / "botocore" / "data")])


def client_of(folder: Path, endpoint_url: str) -> Any:
    """A client of this environment's boto3 that knows queues."""
    session = botocore.session.Session()
    session.register_component("data_loader", loader_of(folder))
    return boto3.Session(botocore_session=session, region_name="us-east-1").client(
        "kinesis", endpoint_url=endpoint_url, aws_access_key_id="x", aws_secret_access_key="x"
    )
