"""Programs for this library and the published Python module, by name: how to start each."""

from __future__ import annotations

import sys

#: What each adapter speaks for.
ADAPTERS = {
    "kpl_codec": "this library",
    "aws_kinesis_agg": "awslabs' Python module (PyPI), which has to be installed beside this library",
}


def adapter_command(name: str) -> list[str]:
    """The command that starts the adapter ``name``. Raises KeyError for an unknown name."""
    ADAPTERS[name]
    return [sys.executable, "-m", f"{__package__}.program_{name}"]
