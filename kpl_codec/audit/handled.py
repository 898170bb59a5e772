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

import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from ..captures import InputError, Location, plan, readable
from ..ledger import Row
from .book import SUFFIX, Book
from .tally import Tally

SHARD: Final = "shard"
NUMBER: Final = "sequencenumber"
SUB: Final = "subsequencenumber"
LAST: Final = "lastsubsequencenumber"
COUNT: Final = "userrecords"
_SPELLINGS: Final = {
    SHARD: ("shard", "shardid", "kinesisshardid"),
    NUMBER: ("sequencenumber", "seq", "kinesissequencenumber"),
    SUB: ("subsequencenumber", "firstsubsequencenumber", "sub", "subseq"),
    LAST: ("lastsubsequencenumber",),
    COUNT: ("userrecords", "userrecordcount", "count"),
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


def read_handled(
    paths: Iterable[str], tally: Tally, *, told: Callable[[int], None] = lambda rows: None
) -> Book:
    """Tallies all tables and ledgers under ``paths``: each path is a source, and each writer of a ledger.
    ``told``: called with the rows so far. Gives the ledgers, for their holes. Raises InputError."""
    book = Book()
    for path in paths:
        for file in _files([path]):
            if _into(book, file):
                continue
            tally.source(path)
            for batch in _tables(file, (SHARD, NUMBER, SUB)):
                _add(tally, batch)
                told(tally.rows)
    for writer, rows in book.rows("handled"):
        tally.source(f"ledger {writer}")
        for kind in ("handled", "before"):
            _add_rows(tally, [row for row in rows if row.kind == kind], before=kind == "before")
    return book


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
    with readable(file.path):
        if file.name.endswith(".parquet"):
            with pq.ParquetFile(inner, filesystem=system, memory_map=file.is_local) as parquet:
                columns = _columns(parquet.schema_arrow.names, wanted, file)
                text = [columns[SHARD], columns[NUMBER]]
            with pq.ParquetFile(inner, filesystem=system, read_dictionary=text) as parquet:
                for batch in parquet.iter_batches(_BATCH_ROWS, columns=list(columns.values())):
                    yield {name: batch[column] for name, column in columns.items()}
            return
        with system.open_input_stream(inner, compression="gzip" if inner.endswith(".gz") else None) as source:
            if "csv" in file.name:
                convert = pa.csv.ConvertOptions(column_types=_Text())
                batches: Iterable[Any] = pa.csv.open_csv(source, convert_options=convert)
            else:
                batches = pa.json.read_json(io.BytesIO(source.read())).to_batches()
            for batch in batches:
                columns = _columns(batch.schema.names, wanted, file)
                yield {name: batch[column] for name, column in columns.items()}


class _Text(dict[str, pa.DataType]):
    """Column types: a sequence number has too many digits for a number."""

    def items(self) -> Any:
        names = {spelling for many in _SPELLINGS.values() for spelling in many}
        return [(name, pa.string()) for name in _written(names)]


def _written(names: Iterable[str]) -> list[str]:
    """All usual ways to write column names."""
    parts = {
        "shardid": "shard id", "kinesisshardid": "kinesis shard id", "sequencenumber": "sequence number",
        "kinesissequencenumber": "kinesis sequence number", "subsequencenumber": "sub sequence number",
    }  # fmt: skip
    found = []
    for name in names:
        words = parts.get(name, name).split()
        camel = words[0] + "".join(word.title() for word in words[1:])
        found += [name, "_".join(words), camel, camel[0].upper() + camel[1:]]
    return list(dict.fromkeys(found))


def _columns(names: Iterable[str], wanted: tuple[str, ...], file: Location) -> dict[str, str]:
    plain = {re.sub(r"[^a-z]", "", name.lower()): name for name in names}
    found = {}
    for name in (*wanted, LAST):
        spelling = next((one for one in _SPELLINGS[name] if one in plain), None)
        if spelling is not None:
            found[name] = plain[spelling]
        elif name in (SHARD, NUMBER, COUNT):
            listed = ", ".join(plain.values())
            raise InputError(code="unreadable", path=file.path, reason=f"no column {name}; it has: {listed}")
    return found


def _add(tally: Tally, columns: dict[str, Any]) -> None:
    """Tally a batch of a table."""
    shard, number = (_coded(columns[name]) for name in (SHARD, NUMBER))
    rest = [_whole(columns[name]) for name in (SUB, LAST) if name in columns]
    parts = [_codes(shard), _codes(number), *(rest or [np.zeros(len(shard), np.int64)])]
    numbers = np.array([(text or "").encode() for text in number.dictionary.to_pylist()], dtype=bytes)
    # LIN-1's form: digits, without zeros before them.
    canonical = np.char.isdigit(numbers) & (
        (np.char.str_len(numbers) == 1) | ~np.char.startswith(numbers, b"0")
    )
    if shard.null_count or number.null_count or not canonical.all():
        good = (parts[0] >= 0) & (parts[1] >= 0)
        good[good] = canonical[parts[1][good]]
        tally.bad += int((~good).sum())
        parts = [part[good] for part in parts]
    home, code, first, *last = parts
    if not len(home):
        return
    # A sequence number is of one shard, in all but made-up tables: then it names the Kinesis record alone.
    of = np.full(len(numbers), -1, home.dtype)
    of[code] = home
    shards = shard.dictionary.to_pylist()
    if np.array_equal(of[code], home):
        used = np.flatnonzero(of >= 0)
        compact = np.zeros(len(numbers), np.int32)
        compact[used] = np.arange(len(used), dtype=np.int32)
        record, of, numbers = compact[code], of[used], numbers[used]
    else:
        pairs, record = np.unique(home.astype(np.int64) * len(numbers) + code, return_inverse=True)
        of, numbers = pairs // len(numbers), numbers[pairs % len(numbers)]
    tally.add([shards[one] for one in of], numbers, record, first, *last)


def _codes(column: Any) -> Any:
    """The indices of a dictionary array, -1 for null."""
    indices = pc.fill_null(column.indices, -1) if column.null_count else column.indices
    return indices.to_numpy()


def _coded(column: Any) -> Any:
    """A column of text as a dictionary array."""
    if pa.types.is_dictionary(column.type):
        return column.cast(pa.dictionary(column.type.index_type, pa.string()))
    return column.cast(pa.string()).dictionary_encode()


def _whole(column: Any) -> Any:
    column = column.cast(pa.int64())
    return (pc.fill_null(column, 0) if column.null_count else column).to_numpy()


def _add_rows(tally: Tally, rows: list[Row], *, before: bool) -> None:
    if not rows:
        return
    places = {(row.shard_id, row.sequence_number): 0 for row in rows}
    places = {place: at for at, place in enumerate(places)}
    tally.add(
        [shard for shard, _ in places],
        np.array([number.encode() for _, number in places], dtype=bytes),
        np.array([places[row.shard_id, row.sequence_number] for row in rows], np.int64),
        np.array([row.first for row in rows], np.int64),
        np.array([row.first + row.user_records - 1 for row in rows], np.int64),
        before=before,
    )
