"""Programs for published implementations, by name: how to start each.

The packages are the published ones. Those from PyPI have to be installed beside this library; the one
from npm is installed into a cache by `kpl_codec.node_packages`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..node_packages import find_node, install

#: What each adapter speaks for.
ADAPTERS = {
    "kpl_codec": "this library",
    "aws_kinesis_agg": "awslabs' Python module (PyPI)",
    "aiokpl": "aiokpl (PyPI)",
    "aws-kinesis-agg": "awslabs' Node.js module (npm), checksums on",
}

NPM_VERSION = "4.2.7"


def adapter_command(name: str) -> list[str]:
    """The command that starts the adapter ``name``.

    Raises KeyError for an unknown name, LocalKinesisError where there is no Node or no npm package.
    """
    ADAPTERS[name]
    if name == "aws-kinesis-agg":
        node = find_node()
        package = install("aws-kinesis-agg", NPM_VERSION, node)
        return [*node.command, os.fspath(Path(__file__).with_name("program_npm.js")), os.fspath(package)]
    return [sys.executable, "-m", f"{__package__}.program_{name}"]
