"""Reads what consumers have handled, and what producers have put: ledgers, and tables of any other program.

    *.ledger.jsonl.gz             a ledger (and whatever begins as one, however it is called)
    *.parquet                     a table; in Spark's folders, too
    *.csv  *.jsonl  *.json        a table, compressed or not; *.jsonl and *.json may be log lines of a ledger
    any other text                log lines of a ledger

A table has three columns: shard, sequence number, sub-sequence number, in any spelling that the KCL, Lambda
and this library use; ``lastSubSequenceNumber`` makes a row a run. A table of what was put has the number of
user records in place of the sub-sequence number.

Whatever cannot be read is told with its file and row, and the rest is read: see `LedgerReader.unreadable`.
On the
side of the consumers it may have named anything, so that nothing is called missing that it may have named.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from ..captures import InputError, Location, plan, readable
from ..ledger.ledger import SUFFIX
from ..ledger.ledger_rows import NO_DIGEST, Row
from ..limits import MOST_USER_RECORDS
from ..shards.sequence_numbers import is_sequence_number
from .ledger_reader import MARK, LedgerReader, Origin
from .table_cells import BAD, NULL, NULLS, OK, texts, whole_numbers
from .user_record_index import CODES, NO_SUB_SEQUENCE_NUMBER, HandledCounts, HandledRows

#: Columns, and how they are spelled, by their letters alone in lower case.
SHARD, NUMBER, SUB, LAST, COUNT = "shard", "sequence_number", "sub_sequence_number", "last", "user_records"
_SPELLINGS: Final = {
    SHARD: r"(kinesis)?shard(id)?",
    NUMBER: r"(kinesis)?sequencenumber|seq",
    SUB: r"(first)?subsequencenumber|sub|subseq",
    LAST: r"lastsubsequencenumber",
    COUNT: r"userrecords|userrecordcount|count",
}
_TABLES: Final = (".parquet", ".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".json", ".json.gz")
_SHARD_ID: Final = re.compile(r"shardId-[0-9]{12}", re.ASCII)
_STRAY: Final = "rows with a sequence number of another shard than they say"
_BATCH_ROWS: Final = 1 << 18
_HEAD: Final = 1 << 16


@dataclass
class ReadProgress:
    """Bytes of the files that were read, and of all of them, in MiB."""

    read: float = 0
    size: float = 0

    def mebibytes(self) -> tuple[int, int]:
        return int(min(self.read, self.size)) >> 20, -(-int(self.size) >> 20)


class InputFile(NamedTuple):
    place: Location
    size: int

    @property
    def name(self) -> str:
        return self.place.name


def files_of(paths: Iterable[str]) -> list[InputFile]:
    """The files under ``paths``, each once. Raises InputError."""
    sizes = {piece.path: piece.size for piece in plan(paths)}
    return [InputFile(Location(path), max(size, 0)) for path, size in sizes.items()]


def read_produced(
    paths: Iterable[str], progress: ReadProgress | None = None
) -> tuple[LedgerReader, dict[Origin, list[Row]]]:
    """Ledgers of producers, and the rows of them and of tables, by whose they are. Raises InputError."""
    reader, rows = LedgerReader(), defaultdict[Origin, list[Row]](list)
    for file in files_of(paths):
        for origin, some in _rows(reader, file, (SHARD, NUMBER, COUNT), progress or ReadProgress()):
            rows[origin] += some if isinstance(some, list) else _put_rows(reader, file, *some)
    return reader, rows


def read_handled(
    paths: Iterable[str],
    tally: HandledCounts,
    stream: str | None = None,
    arn: str | None = None,
    progress: ReadProgress | None = None,
) -> LedgerReader:
    """Tallies all tables, and the ledgers of a stream. Gives the ledgers, for their holes. Raises
    InputError."""
    reader, queue = LedgerReader(), _Queue(tally)

    def add(file: InputFile, origin: Origin, rows: list[Row]) -> None:
        # AUD-20: "Ledgers of another stream MUST be skipped, and reported."
        if origin.side != "produced" and origin.is_of(stream, arn):
            rows = [queue.named(row) if row.record_id else row for row in rows]
            for kind in ("handled", "before"):
                some = [row for row in rows if row.kind == kind]
                _add_rows(tally, reader, file, some, before=kind == "before")
            for row in rows:
                if row.kind == "aside" and tally.put_aside(row):
                    reader.report(file.name, _STRAY)

    for file in files_of(paths):
        for origin, some in _rows(reader, file, (SHARD, NUMBER, SUB), progress or ReadProgress()):
            if isinstance(some, list):
                add(file, origin, some)
            else:
                _add_table(tally, reader, file, *some)
    return reader


class _Queue:
    """The Kinesis records of a stream that a queue or Firehose has given, which name neither shard nor
    number."""

    def __init__(self, tally: HandledCounts) -> None:
        self._tally = tally
        self._homes: dict[str, Row] = {}
        self._free: dict[bytes, list[Row]] | None = None

    def named(self, row: Row) -> Row:
        """The row, with the name of a Kinesis record of its digest: always the same for the same record of
        the queue, another for each other one."""
        # AUD-19: "A record of a queue or of Firehose MUST count as one of the Kinesis records that have its
        # digest; two records of other ids are never the same one."
        if self._free is None:
            self._free = {}
            for candidate in sorted(
                self._tally.names.rows, key=lambda candidate: CODES[candidate.kind], reverse=True
            ):
                if candidate.digest != NO_DIGEST:
                    self._free.setdefault(candidate.digest, []).append(candidate)
        self._tally.queued["", row.record_id] = row.digest
        if row.record_id not in self._homes and self._free.get(row.digest):
            self._homes[row.record_id] = self._free[row.digest].pop()
            self._tally.has_no_order = True
        home = self._homes.get(row.record_id)
        if home is None:
            return row.replace(shard_id="", sequence_number=row.record_id)
        return row.replace(shard_id=home.shard_id, sequence_number=home.sequence_number)


# -- files ----------------------------------------------------------------------------------------

#: Columns of a table, and how many rows of it were before.
_Part = tuple[dict[str, Any], int]


def _rows(
    reader: LedgerReader, file: InputFile, names: tuple[str, ...], progress: ReadProgress
) -> Iterator[tuple[Origin, list[Row] | _Part]]:
    """The rows of a ledger, or parts of a table. The reader reports what cannot be read."""
    # AUD-21: "What cannot be read of a ledger or a table MUST be reported with its file, and the row where it
    # is one; the rest MUST be read, and what it may have named be called unknown, not missing."
    begun = progress.read
    try:
        with readable(file.place.path):
            kind = _kind_of(file)
            if kind == "ledger":
                yield from reader.add_gzip(file.name, _bytes(file))
            elif kind in ("log", "json"):
                before = reader.headers
                yield from reader.add_lines(file.name, _lines(file, progress))
                if reader.headers == before and kind == "log":
                    reader.report(file.name, "no table, and no line of it is a ledger's: passed over")
                elif reader.headers == before:
                    kind = "table"
            if kind == "table":
                rows = 0
                for columns in _tables(file, names, progress):
                    yield Origin(), (columns, rows)
                    rows += len(columns[SHARD])
            elif kind == "unreadable":
                reader.report_lost(
                    file.name, "neither a table nor a ledger" if file.size else "the file is empty"
                )
    except InputError as error:
        reader.report_lost(file.name, error.reason or error.describe())
    progress.read = begun + file.size


def _kind_of(file: InputFile) -> Literal["ledger", "table", "json", "log", "unreadable"]:
    head = _bytes(file, _HEAD)
    if SUFFIX in file.name:
        return "ledger"
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(47).decompress(head, _HEAD)
        except zlib.error:
            head = b"\0"
        if head.startswith(MARK):
            return "ledger"
    if file.name.endswith(_TABLES) or head.startswith(b"PAR1"):
        return "unreadable" if not file.size else "json" if "json" in file.name else "table"
    return "unreadable" if b"\0" in head else "log"


def _bytes(file: InputFile, most: int | None = None) -> bytes:
    """The first bytes of the file as it is, or all of them."""
    system, inner = file.place.filesystem()
    with system.open_input_stream(inner, compression=None) as stream:
        return bytes(stream.read(most))


def _open_text(file: InputFile) -> Any:
    """The text of the file, compressed or not."""
    system, inner = file.place.filesystem()
    return system.open_input_stream(inner, compression="gzip" if _bytes(file, 2) == b"\x1f\x8b" else None)


def _lines(file: InputFile, progress: ReadProgress) -> Iterator[bytes]:
    """The lines of a text; of a very long one the first part."""
    begun, rest = progress.read, b""
    with _open_text(file) as stream:
        while chunk := bytes(stream.read(1 << 20)):
            progress.read = min(progress.read + len(chunk), begun + file.size)
            *whole, end = chunk.split(b"\n")
            if whole:
                yield rest + whole[0]
                yield from whole[1:]
                rest = b""
            rest = (rest + end)[: 1 << 20]
    if rest:
        yield rest


def _tables(file: InputFile, names: tuple[str, ...], progress: ReadProgress) -> Iterator[dict[str, Any]]:
    """The columns ``names``, and `LAST` if there is one, some rows at a time. `SUB` may be missing."""
    system, inner = file.place.filesystem()
    with ExitStack() as files:
        batches: Iterable[Any]
        rows = 0
        if not file.name.endswith(_TABLES[1:]):
            columns = _columns(pq.read_schema(inner, filesystem=system), names, file)
            text = [columns[SHARD], columns[NUMBER]]
            parquet = files.enter_context(pq.ParquetFile(inner, filesystem=system, read_dictionary=text))
            rows = parquet.metadata.num_rows
            batches = parquet.iter_batches(_BATCH_ROWS, columns=list(columns.values()))
        elif "csv" in file.name:
            with pa.csv.open_csv(_open_text(file)) as reader:
                columns = _columns(reader.schema, names, file, check=False)
            # (A sequence number has too many digits for a number.)
            text_only = pa.csv.ConvertOptions(column_types=dict.fromkeys(columns.values(), pa.string()))
            batches = files.enter_context(pa.csv.open_csv(_open_text(file), convert_options=text_only))
        else:
            table = pa.json.read_json(_open_text(file))
            columns, batches = _columns(table.schema, names, file), table.to_batches()
        begun = progress.read
        for batch in batches:
            yield {name: batch[column] for name, column in columns.items()}
            size = file.size * batch.num_rows / rows if rows else batch.nbytes
            progress.read = min(progress.read + size, begun + file.size)


def _columns(
    schema: pa.Schema, names: tuple[str, ...], file: InputFile, *, check: bool = True
) -> dict[str, str]:
    plain = {re.sub(r"[^a-z]", "", name.lower()): name for name in schema.names}
    spellings = {}
    for column in (*names, LAST):
        spelled = next((name for key, name in plain.items() if re.fullmatch(_SPELLINGS[column], key)), None)
        if spelled is not None:
            spellings[column] = spelled
        elif column not in (SUB, LAST):
            reason = f"no column {column}; it has: {', '.join(plain.values())}"
            raise InputError(code="unreadable", path=file.place.path, reason=reason)
    kind = schema.field(spellings[NUMBER]).type
    if check and pa.types.is_floating(kind):
        reason = f"column {spellings[NUMBER]} is {kind}, which loses digits of a sequence number: write text"
        raise InputError(code="unreadable", path=file.place.path, reason=reason)
    return spellings


# -- cells ----------------------------------------------------------------------------------------


def _names(columns: dict[str, Any]) -> tuple[Any, Any, Any, Any, list[str], list[str]]:
    """Of each row its shard and sequence number as codes, whether the two are whole; and what they code."""
    shard, number = texts(columns[SHARD]), texts(columns[NUMBER])
    home, code = (pc.fill_null(coded.indices.cast(pa.int64()), -1).to_numpy() for coded in (shard, number))
    shards, numbers = shard.dictionary.to_pylist(), number.dictionary.to_pylist()
    good_shard = np.array([*(bool(text) and text.lower() not in NULLS for text in shards), False])[home]
    good_number = np.array([*(bool(text and is_sequence_number(text)) for text in numbers), False])[code]
    return home, code, good_shard, good_number, shards, numbers


def _report_rows(reader: LedgerReader, file: InputFile, before: int, wrong: Any, why: str) -> bool:
    """Tell of the rows that are ``wrong``, if there are any."""
    if count := int(np.count_nonzero(wrong)):
        reader.report(file.name, why, count, before + int(np.argmax(wrong)) + 1)
    return bool(count)


def _put_rows(reader: LedgerReader, file: InputFile, columns: dict[str, Any], before: int) -> list[Row]:
    home, code, good_shard, good_number, shards, numbers = _names(columns)
    counts, states = whole_numbers(columns[COUNT])
    good_count = (states == OK) & (counts >= 0) & (counts <= MOST_USER_RECORDS)
    for good, what in (
        (good_shard, "has no shard"),
        (good_number, "has no sequence number"),
        (good_count, "has no number of user records, or one that no Kinesis record can have"),
    ):
        for at in np.flatnonzero(~good)[:1].tolist():
            reader.report_lost(
                file.name, f"row {before + at + 1} {what} ({np.count_nonzero(~good)} such rows)"
            )
    return [
        Row("delivered", shards[home[at]], numbers[code[at]], int(counts[at]), 0)
        for at in np.flatnonzero(good_shard & good_number & good_count).tolist()
    ]


def _add_table(
    tally: HandledCounts, reader: LedgerReader, file: InputFile, columns: dict[str, Any], before: int
) -> None:
    home, code, good_shard, good_number, shards, numbers = _names(columns)
    # Text that is no shard id, of Kinesis or in a ledger, names no other shard: it may mean any.
    is_shard_id = [text in tally.names.shards or bool(_SHARD_ID.fullmatch(text or "")) for text in shards]
    good_shard &= np.array([*is_shard_id, False])[home]
    if SUB in columns:
        first, states = whole_numbers(columns[SUB])
        first = np.where(states == NULL, NO_SUB_SEQUENCE_NUMBER, np.where(states == BAD, -1, first))
    else:
        first = np.full(len(home), NO_SUB_SEQUENCE_NUMBER)
    last = first
    if LAST in columns:
        ends, states = whole_numbers(columns[LAST])
        last = np.where(states == NULL, first, np.where(states == BAD, -1, ends))
    # A row without any name names nothing. One with a part of it may name whatever has that part.
    empty = (home < 0) & (code < 0)
    _report_rows(reader, file, before, empty, "rows without shard and sequence number")
    named = good_shard & good_number
    if _report_rows(reader, file, before, ~named & ~empty, "rows that have no shard, or no sequence number"):
        unnamed = np.unique(np.where(good_shard, home, -1)[~named & ~empty]).tolist()
        tally.mark_doubtful([shards[one] if one >= 0 else None for one in unnamed])
    tally.bad += int(np.count_nonzero(~named))
    rows = np.flatnonzero(named)
    home, code, first, last = home[rows], code[rows], first[rows], last[rows]
    # A sequence number is of one shard, in all but made-up tables: then it names the Kinesis record alone.
    of, many = np.full(len(numbers), -1), len(numbers)
    of[code] = home
    if (of[code] == home).all():
        pairs, record = of[of >= 0] * many + np.flatnonzero(of >= 0), (np.cumsum(of >= 0) - 1)[code]
    else:
        pairs, record = np.unique(home * many + code, return_inverse=True)
    places = [divmod(pair, many) for pair in pairs.tolist()]
    batch = HandledRows(
        [shards[one] for one, _ in places], [numbers[one].encode() for _, one in places], record, first, last
    )
    refused, vague, stray = tally.add(batch)
    for wrong, why in (
        (stray, _STRAY),
        (refused, "rows that name no user record: the sub-sequence number is none, or the run has no end"),
        (vague, "rows without a sub-sequence number, which name Kinesis records of several user records"),
    ):
        if len(wrong):
            reader.report(file.name, why, len(wrong), before + int(rows[wrong[0]]) + 1)


def _add_rows(
    tally: HandledCounts, reader: LedgerReader, file: InputFile, rows: list[Row], *, before: bool
) -> None:
    if rows:
        places = [(row.shard_id, row.sequence_number) for row in rows]
        which = {place: at for at, place in enumerate(dict.fromkeys(places))}
        record = np.array([which[place] for place in places], np.int64)
        first = np.array([row.first for row in rows], np.int64)
        last = np.array([row.first + row.user_records - 1 for row in rows], np.int64)
        names = [shard for shard, _ in which], [number.encode() for _, number in which]
        _, _, stray = tally.add(HandledRows(*names, record, first, last, before))
        if len(stray):
            reader.report(file.name, _STRAY, len(stray))
