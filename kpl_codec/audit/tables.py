"""Reads tables of handled user records: Parquet, CSV (RFC 4180) and JSON lines, each as batches of columns.
What names no user record is a hole that reaches what it may have named (AUD-21).

The columns are shardId, sequenceNumber and subSequenceNumber (or shard, seq, sub), in any spelling; with
``lastSubSequenceNumber`` a row stands for several user records, with ``streamName`` rows of other streams are
left out."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..captures.parquet_rows import joined_at
from ..rendering.labels import plural
from ..shards.stream_name import Stream, StreamNameError, stream_of
from .index import NO_SUB_SEQUENCE_NUMBER, Tally, is_number
from .ledger_lines import Origin
from .sources import Cut, Gap, Holes, InputFile, Lines, NameSearch, may_name, open_file

STREAM, SHARD, NUMBER, SUB, LAST = "streamName", "shardId", "sequenceNumber", "subSequenceNumber", "last"
#: How columns are spelled: their letters alone, in lower case.
_SPELLINGS: Final = {
    STREAM: r"streamname",
    SHARD: r"(kinesis)?shard(id)?",
    NUMBER: r"(kinesis)?sequencenumber|seq",
    SUB: r"(first)?subsequencenumber|sub|subseq",
    LAST: r"lastsubsequencenumber",
}
_ROWS: Final = 1 << 15
_SHARD_ID: Final = re.compile(r"shardId-[0-9]{12}", re.ASCII)
#: How the row of a table in JSON lines begins.
_CUT_ROW: Final = re.compile(rb'\{(\s*"|$)')
#: Texts that stand for an empty cell, in lower case.
_NULLS: Final = {"", "null", "none", "nan", "na", "n/a", "\\n"}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?", re.ASCII)
#: A sequence number that some program has turned into a floating-point number, such as 4.96e+55.
_FLOAT: Final = re.compile(r"[0-9](\.[0-9]{1,20})?e\+?[0-9]{1,3}", re.ASCII | re.IGNORECASE)
_DIGITS_LOST: Final = "sequence numbers as floating point, whose digits were lost: write them as text"
_NO_STREAM_NAME: Final = "rows with a streamName that is no name of a stream"
_CUT: Final = "a line that is cut, or no row of the table"
_END: Final = "the last line has no end, so its last cell may be cut: end each line"
_SWALLOWED: Final = "a cell of several lines that names user records: is there a quote without its end?"
#: Keys of a ledger's row that no table needs.
_OF_LEDGERS: Final = {"kind", "user_records", "at_ms", "digest"}
_LEDGER_ROWS: Final = "rows of a ledger that belong to no member: give the ledger itself, with its headers"
_TWICE: Final = "a row that has a member twice"
_OBJECTS: Final = "JSON that is no object a line: write an object a line, as `jq -c '.[]'` does"
_HEADER_NAMES: Final = "its header names a user record: the line end behind the header was lost"
_NO_HEADER: Final = "no column {}; it has: {}; write CSV with commas and a header"

#: What is wrong with a row, by what `Tally.add` says of it; 0: it names no place.
WRONG_ROWS: Final = (
    "rows without a shard id, or without a sequence number as text",
    "rows that name no user record: the sub-sequence number is none, or the run has no end",
    "rows without a sub-sequence number, which name Kinesis records of several user records",
    "rows with the shard id of one shard and the sequence number of another",
)
#: Whose a row is by its stream: the audited one's; so by its name alone; another's; nobody can say.
_OURS, _BY_NAME, _ANOTHER, _NO_STREAM = range(4)


class Refused(Exception):
    """A table that cannot be read: why, and what to write instead."""


class Batch(NamedTuple):
    """Rows of a table: by column arrays (or lists of texts), and the number of each row in the file, from
    1."""

    columns: dict[str, Any]
    numbers: Any


def columns_of(names: Sequence[str]) -> dict[str, str]:
    """The table's own names of the columns that an audit needs. Raises Refused for two of one meaning, and
    for rows of a ledger: what such a row says of its user records depends on its kind."""
    columns: dict[str, str] = {}
    if {*names} >= _OF_LEDGERS:
        raise Refused(_LEDGER_ROWS)
    for name in names:
        key = re.sub(r"[^a-z]", "", name.lower())
        column = next((one for one, spelling in _SPELLINGS.items() if re.fullmatch(spelling, key)), None)
        if column is not None and column in columns:
            raise Refused(f"it has several columns {name}")
        if column is not None:
            columns[column] = name
    return columns


def _needed(names: Sequence[str]) -> dict[str, str]:
    columns = columns_of(names)
    for column, text in ((SHARD, "shard"), (NUMBER, "sequence_number")):
        if column not in columns:
            shown = ", ".join(re.sub(r"[^ -~]", "?", name)[:40] for name in names[:10])
            raise Refused(_NO_HEADER.format(text, shown))
    return columns


# -- the three forms ------------------------------------------------------------------------------


def parquet_batches(file: InputFile) -> Iterator[Batch]:
    """The rows of a Parquet file. Raises Refused, OSError, and what pyarrow raises."""
    with open_file(file) as source, pq.ParquetFile(source) as plain:
        columns = _needed(plain.schema_arrow.names)
        # ACC-6, as in captures/parquet_rows.py
        if (joined := joined_at(source, plain, columns[NUMBER])) is not None:
            raise Refused(joined)
        kind = plain.schema_arrow.field(columns[NUMBER]).type
        if pa.types.is_floating(kind):
            why = f"column {columns[NUMBER]} is {kind}, which loses digits of a sequence number: write text"
            raise Refused(why)
        rows = plain.metadata.num_rows
    with open_file(file) as source:
        text = [columns[name] for name in (STREAM, SHARD, NUMBER) if name in columns]
        with pq.ParquetFile(source, read_dictionary=text, page_checksum_verification=True) as table:
            read = 0
            for batch in table.iter_batches(_ROWS * 8, columns=[*columns.values()]):
                numbers = np.arange(read + 1, read + 1 + len(batch))
                yield Batch({name: batch[own] for name, own in columns.items()}, numbers)
                read += len(batch)
            if read != rows:
                raise Refused(f"its footer says {plural(rows, 'row')}, and it has {read:,}")


#: Rows of a text: the number of each in its file, from 1, and its cells by column.
_TextRows = Iterator[tuple[int, dict[str, Any]]]


def batches_of(rows: _TextRows) -> Iterator[Batch]:
    while some := [*islice(rows, _ROWS)]:
        names = dict.fromkeys((SHARD, NUMBER, *chain.from_iterable(cells for _, cells in some)))
        texts = {name: [_text_of(cells.get(name)) for _, cells in some] for name in names}
        columns = {name: pa.array(cells, pa.string()) for name, cells in texts.items()}
        yield Batch(columns, np.array([number for number, _ in some]))


def json_rows(file: str, lines: Lines, holes: Holes, may_be_put: Callable[[str], bool]) -> _TextRows:
    """The rows of JSON lines, each with its own spelling of the columns."""
    known: dict[tuple[str, ...], dict[str, str]] = {}
    search = NameSearch(may_be_put)
    number = 0
    for line in lines:
        if isinstance(line, Gap):
            holes.add(file, line.why, kind="bytes")
            continue
        if not line.strip():
            continue
        number += 1
        try:
            text = line.removeprefix(b"\xef\xbb\xbf")
            row: Any = json.loads(text, parse_float=str, parse_int=str, object_pairs_hook=_members)
            if b"\\u" in line:
                json.dumps(row, ensure_ascii=False).encode()  # half of a surrogate pair
            if (keys := tuple(row) if isinstance(row, dict) else ()) not in known:
                known[keys] = columns_of(keys)
            columns = known[keys]
        except Refused as refused:
            holes.add(file, str(refused), number)
            continue
        except (ValueError, RecursionError):
            row, columns = None, {}
        if {SHARD, NUMBER} <= columns.keys():
            yield number, {column: row[own] for column, own in columns.items()}
        elif row is None and _is_cut_row(line):
            holes.add(file, _CUT, number)
        elif search.finds(line):
            if isinstance(row, dict):
                yield number, {column: row[own] for column, own in columns.items()}
            else:
                holes.add(file, _OBJECTS, number)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises Refused for an object that has a member twice: only one of the two would be read."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Refused(_TWICE)
    return members


def _is_cut_row(line: bytes) -> bool:
    """Whether a line that is no JSON is of a row of a table, and not of a list or of an object of many
    lines."""
    return _CUT_ROW.match(line) is not None and (isinstance(line, Cut) or not line.endswith((b"{", b",")))


def csv_rows(file: str, lines: Lines, holes: Holes, may_be_put: Callable[[str], bool]) -> _TextRows:
    """The rows of a CSV file with a header. Raises Refused."""
    header: list[str] = []
    where: dict[str, int] = {}
    number = 0
    for cells, text in _records(file, lines, holes):
        if not header:
            header = [cell.strip() for cell in cells or [text[:100]]]
            where = {column: header.index(own) for column, own in _needed(header).items()}
            if may_name([text.encode()], may_be_put):
                raise Refused(_HEADER_NAMES)
            continue
        if cells and [cell.strip() for cell in cells] == header:  # of a file that was joined
            continue
        number += 1
        if cells is None or len(cells) != len(header):
            holes.add(file, _CUT, number)
            continue
        if "\n" in text[:-1]:  # an open quote may have swallowed rows
            for cell in (cell for cell in cells if "\n" in cell):
                for one in filter(may_be_put, {*re.findall("[0-9]{1,129}", cell)}):
                    holes.add(file, _SWALLOWED, number, number=one)
        last = max(where, key=where.__getitem__)
        if not text.endswith("\n") and where[last] == len(header) - 1:
            record = cells[where[NUMBER]].strip()
            holes.add(file, _END, number, number=record if last != NUMBER and is_number(record) else None)
        yield number, {column: cells[at] for column, at in where.items()}


def _records(file: str, lines: Lines, holes: Holes) -> Iterator[tuple[list[str] | None, str]]:
    """Each record of a CSV file that is not blank: its cells (None: it is none), and its text. What touches
    a gap is no record: its first or last cells may be cut, and a quote may open in one record, and end in
    another."""
    # (A cell may hold the data of a Kinesis record.)
    csv.field_size_limit(max(csv.field_size_limit(), 1 << 26))
    texts: list[str] = []
    is_cut, has_ended = False, False
    rest = pairwise(chain(lines, (None,)))

    def to_gap() -> Iterator[str]:
        nonlocal is_cut, has_ended
        for line, follower in rest:
            if isinstance(line, Gap):
                holes.add(file, line.why, kind="bytes")
                return
            assert line is not None
            is_cut |= isinstance(line, Cut) and isinstance(follower, Gap)
            end = "" if isinstance(line, Cut) else "\n"
            texts.append(line.decode("utf-8-sig", "replace").removesuffix("\r") + end)
            yield texts[-1]
        has_ended = True

    while not has_ended:
        reader = csv.reader(to_gap(), strict=True)
        while True:
            texts.clear()
            try:
                cells = next(reader, None)
            except csv.Error:
                cells = None
            if not texts:
                break
            text = "".join(texts)
            if text.strip():
                yield None if is_cut else cells, text
            is_cut = False
        is_cut = True


# -- cells ----------------------------------------------------------------------------------------


class Streams:
    """Which rows are of the stream that is audited. ``others``: names and ARNs of other streams; ``arns``: of
    this one, and of streams of its name."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.others: set[str] = set()
        self.arns: set[str] = set() if stream.arn is None else {stream.arn}

    def has(self, origin: Origin) -> bool:
        """Whether rows of this origin are of the stream."""
        if origin.stream_arn is not None and origin.stream == self.stream.name:
            self.arns.add(origin.stream_arn)
        if origin.is_of(self.stream):
            return True
        self.others.add(str(origin))
        return False

    def sort(self, text: str) -> int:
        """Whose a row is with this streamName."""
        try:
            stream = stream_of(text)
        except StreamNameError:
            return _NO_STREAM
        if not self.has(Origin(stream.name, stream.arn)):
            return _ANOTHER
        return _OURS if stream.arn is not None else _BY_NAME


class _Cells(NamedTuple):
    """A column: for each row the index of its text (-1: empty), and the different texts."""

    codes: Any
    texts: list[str]

    def map(self, function: Callable[[str], Any], empty: Any) -> Any:
        """What ``function`` says of each row's text; ``empty`` of an empty cell."""
        return np.array([*map(function, self.texts), empty])[self.codes]

    def text(self, row: int) -> str:
        return self.texts[self.codes[row]] if self.codes[row] >= 0 else ""


def count_batch(tally: Tally, holes: Holes, streams: Streams, file: str, batch: Batch) -> None:
    """Count the rows of a table of handled user records."""
    columns, numbers = {name: _cells(column) for name, column in batch.columns.items()}, batch.numbers
    # A cell that is no shard id of Kinesis, and that no ledger has, may mean any shard.
    known = tally.index.codes.keys() - _NULLS
    shard, number = columns[SHARD], columns[NUMBER]
    has_shard = shard.map(lambda text: text in known or bool(_SHARD_ID.fullmatch(text)), False)
    has_number = number.map(is_number, False)
    first = last = np.full(len(numbers), NO_SUB_SEQUENCE_NUMBER)
    if SUB in columns:
        first = last = columns[SUB].map(_whole_number, NO_SUB_SEQUENCE_NUMBER)
    if LAST in columns:
        last = columns[LAST].map(_whole_number, NO_SUB_SEQUENCE_NUMBER)
        last = np.where(last == NO_SUB_SEQUENCE_NUMBER, first, last)
    stream = columns[STREAM].map(streams.sort, _OURS) if STREAM in columns else np.full(len(numbers), _OURS)
    named = has_shard & has_number & ((stream == _OURS) | (stream == _BY_NAME))
    rows = np.flatnonzero(named)
    of_row = np.zeros(len(numbers), np.int64)
    if len(rows):
        size = len(number.texts)
        pairs, record = np.unique(shard.codes[rows] * size + number.codes[rows], return_inverse=True)
        places = [(shard.texts[pair // size], number.texts[pair % size]) for pair in pairs.tolist()]
        of_row[rows] = tally.add(places, record.ravel(), first[rows], last[rows], sure=stream[rows] == _OURS)
    lost = ~named & (stream != _ANOTHER)
    tally.bad += int(np.count_nonzero(lost))
    wrong = np.flatnonzero(lost | (of_row > 0))
    facts = np.stack((shard.codes, number.codes, of_row, stream))[:, wrong]
    _, at, times = np.unique(facts, axis=1, return_index=True, return_counts=True)
    for row, count in zip(wrong[at].tolist(), times.tolist(), strict=True):
        why = WRONG_ROWS[of_row[row]]
        if _FLOAT.fullmatch(number.text(row)):
            why = _DIGITS_LOST
        elif has_shard[row] and has_number[row] and stream[row] == _NO_STREAM:
            why = _NO_STREAM_NAME
        # What such a row may have named is what of it is legible.
        legible_number = number.text(row) if has_number[row] else None
        legible_shard = shard.text(row) if has_shard[row] else None
        at_row = int(numbers[row])
        holes.add(file, why, at_row, times=count, number=legible_number, shard=legible_shard)


def _cells(column: Any) -> _Cells:
    """A column as texts. Any other cell, such as a list, becomes what `str` makes of it."""
    if pa.types.is_nested(column.type):
        column = pa.array(map(_text_of, column.to_pylist()), pa.string())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    different = column.dictionary
    if pa.types.is_string(different.type) or pa.types.is_large_string(different.type):
        different = different.cast(pa.large_binary())  # (it may be no UTF-8)
    texts = [(_text_of(value) or "").strip() for value in different.to_pylist()]
    codes = pc.fill_null(column.indices.cast(pa.int64()), -1).to_numpy()
    return _Cells(np.array([*(at if text else -1 for at, text in enumerate(texts)), -1])[codes], texts)


def _text_of(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)


def _whole_number(text: str) -> int:
    """The number that a cell is; -1 for none from 0 on, `NO_SUB_SEQUENCE_NUMBER` for what stands for an empty
    cell."""
    if text.lower() in _NULLS:
        return NO_SUB_SEQUENCE_NUMBER
    return max(int(text.partition(".")[0]), -1) if _INTEGER.fullmatch(text) else -1
