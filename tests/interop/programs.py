"""How to start the programs through which published packages are asked."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kpl_codec.testing.local_kinesis import find_node, install

#: In the order of the table in section 12.3 of spec/12-implementations.md.
NAMES = ("aws_kinesis_agg", "aiokpl", "aws-kinesis-agg")
NPM_VERSION = "4.2.7"


def command(name: str) -> list[str]:
    """The package of npm is installed into a cache."""
    if name == "aws-kinesis-agg":
        package = install("aws-kinesis-agg", NPM_VERSION)
        return [find_node(), str(Path(__file__).with_name("program_npm.js")), os.fspath(package)]
    return [sys.executable, "-m", f"{__package__}.program_{name}"]
