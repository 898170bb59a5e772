"""Reads what consumers have handled, and what producers have put: ledgers, and tables of any other program.

    *.kpl-ledger                  segments of ledgers
    *.parquet                     a table; in Spark's folders, too
    *.csv  *.jsonl  *.json        a table, compressed or not; *.jsonl and *.json may be log lines of a ledger
    anything else                 log lines of a ledger

A table has three columns: shard, sequence number, sub-sequence number (missing: 0), in any spelling that the
KCL, Lambda and this library use; ``lastSubSequenceNumber`` makes a row a run. A table of what was put has the
number of user records in place of the sub-sequence number.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from ..captures import InputError, Location, plan, readable
from ..ledger import CODES, NO_DIGEST, Row
from .book import SUFFIX, Book
from .names import Batch, Tally

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
_BATCH_ROWS: Final = 1 << 20


def read_produced(paths: Iterable[str]) -> tuple[Book, list[Row]]:
    """The ledgers under ``paths``, and the rows of tables. Raises InputError."""
    book, rows = Book(), list[Row]()
    for file in _files(paths):
        if not _into(book, file):
            for batch in _tables(file, (SHARD, NUMBER, COUNT)):
                shards, numbers, counts = (batch[name].cast(pa.string()) for name in (SHARD, NUMBER, COUNT))
                values = zip(shards.to_pylist(), numbers.to_pylist(), counts.to_pylist(), strict=True)
                rows += [Row("delivered", shard, number, int(count), 0) for shard, number, count in values]
    return book, rows


def read_handled(paths: Iterable[str], tally: Tally) -> Book:
    """Tallies all tables and ledgers under ``paths``. Gives the ledgers, for their holes. Raises
    InputError."""
    book, queue = Book(), _Queue(tally)
    for file in _files(paths):
        if not _into(book, file):
            for batch in _tables(file, (SHARD, NUMBER, SUB)):
                _add(tally, batch)
    for _, rows in book.rows("handled"):
        rows = [row if row.shard_id else queue.named(row) for row in rows]
        for kind in ("handled", "before"):
            _add_rows(tally, [row for row in rows if row.kind == kind], before=kind == "before")
    return book


class _Queue:
    """The Kinesis records of a stream that a queue has given, which names neither shard nor number."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._homes: dict[str, Row] = {}
        self._free: dict[bytes, list[Row]] = {}

    def named(self, row: Row) -> Row:
        """The row, with the name of a Kinesis record of its digest: always the same for the same record of
        the queue, another for each other one."""
        # AUD-19: "A record of a queue MUST count as one of the Kinesis records that have its digest; two
        # records of a queue are never the same one."
        if not self._tally.queued:
            for known in sorted(self._tally.names.rows, key=lambda known: CODES[known.kind], reverse=True):
                if known.digest != NO_DIGEST:
                    self._free.setdefault(known.digest, []).append(known)
        self._tally.queued[row.shard_id, row.sequence_number] = row.digest
        if row.sequence_number not in self._homes and self._free.get(row.digest):
            self._homes[row.sequence_number] = self._free[row.digest].pop()
        home = self._homes.get(row.sequence_number, row)
        return row.replace(shard_id=home.shard_id, sequence_number=home.sequence_number)


def _files(paths: Iterable[str]) -> Iterator[Location]:
    return (Location(path) for path in dict.fromkeys(piece.path for piece in plan(paths)))


def _into(book: Book, file: Location) -> bool:
    """Put a file of a ledger into ``book``. False: it is a table."""
    if file.name.endswith(SUFFIX):
        book.add_file(file.name, file.read())
        return True
    if file.name.endswith(_TABLES) and "json" not in file.name:
        return False
    data = file.read()
    if file.name.endswith(".gz"):
        try:
            data = zlib.decompress(data, 47)
        except zlib.error as error:
            raise InputError(code="unreadable", path=file.path, reason=str(error)) from None
    if book.add_lines(file.name, data):
        return True
    if file.name.endswith(_TABLES):
        return False
    raise InputError(code="unreadable", path=file.path, reason="neither a table nor a ledger")


def _tables(file: Location, wanted: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The columns of ``wanted``, and `LAST` if there is one, some rows at a time. `SUB` may be missing."""
    system, inner = file.opened()

    def stream() -> Any:
        return system.open_input_stream(inner, compression="gzip" if inner.endswith(".gz") else None)

    with readable(file.path), ExitStack() as files:
        batches: Iterable[Any]
        if file.name.endswith(".parquet"):
            columns = _columns(pq.read_schema(inner, filesystem=system).names, wanted, file)
            text = [columns[SHARD], columns[NUMBER]]
            parquet = files.enter_context(pq.ParquetFile(inner, filesystem=system, read_dictionary=text))
            batches = parquet.iter_batches(_BATCH_ROWS, columns=list(columns.values()))
        elif "csv" in file.name:
            with pa.csv.open_csv(stream()) as reader:
                columns = _columns(reader.schema.names, wanted, file)
            # (A sequence number has too many digits for a number.)
            text_only = pa.csv.ConvertOptions(column_types=dict.fromkeys(columns.values(), pa.string()))
            batches = files.enter_context(pa.csv.open_csv(stream(), convert_options=text_only))
        else:
            table = pa.json.read_json(stream())
            columns, batches = _columns(table.schema.names, wanted, file), table.to_batches()
        for batch in batches:
            yield {name: batch[column] for name, column in columns.items()}


def _columns(names: Iterable[str], wanted: tuple[str, ...], file: Location) -> dict[str, str]:
    plain = {re.sub(r"[^a-z]", "", name.lower()): name for name in names}
    found = {}
    for column in (*wanted, LAST):
        spelled = next((name for key, name in plain.items() if re.fullmatch(_SPELLINGS[column], key)), None)
        if spelled is not None:
            found[column] = spelled
        elif column not in (SUB, LAST):
            reason = f"no column {column}; it has: {', '.join(plain.values())}"
            raise InputError(code="unreadable", path=file.path, reason=reason)
    return found


def _add(tally: Tally, columns: dict[str, Any]) -> None:
    shard, number = (_coded(columns[name]) for name in (SHARD, NUMBER))
    home, code = (pc.fill_null(column.indices, -1).to_numpy().astype(np.int64) for column in (shard, number))
    shards, numbers = shard.dictionary.to_pylist(), number.dictionary.to_pylist()
    # LIN-1's form: digits, without zeros before them.
    canonical = [bool(text) and text.isdigit() and (text == "0" or text[0] != "0") for text in numbers]
    good = (home >= 0) & np.array([*canonical, False])[code]
    users = [
        pc.fill_null(columns[name].cast(pa.int64()), 0).to_numpy() for name in (SUB, LAST) if name in columns
    ]
    parts = [home, code, *users]
    tally.bad += int((~good).sum())
    home, code, *users = (part[good] for part in parts)
    # A sequence number is of one shard, in all but made-up tables: then it names the Kinesis record alone.
    of, many = np.full(len(numbers), -1), len(numbers)
    of[code] = home
    if (of[code] == home).all():
        pairs, record = of[of >= 0] * many + np.flatnonzero(of >= 0), (np.cumsum(of >= 0) - 1)[code]
    else:
        pairs, record = np.unique(home * many + code, return_inverse=True)
    named = [divmod(pair, many) for pair in pairs.tolist()]
    tally.add(
        Batch(
            [shards[one] for one, _ in named],
            [numbers[one].encode() for _, one in named],
            record,
            *(users or [np.zeros(len(record), np.int64)]),
        )
    )


def _coded(column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        return column.cast(pa.dictionary(column.type.index_type, pa.string()))
    return column.cast(pa.string()).dictionary_encode()


def _add_rows(tally: Tally, rows: list[Row], *, before: bool) -> None:
    places = [(row.shard_id, row.sequence_number) for row in rows]
    which = {place: at for at, place in enumerate(dict.fromkeys(places))}
    record = np.array([which[place] for place in places], np.int64)
    first = np.array([row.first for row in rows], np.int64)
    last = np.array([row.first + row.user_records - 1 for row in rows], np.int64)
    names = [shard for shard, _ in which], [number.encode() for _, number in which]
    tally.add(Batch(*names, record, first, last, before))
