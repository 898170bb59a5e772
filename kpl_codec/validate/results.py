"""Folders of results, as `validate` and `audit` write them: whole or not there, never taken for input, and
read again only if they are whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
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
    there twice, or of another run or folder; also what `Location.read` raises."""
    # ACC-4: "Whoever reads results again MUST compare them with summary.json first, and refuse those that
    # have lost a part, have one too many, or have one of another run."
    if (results / "summary.json").kind() is None:
        reason = "summary.json is not there: the job did not end, or a part of its results was taken away"
        raise InputError(code="not-whole", path=results.path, reason=reason)
    with readable(results.path):
        try:
            summary = json.loads((results / "summary.json").read())
            run, said = str(summary["run"]), dict(summary["rows"])
        except (ValueError, TypeError, KeyError):
            reason = "summary.json is damaged, or names no run, as before version 1.0"
            raise InputError(code="not-whole", path=results.path, reason=reason) from None
        for folder in folders:
            rows, wrong = _rows_of(_parquet_files(results / folder), f"{run}/{folder}".encode())
            if not wrong and rows != said.get(folder):
                wrong = f"{folder}/ has {plural(rows, 'row')}, and summary.json says {said.get(folder)}"
            if wrong:
                raise InputError(code="not-whole", path=results.path, reason=wrong)


def _rows_of(files: Iterable[Location], mark: bytes) -> tuple[int, str]:
    """How many rows the files of a folder have, and what is wrong with one of them. Each names itself in its
    metadata: ``mark`` (its run and folder), then which part it is."""
    rows, seen = 0, dict[bytes, Location]()
    for file in files:
        system, inner = file.filesystem()
        with system.open_input_file(inner) as source:
            head = pq.read_metadata(source)
        rows += head.num_rows
        part = (head.metadata or {}).get(RESULTS, b"")
        if not part.startswith(mark):
            return rows, f"{file.name} is not a part of this folder and of the run that summary.json names"
        if (other := seen.setdefault(part, file)) != file:
            return rows, f"{file.name} is the same part as {other.name}"
    return rows, ""


def _parquet_files(folder: Location) -> Iterator[Location]:
    """The files that `Location.rows` reads, whatever they are called: also those of its folders."""
    for name in folder.files():
        if name.name.startswith((".", "_")):
            continue
        if name.name.endswith(".parquet") or name.kind() != "folder":
            yield name
        else:
            yield from _parquet_files(name)
