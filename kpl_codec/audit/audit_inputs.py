"""Reads what consumers have handled, and what producers have put: ledgers, and tables of any other program.

    *.ledger.jsonl.gz             a ledger (and whatever begins as one, whatever its name)
    *.parquet                     a table; in Spark's folders, too
    *.csv  *.jsonl  *.json        a table, compressed or not; *.jsonl and *.json may be log lines of a ledger
    any other text                log lines of a ledger

A table of what was handled has three columns: shard, sequence number, sub-sequence number, in any spelling
that the KCL, Lambda and this library use; with ``lastSubSequenceNumber`` a row stands for several user
records. A table of what was put has the number of user records in place of the sub-sequence number.

What cannot be read is reported with its file and row (`LedgerReader.unreadable`), and the rest is read.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
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

#: Columns, and how they are spelled: their letters alone, in lower case.
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
_STRAY: Final = "rows with the shard id of one shard and the sequence number of another"
_BATCH_ROWS: Final = 1 << 18
_HEAD: Final = 1 << 16


@dataclass
class ReadProgress:
    """Bytes of the files that were read, and of all of them. ``empty``: names of tables without rows."""

    read: float = 0
    size: float = 0
    empty: list[str] = field(default_factory=list)

    def mebibytes(self) -> tuple[int, int]:
        """The same in MiB."""
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
    """Read ledgers of producers, and tables of what they put. Gives the ledgers, for their holes, and the
    rows of each origin. Raises InputError."""
    reader, rows = LedgerReader(), defaultdict[Origin, list[Row]](list)
    for file in files_of(paths):
        for origin, part in _parts(reader, file, (SHARD, NUMBER, COUNT), progress or ReadProgress()):
            rows[origin] += part if isinstance(part, list) else _produced_rows(reader, file, *part)
    return reader, rows


def read_handled(
    paths: Iterable[str],
    tally: HandledCounts,
    stream: str | None = None,
    arn: str | None = None,
    progress: ReadProgress | None = None,
) -> LedgerReader:
    """Count what tables, and the ledgers of a stream, say was handled. Gives the ledgers, for their holes.
    Raises InputError."""
    reader, queue = LedgerReader(), _QueueRecords(tally)
    for file in files_of(paths):
        for origin, part in _parts(reader, file, (SHARD, NUMBER, SUB), progress or ReadProgress()):
            if not isinstance(part, list):
                _count_table(tally, reader, file, *part)
            # AUD-20: "Ledgers of another stream MUST be skipped, and reported."
            elif origin.side != "produced" and origin.is_of(stream, arn):
                _count_rows(tally, reader, file, [queue.with_name(row) for row in part])
    return reader


class _QueueRecords:
    """Finds the Kinesis records that a queue or Firehose has given: their rows have a record id and a digest,
    but neither shard nor sequence number."""

    def __init__(self, tally: HandledCounts) -> None:
        self._tally = tally
        self._by_id: dict[str, Row] = {}
        self._by_digest: dict[bytes, list[Row]] | None = None

    def with_name(self, row: Row) -> Row:
        """The row of a queue's record with the shard id and sequence number of a Kinesis record that has its
        digest: for one record id always the same, for each other one another. Any other row as it is."""
        if not row.record_id:
            return row
        # AUD-19: "A record of a queue or of Firehose MUST count as one of the Kinesis records that have its
        # digest; records with different ids MUST count as different ones."
        if self._by_digest is None:
            self._by_digest = {}
            for candidate in sorted(self._tally.names.rows, key=lambda row: -CODES[row.kind]):
                if candidate.digest != NO_DIGEST:
                    self._by_digest.setdefault(candidate.digest, []).append(candidate)
        self._tally.queued["", row.record_id] = row.digest
        if row.record_id not in self._by_id and self._by_digest.get(row.digest):
            self._by_id[row.record_id] = self._by_digest[row.digest].pop()
            self._tally.has_no_order = True
        record = self._by_id.get(row.record_id)
        if record is None:
            return row.replace(shard_id="", sequence_number=row.record_id)
        return row.replace(shard_id=record.shard_id, sequence_number=record.sequence_number)


# -- files ----------------------------------------------------------------------------------------

#: Columns of a table by name, and how many rows of the file come before.
_TablePart = tuple[dict[str, Any], int]


def _parts(
    reader: LedgerReader, file: InputFile, names: tuple[str, ...], progress: ReadProgress
) -> Iterator[tuple[Origin, list[Row] | _TablePart]]:
    """The rows of a ledger, or parts of a table. The reader reports what cannot be read."""
    # AUD-21: "What cannot be read of a ledger or a table MUST be reported with its file, and the row where it
    # is one; the rest MUST be read, and what it may have named be called unknown, not missing."
    read_before = progress.read
    try:
        with readable(file.place.path):
            kind = _kind_of(file)
            if kind == "ledger":
                yield from reader.add_gzip(file.name, _bytes(file))
            elif kind in ("log", "json"):
                headers = reader.headers
                yield from reader.add_lines(file.name, _lines(file, progress))
                if reader.headers == headers and kind == "log":
                    reader.report(file.name, "it is neither a ledger nor a table, so it was not read")
                elif reader.headers == headers:
                    kind = "table"
            if kind == "table":
                rows = 0
                for columns in _tables(file, names, progress):
                    yield Origin(), (columns, rows)
                    rows += len(columns[SHARD])
                if not rows:
                    progress.empty.append(file.name)
            elif kind == "unreadable":
                why = "neither a table nor a ledger" if file.size else "the file is empty"
                reader.report_lost(file.name, why)
    except InputError as error:
        reader.unread[file.name] = error.reason or error.describe()
        reader.report_lost(file.name, reader.unread[file.name])
    progress.read = read_before + file.size


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
    """The first ``most`` bytes of the file as it is, or all of them."""
    system, inner = file.place.filesystem()
    with system.open_input_stream(inner, compression=None) as stream:
        return bytes(stream.read(most))


def _open_text(file: InputFile) -> Any:
    """The text of the file, compressed or not."""
    system, inner = file.place.filesystem()
    return system.open_input_stream(inner, compression="gzip" if _bytes(file, 2) == b"\x1f\x8b" else None)


def _lines(file: InputFile, progress: ReadProgress) -> Iterator[bytes]:
    """The lines of a text; of a line above 1 MiB only its beginning."""
    read_before, rest = progress.read, b""
    with _open_text(file) as stream:
        while chunk := bytes(stream.read(1 << 20)):
            progress.read = min(progress.read + len(chunk), read_before + file.size)
            *lines, end = chunk.split(b"\n")
            if lines:
                yield rest + lines[0]
                yield from lines[1:]
                rest = b""
            rest = (rest + end)[: 1 << 20]
    if rest:
        yield rest


def _tables(file: InputFile, names: tuple[str, ...], progress: ReadProgress) -> Iterator[dict[str, Any]]:
    """The columns ``names``, and `LAST` if there is one, some rows at a time. There may be no `SUB`."""
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
        read_before = progress.read
        for batch in batches:
            yield {name: batch[column] for name, column in columns.items()}
            size = file.size * batch.num_rows / rows if rows else batch.nbytes
            progress.read = min(progress.read + size, read_before + file.size)


def _columns(
    schema: pa.Schema, names: tuple[str, ...], file: InputFile, *, check: bool = True
) -> dict[str, str]:
    """The file's own names of the columns."""
    plain = {re.sub(r"[^a-z]", "", name.lower()): name for name in schema.names}
    spellings = {}
    for column in (*names, LAST):
        own_name = next((name for key, name in plain.items() if re.fullmatch(_SPELLINGS[column], key)), None)
        if own_name is not None:
            spellings[column] = own_name
        elif column not in (SUB, LAST):
            reason = f"no column {column}; it has: {', '.join(plain.values())}"
            raise InputError(code="unreadable", path=file.place.path, reason=reason)
    kind = schema.field(spellings[NUMBER]).type
    if check and pa.types.is_floating(kind):
        reason = f"column {spellings[NUMBER]} is {kind}, which loses digits of a sequence number: write text"
        raise InputError(code="unreadable", path=file.place.path, reason=reason)
    return spellings


# -- cells ----------------------------------------------------------------------------------------


class _Places(NamedTuple):
    """Shard and sequence number of each row, as indices into ``shards`` and ``numbers`` (-1: none), and which
    rows have a valid one."""

    shard: Any
    number: Any
    has_shard: Any
    has_number: Any
    shards: list[str]
    numbers: list[str]


def _places(columns: dict[str, Any]) -> _Places:
    encoded = texts(columns[SHARD]), texts(columns[NUMBER])
    shard, number = (pc.fill_null(one.indices.cast(pa.int64()), -1).to_numpy() for one in encoded)
    shards, numbers = (one.dictionary.to_pylist() for one in encoded)
    has_shard = np.array([*(bool(text) and text.lower() not in NULLS for text in shards), False])[shard]
    is_number = [bool(text and is_sequence_number(text)) for text in numbers]
    return _Places(shard, number, has_shard, np.array([*is_number, False])[number], shards, numbers)


def _report_rows(reader: LedgerReader, file: InputFile, before: int, wrong: Any, why: str) -> bool:
    """Report the rows that are ``wrong``, if there are any."""
    if count := int(np.count_nonzero(wrong)):
        reader.report(file.name, why, count, before + int(np.argmax(wrong)) + 1)
    return bool(count)


def _produced_rows(reader: LedgerReader, file: InputFile, columns: dict[str, Any], before: int) -> list[Row]:
    places = _places(columns)
    counts, states = whole_numbers(columns[COUNT])
    has_count = (states == OK) & (counts >= 0) & (counts <= MOST_USER_RECORDS)
    for valid, what in (
        (places.has_shard, "has no shard"),
        (places.has_number, "has no sequence number"),
        (has_count, "has no number of user records, or one that no Kinesis record can have"),
    ):
        for at in np.flatnonzero(~valid)[:1].tolist():
            rows = f"({np.count_nonzero(~valid)} such rows)"
            reader.report_lost(file.name, f"row {before + at + 1} {what} {rows}")
    shards, numbers = places.shards, places.numbers
    return [
        Row("delivered", shards[places.shard[at]], numbers[places.number[at]], int(counts[at]), 0)
        for at in np.flatnonzero(places.has_shard & places.has_number & has_count).tolist()
    ]


def _sub_sequence_numbers(columns: dict[str, Any], column: str, default: Any) -> Any:
    """The cells of a column; ``default`` where there is none, -1 for what is no number."""
    if column not in columns:
        return default
    numbers, states = whole_numbers(columns[column])
    return np.where(states == NULL, default, np.where(states == BAD, -1, numbers))


def _count_table(
    tally: HandledCounts, reader: LedgerReader, file: InputFile, columns: dict[str, Any], before: int
) -> None:
    shard, number, has_shard, has_number, shards, numbers = _places(columns)
    # Text that is no shard id, of Kinesis or in a ledger, names no other shard: it may mean any.
    is_shard_id = [text in tally.names.shards or bool(_SHARD_ID.fullmatch(text or "")) for text in shards]
    has_shard &= np.array([*is_shard_id, False])[shard]
    first = _sub_sequence_numbers(columns, SUB, np.full(len(shard), NO_SUB_SEQUENCE_NUMBER))
    last = _sub_sequence_numbers(columns, LAST, first)
    # A row without shard and number names nothing. One with one of them may name whatever has that one.
    empty, named = (shard < 0) & (number < 0), has_shard & has_number
    _report_rows(reader, file, before, empty, "rows without shard and sequence number")
    if _report_rows(reader, file, before, ~named & ~empty, "rows that have no shard, or no sequence number"):
        unnamed = np.unique(np.where(has_shard, shard, -1)[~named & ~empty]).tolist()
        tally.mark_doubtful([shards[one] if one >= 0 else None for one in unnamed])
    tally.bad += int(np.count_nonzero(~named))
    rows = np.flatnonzero(named)
    shard, number, first, last = shard[rows], number[rows], first[rows], last[rows]
    pairs = pa.array(shard * len(numbers) + number).dictionary_encode()
    places = [divmod(pair, len(numbers)) for pair in pairs.dictionary.to_pylist()]
    names = [shards[one] for one, _ in places], [numbers[one].encode() for _, one in places]
    record = pairs.indices.to_numpy().astype(np.int64)
    invalid, vague, stray = tally.add(HandledRows(*names, record, first, last))
    for wrong, why in (
        (stray, _STRAY),
        (invalid, "rows that name no user record: the sub-sequence number is none, or the run has no end"),
        (vague, "rows without a sub-sequence number, which name Kinesis records of several user records"),
    ):
        if len(wrong):
            reader.report(file.name, why, len(wrong), before + int(rows[wrong[0]]) + 1)


def _count_rows(tally: HandledCounts, reader: LedgerReader, file: InputFile, rows: list[Row]) -> None:
    """Count the rows of a consumer's ledger."""
    stray = sum(tally.put_aside(row) for row in rows if row.kind == "aside")
    for kind in ("handled", "before"):
        if handled := [row for row in rows if row.kind == kind]:
            stray += len(tally.add(HandledRows.of(handled, kind == "before"))[2])
    if stray:
        reader.report(file.name, _STRAY, stray)
