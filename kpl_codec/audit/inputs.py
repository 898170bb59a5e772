"""Reads all files of one side of an audit, each by its form, which is known by its content: Parquet, a ledger
or a log with ledger lines, a table. What else there is names nothing, or is a hole (AUD-21)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import pyarrow.parquet as pq

from ..captures import InputError, Location, readable
from ..captures.files import HIDDEN, LEFT_OUT, NO_FILE, NOT_A_FILE, RESULTS, UNFINISHED
from ..findings import Finding
from ..ledger.ledger import SUFFIX
from ..ledger.ledger_rows import Row
from ..rendering.labels import plural
from .ledger_lines import LedgerBook, Origin
from .sources import (
    Cut,
    Gap,
    Holes,
    InputFile,
    ReadProgress,
    bytes_now,
    digest_of_file,
    files_of,
    lines_of,
    loaded,
    may_name,
    open_file,
)
from .tables import Batch, Refused, batches_of, csv_rows, json_rows, parquet_batches

_RESULTS_HEAD: Final = 1 << 10
#: What JSON and a page of results begin with.
_RESULTS_TEXT: Final = re.compile(
    rb'\A\s*\{\s*"(?:%b|summaryVersion)":|<meta name="generator" content="kpl_codec ' % RESULTS
)
#: Columns that only findings have; older ones do not say whose they are.
_FINDINGS_COLUMNS: Final = {"kind", "severity", "detail"}
_NO_FORM: Final = (
    "it is no ledger, and its name not that of a table (.parquet .csv .jsonl .json, .gz): not read"
)
_PUT_TABLE: Final = (
    "a table of what was put has no end, so nobody knows that it is whole: write a ledger, with "
    "Ledger(PLACE).writer(STREAM).put(...)"
)
_RESULTS: Final = "these are results of kpl-codec: name ledgers, or tables of what was handled"
_COPY: Final = "the same bytes as {} of its folder, a copy or a batch that was handled twice: counted once"
_SHRUNK: Final = "it had {} when it was listed, and has {:,} now: it was cut while it was read"
#: Sentences before the names of inputs that are left out.
EMPTY: Final = "there are no rows in"
_LEFT_OUT: Final = f"left out, as are {LEFT_OUT}:"
_NOTHING: Final = "no ledger and no table, and nothing in it names a user record:"

#: Takes the rows of a table.
TakeTable = Callable[[str, Batch], None]


@dataclass
class Side:
    """What was read of one side. ``is_put``: whether a sequence number is one that was put, where that is
    known. ``take``: takes tables; None where they are refused. ``unread``: why a file cannot be read at
    all. ``rows``: how many rows each file had, by its path. ``copies``: findings on files that are
    copies."""

    holes: Holes
    progress: ReadProgress
    is_put: Callable[[str], bool] | None = None
    take: TakeTable | None = None
    unread: dict[str, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    copies: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.book = LedgerBook(self.holes)

    def read(self, paths: Iterable[str]) -> Iterator[tuple[str, Origin, list[Row]]]:
        """The rows of the ledgers: file, whose they are, rows. Raises InputError for a path that is not
        there."""
        paths = [*paths]
        self._named = {Location(path).path for path in paths}
        files = files_of(paths)
        self._sizes = Counter((file.folder, file.size) for file in files)
        self._parts: dict[tuple[str, bytes], str] = {}
        for file in files:
            self.rows[file.place.path] = 0
            # AUD-36: "Every byte of the input MUST be read, be named as a hole, or be known to name no user
            # record."
            try:
                with readable(file.place.path):
                    file = loaded(file)
                    for origin, rows in self._read(file):
                        self.rows[file.place.path] += len(rows)
                        yield file.name, origin, rows
                    if file.size > 0 and (now := bytes_now(file)) < file.size:
                        self.holes.add(
                            file.name, _SHRUNK.format(plural(file.size, "byte"), now), kind="bytes"
                        )
            except (InputError, Refused) as error:
                why = (error.reason or error.describe()) if isinstance(error, InputError) else str(error)
                self.unread[file.name] = why
                self._refuse(file, why)
            self.progress.read += max(file.size, 0)

    def _read(self, file: InputFile) -> Iterator[tuple[Origin, list[Row]]]:
        lower = file.name.lower()
        if file.size == NO_FILE:
            self.holes.add(file.name, NOT_A_FILE)
        elif file.size == HIDDEN and (
            any(map(UNFINISHED.fullmatch, file.place.path.split("/"))) or file.place.kind() != "file"
        ):
            # Results, or a file of them, that were never finished; a pipe, which is not opened.
            self.progress.note(_LEFT_OUT, file.name)
        elif file.size and (lower.endswith(".csv.metadata") or _is_results(file)):
            if file.place.path in self._named:
                raise Refused(_RESULTS)
            self.progress.note(_LEFT_OUT, file.name)
        elif file.size == HIDDEN:
            if _is_parquet(file) or may_name(lines_of(file), self.is_put):
                why = "left out, because it or its folder is hidden or holds results: name the file itself"
                self.holes.add(file.name, why)
            else:
                self.progress.note(_LEFT_OUT, file.name)
        elif not file.size and SUFFIX in lower:
            self.holes.add(file.name, "the file is empty")
        elif not file.size:
            self.progress.note(EMPTY, file.name)
        elif _is_parquet(file):
            self._table(file, parquet_batches(file))
        elif (form := _form_of(lower)) is not None and not _has_mark(file):
            rows = form(file.name, lines_of(file), self.holes, self._may_be_put)
            self._table(file, batches_of(rows))
        else:
            headers = self.book.headers
            yield from self.book.read(file.name, lines_of(file))
            if self.book.headers == headers:
                damage = (hole.why for hole in self.holes if hole.file == file.name)
                self._refuse(file, next(damage, _NO_FORM))

    def _may_be_put(self, number: str) -> bool:
        return self.is_put is None or self.is_put(number)

    def _table(self, file: InputFile, batches: Iterator[Batch]) -> None:
        rows, holes = 0, len(self.holes)
        # AUD-40: "Of tables in one folder that have the same bytes one MUST count, and the others MUST be
        # reported."
        if self._sizes[file.folder, file.size] > 1:
            first = self._parts.setdefault((file.folder, digest_of_file(file)), file.name)
            if first != file.name:
                detail = _COPY.format(first)
                self.copies.append(Finding(kind="audit-twice", file=file.name, detail=detail))
                return
        for batch in batches:
            rows += len(batch.numbers)
            self.rows[file.place.path] = rows
            # AUD-35: "A table of what was put MUST be refused: it has no end, so nobody knows that it is
            # whole."
            if self.take is None:
                raise Refused(_PUT_TABLE)
            self.take(file.name, batch)
        if not rows and len(self.holes) == holes:
            self.progress.note(EMPTY, file.name)
        elif not rows:
            self.unread[file.name] = next(hole.why for hole in self.holes if hole.file == file.name)

    def _refuse(self, file: InputFile, why: str) -> None:
        """Note a file that is not read: a hole, unless it names nothing."""
        # AUD-21: "What cannot be read of a ledger or a table MUST be reported with its file, and the row
        # where it is one; the rest MUST be read, and what it may have named be called unknown, not missing."
        try:
            names = _is_parquet(file) or may_name(lines_of(file), self.is_put)
            # (A table of which the header and the end are lost.)
            is_table = _form_of(file.name.lower()) is not None
            names = names or (is_table and any(isinstance(line, Cut) for line in lines_of(file)))
        except (InputError, OSError):
            names = True
        if names:
            self.holes.add(file.name, why)
            self.unread[file.name] = why
        elif file.name not in self.unread:
            self.progress.note(_NOTHING, file.name)


def _is_parquet(file: InputFile) -> bool:
    if file.name.lower().endswith(".parquet"):
        return True
    with open_file(file) as source:
        return bool(source.read(4) == b"PAR1")


def _form_of(name: str) -> Any:
    """What reads the rows of a table in text, by its name in lower case; None for what is no table."""
    if ".csv" in name:
        return csv_rows
    return json_rows if ".json" in name or ".ndjson" in name else None


def _has_mark(file: InputFile) -> bool:
    """Whether the file has lines of a ledger."""
    return any(b"kpl_ledger" in line for line in lines_of(file) if not isinstance(line, Gap))


def _is_results(file: InputFile) -> bool:
    """Whether the file is of the results of kpl-codec, by its own words."""
    if _is_parquet(file):
        with open_file(file) as source:
            schema = pq.read_schema(source)
        return RESULTS in (schema.metadata or {}) or {*schema.names} >= _FINDINGS_COLUMNS
    lines = (line for line in islice(lines_of(file), 8) if not isinstance(line, Gap))
    head = b"".join(lines)[:_RESULTS_HEAD]
    # (A log may begin with what a command has printed.)
    return _RESULTS_TEXT.search(head) is not None and not _has_mark(file)
