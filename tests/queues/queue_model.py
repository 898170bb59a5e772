"""botocore's own model of queues, from a boto3 that is installed beside this environment's.

botocore 1.44 came with queues, and aiobotocore's newest release asks for less. So boto3 1.44 is installed
into a folder of its own. Its model judges what goes over the wire in both directions; and the environment's
own botocore, also under aiobotocore, speaks queues when it finds the model there (what AWS_DATA_PATH is for).
"""

from __future__ import annotations

import fcntl
import os
import re
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
    """The folder of boto3 and what it needs; installed if it is not there. Many processes may ask at once."""
    target = cache_folder / VERSION
    with open(cache_folder / f"{VERSION}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=cache_folder) as scratch:
                made = Path(scratch) / "made"
                command = [
                    sys.executable,
                    "-m",
                    "pip",
                    "install",
                    "-q",
                    "--target",
                    str(made),
                    f"boto3=={VERSION}",
                    f"botocore=={VERSION}",  # else its newest: the test that runs it names this one
                ]
                subprocess.run(command, check=True, timeout=300, capture_output=True)
                os.rename(made, target)
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


def refusal(shape: Any, value: Any, at: str = "") -> str | None:
    """Why ``value`` is none of ``shape``, by every type, required member, name, limit, pattern and enum of
    the model; None where it is one."""
    kind = shape.type_name
    python = {
        "structure": dict, "list": list, "map": dict, "string": str, "blob": bytes, "boolean": bool,
        "integer": int, "long": int,
    }  # fmt: skip
    if kind == "timestamp":
        return (
            None if hasattr(value, "utcoffset") and value.utcoffset() is not None else f"{at}: no aware time"
        )
    if not isinstance(value, python[kind]) or (kind in ("integer", "long") and isinstance(value, bool)):
        return f"{at}: {type(value).__name__}, not {kind}"
    low, high = (shape.metadata.get(name) for name in ("min", "max"))
    size = value if kind in ("integer", "long") else len(value) if hasattr(value, "__len__") else None
    if kind != "structure" and size is not None:
        if low is not None and size < low:
            return f"{at}: {size} is below {low}"
        if high is not None and size > high:
            return f"{at}: {size} is above {high}"
    if kind == "structure":
        if unknown := value.keys() - shape.members.keys():
            return f"{at}: unknown {sorted(unknown)}"
        if missing := set(shape.required_members) - value.keys():
            return f"{at}: {sorted(missing)} missing"
        inner = ((shape.members[name], item, f"{at}.{name}") for name, item in value.items())
    elif kind == "list":
        inner = ((shape.member, item, f"{at}[{index}]") for index, item in enumerate(value))
    elif kind == "map":
        inner = ((part, item, f"{at}.{key}") for key, held in value.items()
                 for part, item in ((shape.key, key), (shape.value, held)))  # fmt: skip
    else:
        pattern = shape.metadata.get("pattern")
        if pattern is not None and not re.fullmatch(pattern, value):
            return f"{at}: not of the pattern {pattern}"
        if getattr(shape, "enum", None) and value not in shape.enum:
            return f"{at}: none of {shape.enum}"
        return None
    return next((why for part, item, place in inner if (why := refusal(part, item, place)) is not None), None)
