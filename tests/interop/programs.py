"""How to start the conformance programs of published packages: those of the library, and two more."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kpl_codec.conformance import adapter_command
from kpl_codec.node_packages import find_node, install

#: In the order of the table in spec/09-conformance.md.
NAMES = ("kpl_codec", "aws_kinesis_agg", "aiokpl", "aws-kinesis-agg")
NPM_VERSION = "4.2.7"


def command(name: str) -> list[str]:
    """The package of npm is installed into a cache."""
    if name == "aiokpl":
        return [sys.executable, "-m", f"{__package__}.program_aiokpl"]
    if name == "aws-kinesis-agg":
        node = find_node()
        package = install("aws-kinesis-agg", NPM_VERSION, node)
        return [*node.command, str(Path(__file__).with_name("program_npm.js")), os.fspath(package)]
    return adapter_command(name)
