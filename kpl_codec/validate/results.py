"""Folders of results, as `validate` and `audit` write them: whole or not there, never taken for input, and
read again only if they are whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pyarrow.parquet as pq

from ..captures.files import RESULTS as RESULTS
from ..captures.files import InputError, Location, readable
from ..errors import KplError
from ..rendering.labels import plural, refusal


class OutputError(KplError, ValueError):
    """The output folder ``path`` cannot be used."""

    code: Literal["is-a-file", "not-empty", "not-writable"]
    path: str
    reason: str = "the folder is not empty (name another folder, or remove this one)"
    text = "cannot write to {path}: {reason}"
    concerns = "Whoever runs the command. Nothing was written."
    todo = "Name a new or empty folder: results of two runs must not mix."


def check_output(output: Location, keep: str = "") -> None:
    """Raises OutputError if there is something in the folder already, but for a file ``keep``."""
    # SPK-20: "An output folder that is not empty MUST be refused: results of two runs must not mix."
    kind = output.kind()
    if kind == "file":
        raise OutputError(
            code="is-a-file", path=output.path, reason="it is a file (name a new or empty folder)"
        )
    names = {file.name for file in output.files()} if kind == "folder" else set()
    if names - {keep}:
        raise OutputError(code="not-empty", path=output.path)


def left_behind(output: Location) -> list[Location]:
    """The hidden folders that jobs with this ``output`` write in, or have left when they were killed."""
    if not output.is_local:
        return []
    folder, _, name = output.path.rpartition("/")
    names = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{32}}")
    return [Location(f"{folder}/{one}") for one in (Location(folder or "/")).hidden() if names.fullmatch(one)]


@contextmanager
def new_results(output: Location, *, keep: str = "") -> Iterator[Location]:
    """A folder to write results in, which becomes ``output`` by one rename when the block ends. ``output``
    must be empty, or not there, but for a file ``keep``, which stays. After a failure, or if the process is
    killed, there is nothing in ``output``. An object store cannot rename: there the results are written in
    place, and `plan` knows by ``_work`` that they are half-written. Raises OutputError."""
    check_output(output, keep)
    folder = output.unfinished() if output.is_local else output
    # SPK-42: "A job that ends before its time MUST leave nothing where results stand in a local folder; a
    # worker that is lost MUST be an error, and none outlives the job."
    try:
        with _writable(output):
            folder.make_folder()
        yield folder
        with _writable(output):
            if folder != output:
                if keep and (output / keep).kind() is not None:
                    (output / keep).move_to(folder / keep)
                folder.move_to(output)
    except BaseException:
        for file in [folder] if folder != output else output.files():
            if file.name != keep:
                file.delete()
        raise


@contextmanager
def _writable(output: Location) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(code="not-writable", path=output.path, reason=refusal(error)) from None


def check_whole(results: Location, *folders: str) -> None:
    """Raises InputError (not-whole) if the Parquet files in ``folders`` ("findings", "user-records") of a
    folder of results have not as many rows as ``summary.json`` says, or if there is none, or if a part is
    there twice or of another run; also what `Location.read` raises."""
    # ACC-4: "Whoever reads results again MUST compare them with summary.json first, and refuse those that
    # have lost a part, have one too many, or have one of another run."
    if (results / "summary.json").kind() is None:
        reason = "summary.json is not there: the job did not end, or a part of its results was taken away"
        raise InputError(code="not-whole", path=results.path, reason=reason)
    parts: list[tuple[Location, str]] = []
    with readable(results.path):
        try:
            said = dict(json.loads((results / "summary.json").read())["rows"])
        except (ValueError, TypeError, KeyError):
            raise InputError(code="not-whole", path=results.path, reason="summary.json is damaged") from None
        for folder in folders:
            rows = _add_parts([*_parquet_files(results / folder)], parts)
            if rows != said.get(folder):
                reason = f"{folder}/ has {plural(rows, 'row')}, and summary.json says {said.get(folder)}"
                raise InputError(code="not-whole", path=results.path, reason=reason)
    if (mixed := _mixed(parts)) is not None:
        raise InputError(code="not-whole", path=results.path, reason=mixed)


def _add_parts(files: list[Location], parts: list[tuple[Location, str]]) -> int:
    """Add files and what they say which part they are; returns how many rows they have."""
    rows = 0
    for file in files:
        system, inner = file.filesystem()
        with system.open_input_file(inner) as source:
            head = pq.read_metadata(source)
        parts.append((file, (head.metadata or {}).get(RESULTS, b"").decode()))
        rows += head.num_rows
    return rows


def _mixed(parts: list[tuple[Location, str]]) -> str | None:
    """What is wrong with parts of results: each is there once, and all of a folder, and of its fellow beside
    it, are of one run."""
    of_run: tuple[str, Location] | None = None
    seen: dict[str, Location] = {}
    for file, mark in parts:
        if not mark:  # of an older version
            continue
        if (other := seen.setdefault(mark, file)) != file:
            return f"{file.name} is the same part as {other.name}"
        run = mark.partition("/")[0]
        first, its_file = of_run = of_run or (run, file)
        if run != first:
            return f"{file.name} and {its_file.name} are parts of two runs"
    return None


def _parquet_files(folder: Location) -> Iterator[Location]:
    """The files that `Location.rows` reads, whatever they are called: also those of its folders."""
    for name in folder.files():
        if name.name.startswith((".", "_")):
            continue
        if name.name.endswith(".parquet") or name.kind() != "folder":
            yield name
        else:
            yield from _parquet_files(name)
