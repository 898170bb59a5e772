"""Reads what producers have put and what consumers have handled, from ledgers and from other programs'
tables.

    *.ledger.jsonl.gz             a ledger (as is any other file that begins like one)
    *.parquet                     a table; in Spark's folders, too
    *.csv  *.jsonl  *.json        a table, compressed or not; *.jsonl and *.json may be log lines of a ledger
    any other text                log lines of a ledger

A table of what was handled has the columns shard, sequence number, sub-sequence number, in any spelling that
the KCL, Lambda and this library use; with ``lastSubSequenceNumber`` a row stands for several user records. A
table of what was put has the number of user records in place of the sub-sequence number.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..captures import InputError, Location, plan, readable
from ..captures.files import HIDDEN
from ..ledger.ledger import SUFFIX
from ..ledger.ledger_rows import NO_DIGEST, Row
from ..limits import MOST_USER_RECORDS
from ..shards.sequence_numbers import is_sequence_number
from .ledger_reader import MARK, LedgerReader, Origin
from .table_files import (
    COUNT,
    LAST,
    NUMBER,
    SHARD,
    SUB,
    TABLES,
    BrokenLines,
    InputFile,
    ReadProgress,
    read_bytes,
    read_lines,
    read_tables,
    text_of,
)
from .user_record_index import CODES, NO_SUB_SEQUENCE_NUMBER, HandledCounts

_SHARD_ID: Final = re.compile(r"shardId-[0-9]{12}", re.ASCII)
_STRAY: Final = "rows with the shard id of one shard and the sequence number of another"
#: Texts that stand for an empty cell in CSV files, in lower case.
NULLS: Final = {"", "null", "none", "nan", "na", "n/a", "\\n"}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?", re.ASCII)
#: A sequence number that some program has turned into a floating-point number, such as 4.96e+55.
_FLOAT: Final = re.compile(r"[0-9](\.[0-9]{1,20})?e\+?[0-9]{1,3}", re.ASCII | re.IGNORECASE)
_SHORT_NUMBER: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_NO_NUMBER: Final = " is no sequence number: digits were lost; write it as text"
_NOT_READ: Final = (
    "it is no ledger, and its name not that of a table (.parquet .csv .jsonl .json, .gz): not read"
)
_HEAD: Final = 1 << 16


def files_of(paths: Iterable[str]) -> list[InputFile]:
    """The files under ``paths``, each once, without hidden ones. Raises InputError."""
    places = {Location(piece.path): max(piece.size, 0) for piece in plan(paths) if piece.size != HIDDEN}
    return [InputFile(place, place.name, size) for place, size in places.items()]


def read_produced(
    paths: Iterable[str], progress: ReadProgress | None = None
) -> tuple[LedgerReader, dict[Origin, list[Row]]]:
    """Read ledgers of producers, and tables of what they put. Returns a reader, which knows where the ledgers
    have holes, and the rows by their origin. Raises InputError."""
    reader, progress = LedgerReader(), progress or ReadProgress()
    rows = defaultdict[Origin, list[Row]](list)
    for file in files_of(paths):
        for origin, part in _parts(reader, file, (SHARD, NUMBER, COUNT), progress):
            rows[origin] += part if isinstance(part, list) else _produced_rows(reader, file, *part)
    return reader, rows


def read_handled(
    paths: Iterable[str],
    tally: HandledCounts,
    stream: str | None = None,
    arn: str | None = None,
    progress: ReadProgress | None = None,
) -> LedgerReader:
    """Count in ``tally`` the user records that tables, and the ledgers of the stream, name as handled.
    Returns a reader, which knows where the ledgers have holes. Raises InputError."""
    reader, queue, progress = LedgerReader(), _QueueRecords(tally), progress or ReadProgress()
    for file in files_of(paths):
        for origin, part in _parts(reader, file, (SHARD, NUMBER, SUB), progress):
            if not isinstance(part, list):
                _count_table(tally, reader, file, *part)
            # AUD-20: "Ledgers of another stream MUST be skipped, and reported."
            elif origin.side != "produced" and origin.is_of(stream, arn):
                _count_rows(tally, reader, file, [queue.with_name(row) for row in part])
    return reader


class _QueueRecords:
    """Finds, by their digests, the Kinesis records that a queue or Firehose delivered: the consumer's rows
    have a record id and a digest, but neither shard id nor sequence number."""

    def __init__(self, tally: HandledCounts) -> None:
        self._tally = tally
        self._by_id: dict[str, Row] = {}
        self._by_digest: dict[bytes, list[Row]] | None = None

    def with_name(self, row: Row) -> Row:
        """A queue's row with the shard id and sequence number of a Kinesis record that has the same digest:
        each record id gets a Kinesis record of its own. Any other row as it is."""
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


def _parts(
    reader: LedgerReader, file: InputFile, names: tuple[str, ...], progress: ReadProgress
) -> Iterator[tuple[Origin, list[Row] | tuple[dict[str, Any], Any]]]:
    """The rows of a ledger; or blocks of a table: values by column, and each row's number in the file, from
    1. ``reader`` reports what cannot be read."""
    # AUD-21: "What cannot be read of a ledger or a table MUST be reported with its file, and the row where it
    # is one; the rest MUST be read, and what it may have named be called unknown, not missing."
    read_before = progress.read
    try:
        with readable(file.place.path):
            kind, headers = _kind_of(file), reader.headers
            if kind == "ledger":
                yield from reader.add_gzip(file.name, read_bytes(file))
            elif kind in ("log", "json"):
                yield from reader.add_lines(file.name, read_lines(file, progress))
                if reader.headers == headers and kind == "log":
                    report = reader.report_lost if _may_be_a_table(file) else reader.report
                    report(file.name, _NOT_READ)
                elif reader.headers == headers:
                    kind = "table"
            if kind == "table":
                last, lines = 0, BrokenLines(reader, file)
                for columns in read_tables(file, names, progress, lines):
                    numbers = lines.numbers_of_others(last + 1, len(columns[SHARD]))
                    last = int(numbers[-1]) if len(numbers) else last
                    yield Origin(), (columns, numbers)
                if not last and lines.numbers:
                    reader.unread[file.name] = lines.why
                elif not last:
                    progress.empty.append(file.name)
            elif kind == "unreadable":
                why = "neither a table nor a ledger" if file.size else "the file is empty"
                reader.report_lost(file.name, why)
    except InputError as error:
        reader.unread[file.name] = error.reason or error.describe()
        reader.report_lost(file.name, reader.unread[file.name])
    progress.read = read_before + file.size


def _kind_of(file: InputFile) -> Literal["ledger", "table", "json", "log", "unreadable"]:
    head = read_bytes(file, _HEAD)
    if SUFFIX in file.name:
        return "ledger"
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(47).decompress(head, _HEAD)
        except zlib.error:
            head = b"\0"
        if head.startswith(MARK):
            return "ledger"
    if file.name.endswith(TABLES) or head.startswith(b"PAR1"):
        return "unreadable" if not file.size else "json" if "json" in file.name else "table"
    return "unreadable" if b"\0" in head else "log"


def _may_be_a_table(file: InputFile) -> bool:
    """Whether a file that is read as a log may hold rows: it has a header, or is no text."""
    line = next(read_lines(file, ReadProgress()), b"")
    try:
        return re.search("shard.*seq|seq.*shard", line.decode(), re.IGNORECASE) is not None
    except UnicodeDecodeError:
        return True


# -- cells ----------------------------------------------------------------------------------------


def _produced_rows(reader: LedgerReader, file: InputFile, columns: dict[str, Any], lines: Any) -> list[Row]:
    """The rows of a table of user records that were put. ``lines``: the number of each row in the file."""
    shard, shards, has_shard = _names(columns[SHARD], lambda text: text.lower() not in NULLS)
    number, numbers, has_number = _names(columns[NUMBER], is_sequence_number)
    counts = _whole_numbers(columns[COUNT])
    has_count = (counts >= 0) & (counts <= MOST_USER_RECORDS)
    for valid, what in (
        (has_shard, "has no shard"),
        (has_number, "has no sequence number"),
        (has_count, "has no number of user records, or one that no Kinesis record can have"),
    ):
        for at in np.flatnonzero(~valid)[:1].tolist():
            rows = f"({np.count_nonzero(~valid)} such rows)"
            text = numbers[number[at]] if what == "has no sequence number" and number[at] >= 0 else ""
            if _FLOAT.fullmatch(text):
                what = f"has '{text}', which{_NO_NUMBER}"
            reader.report_lost(file.name, f"row {lines[at]} {what} {rows}")
    return [
        Row("delivered", shards[shard[at]], numbers[number[at]], int(counts[at]), 0)
        for at in np.flatnonzero(has_shard & has_number & has_count).tolist()
    ]


def _count_table(
    tally: HandledCounts, reader: LedgerReader, file: InputFile, columns: dict[str, Any], lines: Any
) -> None:
    """Count the rows of a table of handled user records. ``lines``: the number of each row in the file."""
    # A cell that is no shard id of Kinesis, and that no ledger has, may mean any shard.
    is_shard_id = tally.names.codes.keys() - NULLS
    shard, shards, has_shard = _names(
        columns[SHARD], lambda text: text in is_shard_id or bool(_SHARD_ID.fullmatch(text))
    )
    number, numbers, has_number = _names(columns[NUMBER], is_sequence_number)
    first = last = np.full(len(shard), NO_SUB_SEQUENCE_NUMBER)
    if SUB in columns:
        first = last = _whole_numbers(columns[SUB])
    if LAST in columns:
        last = _whole_numbers(columns[LAST])
        last = np.where(last == NO_SUB_SEQUENCE_NUMBER, first, last)
    # A row without shard and sequence number names nothing. A row with only one of the two may name every
    # Kinesis record with that shard or number.
    empty, named = (shard < 0) & (number < 0), has_shard & has_number
    half = ~named & ~empty
    partial = np.unique(np.where(has_shard, shard, -1)[half]).tolist()
    tally.mark_doubtful([shards[one] if one >= 0 else None for one in partial])
    tally.bad += int(np.count_nonzero(~named))
    rows = np.flatnonzero(named)
    pairs = pa.array(shard[rows] * len(numbers) + number[rows]).dictionary_encode()
    codes = [divmod(pair, len(numbers)) for pair in pairs.dictionary.to_pylist()]
    places = [(shards[of_shard], numbers[of_number]) for of_shard, of_number in codes]
    record = pairs.indices.to_numpy().astype(np.int64)
    invalid, vague, stray = tally.add(places, record, first[rows], last[rows])
    is_float = half & _matches(_FLOAT, numbers)[number]
    is_short = half & ~is_float & ~has_shard & _matches(_SHORT_NUMBER, shards)[shard]
    for texts, cells, wrong, why in (
        (numbers, number, np.flatnonzero(is_float), _NO_NUMBER),
        (shards, shard, np.flatnonzero(is_short), " is no shard id"),
    ):
        for at in wrong[:1].tolist():
            example = f"'{texts[cells[at]]}'"
            reader.report(file.name, why, len(wrong), int(lines[at]), example=example)
    for wrong, why in (
        (np.flatnonzero(empty), "rows without shard and sequence number"),
        (
            np.flatnonzero(half & ~is_float & ~is_short),
            "rows without a shard id, or without a sequence number as text",
        ),
        (rows[stray], _STRAY),
        (
            rows[invalid],
            "rows that name no user record: the sub-sequence number is none, or the run has no end",
        ),
        (
            rows[vague],
            "rows without a sub-sequence number, which name Kinesis records of several user records",
        ),
    ):
        if len(wrong):
            reader.report(file.name, why, len(wrong), int(lines[wrong[0]]))


def _count_rows(tally: HandledCounts, reader: LedgerReader, file: InputFile, rows: list[Row]) -> None:
    """Count the rows of a consumer's ledger."""
    stray = sum(tally.put_aside(row) for row in rows if row.kind == "aside")
    for kind in ("handled", "before"):
        handled = [row for row in rows if row.kind == kind]
        stray += tally.add_rows(handled, before=kind == "before")
    if stray:
        reader.report(file.name, _STRAY, stray)


def _names(column: Any, is_valid: Callable[[str], bool]) -> tuple[Any, list[str], Any]:
    """For each cell the index of its text (-1: empty); the distinct texts; for each cell whether it is
    valid."""
    encoded = _texts(column)
    codes = pc.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy()
    different = encoded.dictionary.to_pylist()
    valid = [bool(text) and is_valid(text) for text in different]
    return codes, different, np.array([*valid, False])[codes]


def _matches(pattern: re.Pattern[str], texts: Sequence[str]) -> Any:
    """Whether each text matches; the last item is for an empty cell (index -1), as in `_names`."""
    return np.array([*(bool(pattern.fullmatch(text)) for text in texts), False])


def _texts(column: Any) -> Any:
    """A column as a dictionary array of texts. Any other cell, such as a list, becomes what `str` makes of
    it."""
    is_dictionary = pa.types.is_dictionary(column.type)
    try:
        if is_dictionary:
            array = column.cast(pa.dictionary(column.type.index_type, pa.string()))
        else:
            array = column.cast(pa.string()).dictionary_encode()
        array.dictionary.validate(full=True)  # bytes that are no UTF-8
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        plain = column.dictionary_decode() if is_dictionary else column
        cells = plain.cast(pa.binary()) if pa.types.is_string(plain.type) else plain
        return pa.array(map(text_of, cells.to_pylist()), pa.string()).dictionary_encode()
    return array


def _whole_numbers(column: Any) -> Any:
    """A column as numbers; -1 for a cell that is no number from 0 on, `NO_SUB_SEQUENCE_NUMBER` for an empty
    one."""
    if pa.types.is_signed_integer(column.type):
        return pc.fill_null(column.cast(pa.int64()), NO_SUB_SEQUENCE_NUMBER).to_numpy()
    numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    encoded = column.dictionary_encode() if numeric or pa.types.is_decimal(column.type) else _texts(column)
    numbers = np.array([*map(_whole_number, encoded.dictionary.to_pylist()), NO_SUB_SEQUENCE_NUMBER])
    return numbers[pc.fill_null(encoded.indices.cast(pa.int64()), len(numbers) - 1).to_numpy()]


def _whole_number(value: Any) -> int:
    if isinstance(value, str):
        text = value.strip().lower()
        if text in NULLS:
            return NO_SUB_SEQUENCE_NUMBER
        return max(int(text.partition(".")[0]), -1) if _INTEGER.fullmatch(text) else -1
    if value is None or value != value:  # (NaN)
        return NO_SUB_SEQUENCE_NUMBER
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    return max(int(value), -1) if number and abs(value) < 1 << 53 and value == int(value) else -1
