"""Shells complete commands, options and choices."""

from __future__ import annotations

import os
import subprocess
import sys

from kpl_codec.cli.main import COMMANDS


def completed(typed: str) -> set[str]:
    """What a shell would offer after ``typed``."""
    environment = {
        **os.environ, "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "bash",
        "COMP_LINE": typed, "COMP_POINT": str(len(typed)), "COMP_TYPE": "9",
    }  # fmt: skip
    code = "import os; os.dup2(1, 8); from kpl_codec.cli.main import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return {word.strip() for word in run.stdout.split("\n")} - {""}


def test_commands_options_and_choices() -> None:
    assert completed("kpl-codec ") >= COMMANDS.keys()
    assert completed("kpl-codec va") == {"validate"}
    assert "--fail-on" in completed("kpl-codec validate --")
    assert completed("kpl-codec validate --fail-on ") == {"critical", "error", "warning", "info"}
    assert {"hash", "hot"} <= completed("kpl-codec keys h")
