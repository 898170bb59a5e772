"""``kpl-codec conformance``: the vectors of the specification against any program.

kpl-codec conformance                                 every adapter that runs here
kpl-codec conformance --adapter aiokpl --failures     one, with what it got wrong
kpl-codec conformance -- ./my-codec --json-lines      any command that speaks spec/09-conformance.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import conformance
from ..conformance import ADAPTERS, ProgramError, Result, adapter_command, vector_files
from ..conformance.running import load
from ..errors import KplError
from ..pictures.labels import camel_keys, safe
from ..pictures.terminal import note, show_json, write
from .source import UsageError, seconds


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
        "--timeout", type=seconds, default=20.0, help="seconds to wait for an answer (default: 20)"
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
            note(f"kpl-codec: {name}: left out: {_first_line(error)}")
    return commands


def _run_all(args: argparse.Namespace) -> list[Result]:
    """The results. Programs that could not run are named. Raises OSError, UsageError, KplError."""
    try:
        vectors = [v for v in load(vector_files(args.vectors)) if not args.kind or v["kind"] in args.kind]
    except ValueError as error:
        raise UsageError(reason=f"{args.vectors}: no vectors: {error}") from None
    if not vectors:
        raise UsageError(reason=f"no vectors in {args.vectors or 'the published ones'}")
    results = []
    for command in _commands(args):
        try:
            results.append(conformance.run(command, vectors, timeout=args.timeout))
        except ProgramError as error:
            if args.command or args.adapter:
                raise
            note(f"kpl-codec: left out: {_first_line(error)}")
    return results


def _first_line(error: KplError) -> str:
    """The error without the traceback of a program that could not start."""
    return str(error).strip().splitlines()[0][:200]


def run(args: argparse.Namespace) -> int:
    """0: all conform. 1: some do not. Raises KplError, OSError for a program or file that cannot be used."""
    results = _run_all(args)
    if args.json:
        show_json([_facts(result) for result in results])
    else:
        write(conformance.table(results) + "\n")
        if args.failures:
            for result in results:
                for judgement in result.judgements:
                    if judgement.grade != "pass":
                        said = f"{judgement.vector_id}: {judgement.grade}: {judgement.detail}"
                        write(safe(f"{result.name}: {said}") + "\n")
    return 0 if all(result.conforms for result in results) else 1


def _facts(result: Result) -> dict[str, object]:
    return {
        "name": result.name,
        "version": result.version,
        "unsupported": result.unsupported,
        "grades": dict(result.grades),
        "judgements": [camel_keys(judgement._asdict()) for judgement in result.judgements],
    }
