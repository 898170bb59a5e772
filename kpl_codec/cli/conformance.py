"""``kpl-codec conformance``: the vectors of the specification against any program.

kpl-codec conformance                                 every adapter that can be had here
kpl-codec conformance --adapter aiokpl --failures     one, with what it got wrong
kpl-codec conformance -- ./my-codec --json-lines      any command that speaks spec/09-conformance.md
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .. import conformance
from ..conformance import ADAPTERS, ProgramError, Result, adapter_command, table, vector_files
from ..conformance.running import load
from ..errors import KplError

HELP = "Run the specification's vectors against this or any other implementation."


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "command",
        nargs="*",
        metavar="COMMAND",
        help="a program that speaks spec/09-conformance.md (after --)",
    )
    parser.add_argument(
        "--adapter", action="append", choices=sorted(ADAPTERS), help="a published implementation; repeatable"
    )
    parser.add_argument(
        "--vectors", type=Path, help="a directory of vector files (default: the published ones)"
    )
    parser.add_argument("--kind", action="append", help="only vectors of this kind; repeatable")
    parser.add_argument("--failures", action="store_true", help="list every vector that did not pass")
    parser.add_argument("--json", action="store_true", help="the judgements as JSON instead of a table")
    parser.add_argument(
        "--timeout", type=float, default=20.0, help="seconds to wait for an answer (default: 20)"
    )


def _commands(args: argparse.Namespace) -> list[list[str]]:
    if args.command:
        return [args.command]
    commands = []
    for name in args.adapter or ADAPTERS:
        try:
            commands.append(adapter_command(name))
        except KplError as error:
            if args.adapter:
                raise
            print(f"{name}: left out: {error}", file=sys.stderr)
    return commands


def _run_all(args: argparse.Namespace) -> tuple[list[Result], list[str]]:
    """The results, and the programs that could not be asked. Raises OSError, ValueError, KplError."""
    files = vector_files(args.vectors)
    vectors = [v for v in load(files) if not args.kind or v["kind"] in args.kind]
    if not vectors:
        raise ValueError(f"no vectors in {args.vectors or 'the published ones'}")
    results, unusable = [], []
    for command in _commands(args):
        try:
            results.append(conformance.run(command, vectors, timeout=args.timeout))
        except ProgramError as error:
            if args.command or args.adapter:
                raise
            unusable.append(str(error))
    return results, unusable


def run(args: argparse.Namespace) -> int:
    """0: all conform. 1: some do not. 2: a program or a file could not be used."""
    try:
        results, unusable = _run_all(args)
    except (KplError, OSError, ValueError, KeyError) as error:
        print(f"kpl-codec conformance: {error}", file=sys.stderr)
        return 2
    for text in unusable:
        print(f"left out: {text}", file=sys.stderr)
    if args.json:
        document = [
            {
                "name": result.name,
                "version": result.version,
                "unsupported": result.unsupported,
                "grades": dict(result.grades),
                "judgements": [judgement._asdict() for judgement in result.judgements],
            }
            for result in results
        ]
        print(json.dumps(document, indent=1))
    else:
        print(table(results))
        if args.failures:
            for result in results:
                for judgement in result.judgements:
                    if judgement.grade != "pass":
                        print(f"{result.name}: {judgement.vector_id}: {judgement.grade}: {judgement.detail}")
    return 0 if all(result.conforms for result in results) else 1
