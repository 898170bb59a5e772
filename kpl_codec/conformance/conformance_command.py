"""``kpl-codec conformance``: tests any program with the vectors of the specification."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from ..captures.command_inputs import location_of
from ..cli.options import Company, UsageError, add, add_aws, add_shared
from ..cli.progress import waiting
from ..findings import camel_keys
from ..rendering.labels import plural
from ..rendering.terminal import line, note, show, show_json, write
from . import export
from .grading import THIS_LIBRARY, Result, badge, by_requirement, table, vectors
from .grading import run as ask_all

EPILOG = """\
COMMAND is any program that speaks the protocol of spec/09-conformance.md.

Exit status: 0 all conform, 1 some do not, 2 failure.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    text = "the program to test, with its arguments, after -- (default: this library)"
    add(parser, "command COMMAND", text, nargs="*", type=str)
    add(parser, "--lines", "COMMAND reads and writes lines of hex instead of JSON")
    add(parser, "--timeout DURATION", "how long to wait for a response (default: 20s)", default=20.0)
    add(parser, "--kind NAME", "only vectors of this kind; repeatable", action="append")
    add(parser, "--failures", "list every vector that did not pass")
    add_shared(parser, "--json")
    add(parser, "--publish DIR", "also write conformance.json and a badge, conformance.svg")
    alone = Company(only_with=("--profile", "--role-arn"))
    add(parser, "--export DIR", "only write the vectors, for use without Python", alone)
    add_aws(parser, kinesis=False)


def run(args: argparse.Namespace) -> int:
    """The exit status: 0 if the program conforms, 1 if it does not. Raises KplError, OSError for a program or
    file that cannot be used."""
    if args.export and args.command:
        raise UsageError(reason="--export only writes the vectors: nothing is tested with it")
    if args.lines and not args.command:
        raise UsageError(reason="--lines goes with COMMAND")
    if args.export:
        folder = location_of(args.export)
        if folder.kind() == "file" or (folder.kind() == "folder" and folder.files()):
            raise UsageError(reason=f"cannot write to {args.export}: name a new or empty folder")
        files = export.archive()
        _write(args.export, files)
        note(f"vectors {export.version()}: {plural(len(files), 'file')} in {args.export}")
        return 0
    if args.publish:
        location_of(args.publish)  # raises InputError if the place cannot be reached
    selected = [vector for vector in vectors() if not args.kind or vector["kind"] in args.kind]
    if not selected:
        kinds = ", ".join(sorted({vector["kind"] for vector in vectors()}))
        raise UsageError(reason=f"no vector is of the kind {' or '.join(args.kind)}; the kinds: {kinds}")
    command = args.command or THIS_LIBRARY
    with waiting(f"asking {command[0]} {plural(len(selected), 'vector')}"):
        result = ask_all(command, selected, lines=args.lines, timeout=args.timeout)
    facts = _facts(result)
    if args.publish:
        data = (json.dumps(facts, indent=1) + "\n").encode()
        _write(args.publish, {"conformance.json": data, "conformance.svg": badge(result).encode()})
    if not result.grades:
        note(f"{result.name} was asked nothing: it knows none of the operations of these vectors")
    if args.json:
        show_json([facts])
    else:
        write(table([result]) + "\n")
        for grade in result.grades if args.failures else ():
            if grade.grade != "pass":
                detail = f": {grade.detail}" if grade.detail else ""
                show(line(f"{result.name}: {grade.vector_id}: {grade.grade}{detail}", hang=2))
        causes = by_requirement(result, selected).most_common() if args.failures else ()
        if causes:
            counts = ", ".join(f"{requirement} {number}" for requirement, number in causes)
            show(line(f"{result.name}: not passed, by requirement: {counts}", hang=2))
        elif args.failures and result.grades:
            note(f"all of {plural(len(result.grades), 'vector')} passed: there is no failure to list")
    return 0 if result.conforms else 1


def _write(folder: str, files: Mapping[str, bytes]) -> None:
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
        "counts": dict(result.counts),
        "grades": [camel_keys(grade._asdict()) for grade in result.grades],
    }
