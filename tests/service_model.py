"""Has the Kinesis API changed since this library was last held against it? `python -m tests.service_model`.

Compares the operations and fields that the installed botocore knows with ``service_model.json``, and prints
each difference. Exit status 1 if there is one. Somebody then reads what is new, decides what it means for
this library, and writes the file again with ``--write``. It needs botocore alone.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from pathlib import Path
from typing import Any

import botocore.session

KEPT = Path(__file__).with_suffix(".json")


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


def service_model() -> dict[str, Any]:
    """The API as the installed botocore has it: operations, and every shape by name."""
    model = botocore.session.Session().get_service_model("kinesis")
    operations = {
        name: {
            "input": getattr(model.operation_model(name).input_shape, "name", None),
            "output": getattr(model.operation_model(name).output_shape, "name", None),
        }
        for name in model.operation_names
    }
    shapes = {name: described(model.shape_for(name)) for name in sorted(model.shape_names)}
    return {"operations": operations, "shapes": shapes}


def text_of(model: dict[str, Any]) -> str:
    return json.dumps(model, indent=1, sort_keys=True) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m tests.service_model", description=__doc__
    )
    parser.add_argument("--write", action="store_true", help="keep what the installed botocore has")
    new = text_of(service_model())
    if parser.parse_args().write:
        KEPT.write_text(new)
        return 0
    lines = list(
        difflib.unified_diff(KEPT.read_text().splitlines(), new.splitlines(), "kept", "installed", "", "", 8)
    )
    print("\n".join(lines) or f"The Kinesis API of botocore {botocore.__version__} is the one that was kept.")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
