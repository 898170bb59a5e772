"""The files of an audit: lists them, and reads each once. A file is a ledger, or Parquet that names handled
user records; every other file is refused by name, unless the caller leaves it out.

    for item in read(file): ...     # Member, HandledRows or LostPart"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, NamedTuple

from ..captures import InputError, Location, plan, readable
from ..captures.files import HIDDEN, LEFT_OUT, NO_FILE, NOT_A_FILE
from ..captures.other_forms import other_form
from ..ledger.ledger import SUFFIX
from ..rendering.labels import plural
from .ledger_reader import GZIP, NoLedger, read_ledger
from .lost_parts import LostPart, LostParts
from .parquet_reader import HandledRows, NoTable, read_parquet
from .writers import Member, Writers

InputSide = Literal["produced", "handled"]
Item = Member | HandledRows | LostPart
_PUT_TABLE: Final = (
    "a table of what was put, which has no end, so nobody knows that it is whole: write a ledger, with "
    "Ledger(PLACE).writer(STREAM).put(...)"
)
_HIDDEN: Final = f"{LEFT_OUT} are no input; if a producer has written it, rename it"
#: Where Delta Lake and Hudi keep which files are of a table.
_VERSIONS: Final = re.compile(r"(.*?)/(_delta_log|\.hoodie)/", re.DOTALL)
_OLD_FILES: Final = (
    "a table of Delta Lake or Hudi, whose folder still has files that are no part of it: write its rows "
    "elsewhere, as spark.table(NAME).write.parquet(FOLDER) does"
)


class RefusedFile(Exception):
    """A file that is neither a ledger nor a table of handled user records: what it is, and what makes one of
    it where there is a way; FILE stands for its name."""


class InputFile(NamedTuple):
    """A file of an audit. ``name``: the path that was given, and what lies below it. ``size``: in bytes, or
    `NO_FILE` or `HIDDEN`."""

    place: Location
    name: str
    size: int
    side: InputSide


@dataclass
class ReadProgress:
    """Bytes of the files that were read, and of all of them."""

    read: int = 0
    size: int = 0

    def mebibytes(self) -> tuple[int, int]:
        """The same in MiB."""
        return self.read >> 20, -(-self.size >> 20)


@dataclass
class InputAccount:
    """What was read of one side. ``rows``: how many rows each file had, by name. ``empty``: files with
    nothing in them. ``left_out``: files that were not read, by the words that say why. ``refused``: what is
    wrong with files that cannot be read as they are."""

    files: list[InputFile] = field(default_factory=list)
    lost: LostParts = field(default_factory=LostParts)
    writers: Writers = field(default_factory=Writers)
    rows: dict[str, int] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def read(self, progress: ReadProgress) -> Iterator[tuple[str, Member | HandledRows]]:
        """The members and tables of all files, each with the name of its file; what is lost is noted. Of a
        member that was read before nothing is given."""
        for file in self.files:
            rows, found = 0, False
            # AUD-36: "Every file of the input MUST be read to its end, be refused, or be left out by the
            # caller; what of it cannot be read MUST be named."
            try:
                for item in read(file):
                    found = True
                    if isinstance(item, LostPart):
                        self.lost.add(item)
                    elif isinstance(item, HandledRows):
                        rows += len(item.sub)
                        yield file.name, item
                    elif self.writers.add(item):
                        rows += len(item.rows)
                        yield file.name, item
            except RefusedFile as refused:
                self.refused[file.name] = str(refused)
                continue
            self.rows[file.name] = rows
            if not found:
                self.empty.append(file.name)
            progress.read += max(file.size, 0)


def account_of(paths: Sequence[str], side: InputSide, leave_out: Sequence[str]) -> InputAccount:
    """The files under ``paths``, each once; opens none. ``leave_out``: patterns of names or paths. Raises
    InputError."""
    account = InputAccount()
    begins = {Location(path).path: path.rstrip("/") or path for path in paths}
    for place, size in {Location(piece.path): piece.size for piece in plan(paths)}.items():
        begin = max((one for one in begins if place.path.startswith(one)), key=len, default="")
        name = begins.get(begin, "") + place.path[len(begin) :]
        if any(
            fnmatchcase(text, pattern) for pattern in leave_out for text in (place.name, name, place.path)
        ):
            account.left_out.setdefault("left out by --leave-out:", []).append(name)
        elif (versions := _VERSIONS.match(name)) is not None:
            account.refused[versions[1]] = _OLD_FILES
        elif size == HIDDEN and side == "handled":
            account.left_out.setdefault(f"left out, as are {LEFT_OUT}:", []).append(name)
        else:
            account.files.append(InputFile(place, name, size, side))
    return account


def refused_of(files: Iterable[InputFile]) -> dict[str, str]:
    """Which of the files are refused, and why, by what they begin with."""
    refused = {}
    for file in files:
        try:
            next(read(file), None)
        except RefusedFile as error:
            refused[file.name] = str(error)
    return refused


def read(file: InputFile) -> Iterator[Item]:
    """All that is in a file, which is opened once. Raises RefusedFile before anything is given."""
    if file.size == NO_FILE:
        raise RefusedFile(NOT_A_FILE)
    if file.size == HIDDEN:
        raise RefusedFile(_HIDDEN)
    if not file.size:
        # (No ledger and no Parquet file has no bytes: it was cut, or never written.)
        if file.name.endswith((SUFFIX, ".parquet")):
            yield LostPart(file.name, "the file is empty")
        return
    try:
        with readable(file.place.path):
            system, inner = file.place.filesystem()
            with system.open_input_file(inner) as source:
                if source.read(4) == b"PAR1":
                    yield from _table(file, source)
                else:
                    yield from _ledger(file, source)
    except InputError as error:
        yield LostPart(file.name, (error.reason or error.describe()).rpartition("Detail: ")[2])


def _table(file: InputFile, source: Any) -> Iterator[Item]:
    # AUD-35: "A table of what was put MUST be refused: it has no end, so nobody knows that it is whole."
    if file.side == "produced":
        raise RefusedFile(_PUT_TABLE)
    try:
        yield from read_parquet(file.name, source)
    except NoTable as error:
        raise RefusedFile(str(error)) from None


def _ledger(file: InputFile, source: Any) -> Iterator[Item]:
    try:
        yield from read_ledger(file.name, source)
    except NoLedger as error:
        source.seek(0)
        packed = source.read(2) == GZIP[:2]
        raise RefusedFile(_what_it_is(file.name, error.head, packed=packed)) from None
    if (now := source.tell()) < file.size:
        why = f"it had {plural(file.size, 'byte')} when it was listed, and has {now:,} now: it was cut"
        yield LostPart(file.name, f"{why} while it was read", kind="bytes")


def _what_it_is(name: str, head: bytes, *, packed: bool) -> str:
    """What a file is that is no ledger, by its name and how its text begins, and the command that makes a
    ledger or Parquet of it, where there is one."""
    kind, form = name.lower(), other_form(head)
    if b"kpl_ledger" in head:
        steps = ["aws s3 cp FILE -"] if "://" in name else []
        if packed:
            steps.append("zcat" if steps else "zcat FILE")
        file = "" if steps else " FILE"
        if re.search(rb'kpl_ledger\\+"', head):  # within JSON
            steps.append(f"jq -r '.. | strings'{file}")
            file = ""
        steps.append(f"grep -o '{{\"kpl_ledger\".*}}'{file}")
        new = "NEW.ledger.jsonl" if "://" in name else "FILE.ledger.jsonl"
        return f"a log with lines of a ledger: `{' | '.join(steps)} > {new}` makes a ledger of it"
    if ".csv" in kind or (form is not None and form.text.startswith("CSV")):
        return _as_parquet("CSV", "read_csv('FILE', all_varchar = true)")
    if form is not None:
        return form.text.replace("Parquet or JSON", "Parquet")
    if any(ending in kind for ending in (".json", ".ndjson")):
        columns = "{shardId: 'VARCHAR', sequenceNumber: 'VARCHAR', subSequenceNumber: 'VARCHAR'}"
        return _as_parquet("JSON", f"read_json('FILE', columns = {columns})")
    return f"it begins with {head[:8]!r}"


def _as_parquet(form: str, table: str) -> str:
    columns = "shardId, sequenceNumber, subSequenceNumber::INT AS subSequenceNumber"
    make = f"COPY (SELECT {columns} FROM {table}) TO 'FILE.parquet'"
    return f'{form}: `duckdb -c "{make}"` makes Parquet of it (write the names that its columns have)'
