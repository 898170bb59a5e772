"""``kpl-codec conformance``: the vectors of the specification against any program."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from .. import conformance
from ..conformance import ADAPTERS, ProgramError, Result, adapter_command, export, vector_files
from ..conformance.running import badge, load
from ..errors import KplError
from ..pictures.labels import camel_keys, plural, safe
from ..pictures.terminal import note, show_json, write
from .options import add, add_aws, add_shared
from .progress import waiting
from .source import UsageError, location_of

_EPILOG = """\
kpl-codec conformance                                 every adapter that runs here
kpl-codec conformance --adapter kpl_codec --failures  one, with what it got wrong
kpl-codec conformance -- ./my-codec --json-lines      any command that speaks spec/09-conformance.md
kpl-codec conformance --lines -- ./my-codec           ... in lines, without JSON
kpl-codec conformance --publish DIR -- ./my-codec     conformance.json and a badge, conformance.svg
kpl-codec conformance --export DIR                    the vectors as an archive that needs no Python

Exit status: 0 all conform, 1 some do not, 2 failure.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    text = "a program that answers, with its arguments, after --"
    add(parser, "command COMMAND", text, nargs="*")
    text = "a published implementation; repeatable (default: each that runs here)"
    add(parser, "--adapter", text, action="append", choices=sorted(ADAPTERS))
    add(parser, "--lines", "COMMAND speaks lines of hex instead of JSON")
    add(parser, "--timeout DURATION", "how long to wait for an answer (default: 20s)", default=20.0)
    add(parser, "--kind NAME", "only vectors of this kind; repeatable", action="append")
    add(parser, "--failures", "list every vector that did not pass")
    add_shared(parser, "--json")
    add(parser, "--publish DIR", "also write conformance.json and a badge, conformance.svg")
    add(parser, "--export DIR", "only write the vectors, for use without Python")
    add_aws(parser, kinesis=False)


def _run_all(args: argparse.Namespace) -> list[Result]:
    """The results. Programs that could not run are named. Raises OSError, UsageError, KplError."""
    vectors = [v for v in load(vector_files()) if not args.kind or v["kind"] in args.kind]
    if not vectors:
        raise UsageError(reason=f"no vector is of the kind {' or '.join(args.kind)}")
    results = []
    named = map(adapter_command, args.adapter or ADAPTERS)
    for command in [args.command] if args.command else named:
        try:
            with waiting(f"asking {command[0]} {plural(len(vectors), 'vector')}"):
                results.append(conformance.run(command, vectors, lines=args.lines, timeout=args.timeout))
        except ProgramError as error:
            if args.command or args.adapter:
                raise
            note(f"left out: {_first_line(error)}")
    return results


def _first_line(error: KplError) -> str:
    """The error without the traceback of a program that could not start."""
    return str(error).strip().splitlines()[0][:200]


def run(args: argparse.Namespace) -> int:
    """0: all conform. 1: some do not. Raises KplError, OSError for a program or file that cannot be used."""
    if args.export:
        files = export.archive()
        _write(args.export, files)
        note(f"vectors {export.version()}: {plural(len(files), 'file')} in {args.export}")
        return 0
    if args.publish:
        location_of(args.publish)  # tells whether it can be reached
    results = _run_all(args)
    if args.publish:
        if len(results) != 1:
            raise UsageError(reason="--publish is for one program: give its command, or one --adapter")
        facts = json.dumps(_facts(results[0]), indent=1) + "\n"
        badges = {"conformance.json": facts.encode(), "conformance.svg": badge(results[0]).encode()}
        _write(args.publish, badges)
    if args.json:
        show_json(list(map(_facts, results)))
    else:
        write(conformance.table(results) + "\n")
        if args.failures:
            for result in results:
                for judgement in result.judgements:
                    if judgement.grade != "pass":
                        said = f"{judgement.vector_id}: {judgement.grade}: {judgement.detail}"
                        write(safe(f"{result.name}: {said}") + "\n")
    return 0 if all(result.conforms for result in results) else 1


def _write(folder: str, files: Mapping[str, bytes]) -> None:
    """Raises OSError, InputError."""
    place = location_of(folder).make_folder()
    for name, data in files.items():
        (place / name).write(data)


def _facts(result: Result) -> dict[str, object]:
    return {
        "name": result.name,
        "version": result.version,
        "vectors": export.version(),
        "fields": result.fields,
        "unsupported": result.unsupported,
        "grades": dict(result.grades),
        "judgements": [camel_keys(judgement._asdict()) for judgement in result.judgements],
    }
