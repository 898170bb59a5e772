"""Has the Kinesis API changed since this library was last held against it? `python -m tests.service_model`.

Compares the operations and fields that the installed botocore knows with those of botocore `HELD_AGAINST`,
which pip brings into a scratch folder, and prints each difference. Exit status 1 if there is one. Somebody
then reads what is new, decides what it means for this library, and raises `HELD_AGAINST`.
"""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
import tempfile
from typing import Any

import botocore
import botocore.loaders
from botocore.model import ServiceModel

#: The botocore whose Kinesis API somebody has read whole.
HELD_AGAINST = "1.43.117"


def described(shape: Any) -> str | dict[str, str]:
    """A shape's type; of a structure its fields with their types, of an enum its values."""
    if shape.type_name == "structure":
        required = set(shape.required_members)
        return {
            name: f"{member.name}{' (required)' if name in required else ''}"
            for name, member in sorted(shape.members.items())
        }
    limits = {name: shape.metadata[name] for name in ("min", "max", "pattern") if name in shape.metadata}
    enum = getattr(shape, "enum", None)
    return " ".join([shape.type_name, *(enum or []), *(f"{name}={value}" for name, value in limits.items())])


def service_model(folder: str | None = None) -> list[str]:
    """The API as lines: each operation, and every shape by name. ``folder``: has a botocore to read it from;
    without it, the installed one."""
    paths = [f"{folder}/botocore/data"] if folder else []
    loader = botocore.loaders.Loader(extra_search_paths=paths, include_default_search_paths=not folder)
    model = ServiceModel(loader.load_service_model("kinesis", "service-2"), "kinesis")
    operations = {
        name: {
            "input": getattr(model.operation_model(name).input_shape, "name", None),
            "output": getattr(model.operation_model(name).output_shape, "name", None),
        }
        for name in model.operation_names
    }
    shapes = {name: described(model.shape_for(name)) for name in sorted(model.shape_names)}
    text = json.dumps({"operations": operations, "shapes": shapes}, indent=1, sort_keys=True)
    return text.splitlines()


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
        subprocess.run([*command, f"botocore=={HELD_AGAINST}"], check=True)
        before = service_model(folder)
    installed = botocore.__version__
    lines = list(difflib.unified_diff(before, service_model(), HELD_AGAINST, installed, "", "", 8))
    print("\n".join(lines) or f"The Kinesis API of botocore {installed} is that of {HELD_AGAINST}.")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
