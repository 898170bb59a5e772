"""`kpl-codec COMMAND ...`: finds the command's module and runs it.

A command module has ``HELP: str``, ``configure(parser) -> None`` and ``run(args) -> int``. Exit status:
0 clean, 1 findings, 2 failure (bad input, bad usage, something missing on the machine), 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from .. import __version__
from ..errors import KplError

CLEAN, FINDINGS, FAILURE, INTERRUPTED = 0, 1, 2, 130

#: Command -> module. Modules that are not there (a part not installed) are not offered.
COMMANDS = {
    "demo": "kpl_codec.cli.demo",
    "validate": "kpl_codec.cli.validate",
    "repair": "kpl_codec.cli.repair",
    "inspect": "kpl_codec.cli.inspect",
    "shards": "kpl_codec.cli.shards",
    "keys": "kpl_codec.cli.keys",
    "generate": "kpl_codec.cli.generate",
    "conformance": "kpl_codec.cli.conformance",
}
#: What to install when an import fails: module -> extra.
EXTRAS = {
    "pyspark": "spark-local",
    "pyarrow": "spark-local",
    "pandas": "spark-local",
    "numpy": "spark-local",
    "boto3": "aws",
    "botocore": "aws",
    "rich": "cli",
    "hypothesis": "testing",
    "aws_kinesis_agg": "demo",
}


def available() -> dict[str, str]:
    """The commands whose modules are there."""
    return {name: module for name, module in COMMANDS.items() if find_spec(module) is not None}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status. Usage errors exit with 2 (argparse)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="kpl-codec", description="Aggregated Kinesis records: read, check, repair, explain."
    )
    parser.add_argument("--version", action="version", version=f"kpl-codec {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    offered = available()
    try:
        for name, path in offered.items():
            # Only the command asked for is imported in full; help needs one line of each.
            if wanted not in (None, name) and wanted in offered:
                commands.add_parser(name)
                continue
            module = import_module(path)
            command = commands.add_parser(name, help=module.HELP, description=module.HELP)
            module.configure(command)
            command.set_defaults(run=module.run)
        args = parser.parse_args(arguments)
        # SPK-19: "Exit status 0 MUST mean that nothing was found, 1 that something was, 2 that the job could
        # not be done."
        return int(args.run(args))
    except KplError as error:
        print(f"kpl-codec: {error}", file=sys.stderr)
        return FAILURE
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        print(
            f'kpl-codec: {missing} is not installed. Try: pip install "kpl-codec[{EXTRAS[missing]}]"',
            file=sys.stderr,
        )
        return FAILURE
    except BrokenPipeError:  # the reader of our output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except OSError as error:  # no space, no permission, not a folder
        print(f"kpl-codec: {error}", file=sys.stderr)
        return FAILURE
    except KeyboardInterrupt:
        return INTERRUPTED


def entry() -> None:
    """The console script."""
    try:
        status = main()
    except Exception:  # noqa: BLE001 - a defect of ours: told in full, and never with the status of findings
        traceback.print_exc()
        status = FAILURE
    sys.exit(status)


if __name__ == "__main__":
    entry()
