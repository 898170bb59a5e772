"""``kpl-codec conformance``: the vectors of the specification against any program.

kpl-codec conformance                                 every adapter that runs here
kpl-codec conformance --adapter kpl_codec --failures  one, with what it got wrong
kpl-codec conformance -- ./my-codec --json-lines      any command that speaks spec/09-conformance.md
kpl-codec conformance --lines -- ./my-codec           ... in lines, without JSON
kpl-codec conformance --publish DIR -- ./my-codec     conformance.json and a badge, conformance.svg
kpl-codec conformance --export DIR                    the vectors as an archive that needs no Python
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from .. import conformance
from ..conformance import ADAPTERS, ProgramError, Result, adapter_command, export, vector_files
from ..conformance.publishing import badge
from ..conformance.running import load
from ..errors import KplError
from ..pictures.labels import camel_keys, plural, safe
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
    parser.add_argument("--lines", action="store_true", help="COMMAND speaks lines of hex instead of JSON")
    parser.add_argument("--json", action="store_true", help="the judgements as JSON instead of a table")
    parser.add_argument(
        "--publish", type=Path, metavar="DIR", help="also write conformance.json and conformance.svg, a badge"
    )
    parser.add_argument(
        "--export", type=Path, metavar="DIR", help="write the vectors into DIR, for use without Python"
    )
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
            results.append(conformance.run(command, vectors, lines=args.lines, timeout=args.timeout))
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
    if args.export:
        files = export.export(args.export)
        note(f"vectors {export.version()}: {plural(len(files), 'file')} in {args.export}")
        return 0
    results = _run_all(args)
    if args.publish:
        _publish(results, args)
    if args.json:
        show_json([_facts(result, args) for result in results])
    else:
        write(conformance.table(results) + "\n")
        if args.failures:
            for result in results:
                for judgement in result.judgements:
                    if judgement.grade != "pass":
                        said = f"{judgement.vector_id}: {judgement.grade}: {judgement.detail}"
                        write(safe(f"{result.name}: {said}") + "\n")
    return 0 if all(result.conforms for result in results) else 1


def _publish(results: list[Result], args: argparse.Namespace) -> None:
    """Write the result of one program, and its badge. Raises UsageError, OSError."""
    directory: Path = args.publish
    if len(results) != 1:
        raise UsageError(reason="--publish is for one program: give its command, or one --adapter")
    directory.mkdir(parents=True, exist_ok=True)
    (result,) = results
    facts = json.dumps(_facts(result, args), indent=1) + "\n"
    (directory / "conformance.json").write_text(facts, encoding="utf-8")
    (directory / "conformance.svg").write_text(badge(result), encoding="utf-8")


def _facts(result: Result, args: argparse.Namespace) -> dict[str, object]:
    return {
        "name": result.name,
        "version": result.version,
        "vectors": None if args.vectors else export.version(),
        "fields": result.fields,
        "unsupported": result.unsupported,
        "grades": dict(result.grades),
        "judgements": [camel_keys(judgement._asdict()) for judgement in result.judgements],
    }
