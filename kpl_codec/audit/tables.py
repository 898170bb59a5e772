"""Reads tables of handled user records: Parquet, CSV (RFC 4180) and JSON lines, each as batches of columns.
What names no user record is a hole that reaches what it may have named (AUD-21).

The columns are shardId, sequenceNumber and subSequenceNumber (or shard, seq, sub), in any spelling; with
``lastSubSequenceNumber`` a row stands for several user records, with ``streamName`` rows of other streams are
left out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..rendering.labels import plural
from ..shards.stream_name import StreamNameError, stream_of
from .index import NO_SUB_SEQUENCE_NUMBER, Tally, is_number
from .ledger_lines import Origin
from .sources import Cut, Gap, Holes, InputFile, may_name, open_file

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
_CELL: Final = re.compile(r'(?:"((?:[^"]|"")*)"|([^",]*))(,|$)')
#: Texts that stand for an empty cell, in lower case.
_NULLS: Final = {"", "null", "none", "nan", "na", "n/a", "\\n"}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?", re.ASCII)
#: A sequence number that some program has turned into a floating-point number, such as 4.96e+55.
_FLOAT: Final = re.compile(r"[0-9](\.[0-9]{1,20})?e\+?[0-9]{1,3}", re.ASCII | re.IGNORECASE)
_SHORT_NUMBER: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_NO_NUMBER: Final = " is no sequence number: digits were lost; write it as text"
_CUT: Final = "a line that is cut, or no row of the table"
_END: Final = "the last line has no end, so its last cell may be cut: end each line"
_OBJECTS: Final = "JSON that is no object a line: write an object a line, as `jq -c '.[]'` does"
_NO_HEADER: Final = "no column {}; it has: {}; write CSV with commas and a header"


class Refused(Exception):
    """A table that cannot be read: why, and what to write instead."""


class Batch(NamedTuple):
    """Rows of a table: by column arrays (or lists of texts), and the number of each row in the file, from
    1."""

    columns: dict[str, Any]
    numbers: Any


def columns_of(names: Iterable[str]) -> dict[str, str]:
    """The table's own names of the columns that an audit needs. Raises Refused for two of one meaning."""
    columns: dict[str, str] = {}
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


def json_batches(
    file: str, items: Iterable[Any], holes: Holes, is_put: Callable[[str], bool]
) -> Iterator[Batch]:
    """The rows of JSON lines, each with its own spelling of the columns."""
    known: dict[tuple[str, ...], dict[str, str]] = {}
    rows, numbers, number = list[dict[str, Any]](), list[int](), 0
    for item in items:
        if isinstance(item, Gap):
            holes.add(file, item.why, kind="bytes")
            continue
        line = item.text if isinstance(item, Cut) else item
        if not line.strip():
            continue
        number += 1
        try:
            row = json.loads(line.removeprefix(b"\xef\xbb\xbf"), parse_float=str, parse_int=str)
            if not isinstance(row, dict):
                raise TypeError
            if b"\\u" in line:
                json.dumps(row, ensure_ascii=False).encode()  # half of a surrogate pair
        except (ValueError, RecursionError, TypeError):
            holes.add(
                file, _CUT if line[:1] == b"{" and not line.rstrip().endswith(b",") else _OBJECTS, number
            )
            continue
        try:
            keys = tuple(row)
            if keys not in known:
                known[keys] = columns_of(keys)
            columns = known[keys]
        except Refused as refused:
            holes.add(file, str(refused), number)
            continue
        if not {SHARD, NUMBER} <= columns.keys() and not may_name([line], is_put):
            continue
        rows.append({column: row[own] for column, own in columns.items()})
        numbers.append(number)
        if len(rows) == _ROWS:
            yield _batch_of(rows, numbers)
            rows, numbers = [], []
    if rows:
        yield _batch_of(rows, numbers)


def _batch_of(rows: list[dict[str, Any]], numbers: list[int]) -> Batch:
    names = dict.fromkeys((SHARD, NUMBER, *(name for row in rows for name in row)))
    return Batch({name: [row.get(name) for row in rows] for name in names}, np.array(numbers))


def csv_batches(
    file: str, items: Iterable[Any], holes: Holes, is_put: Callable[[str], bool]
) -> Iterator[Batch]:
    """The rows of a CSV file with a header. Raises Refused."""
    records = _records(items)
    header: list[str] = []
    for record, *_ in records:
        if isinstance(record, Gap):
            holes.add(file, record.why, kind="bytes")
        elif record.strip():
            header = _cells(record.removeprefix("\ufeff")) or [record[:100]]
            break
    if not header:
        return
    columns = _needed([name.strip() for name in header])
    where = {column: [name.strip() for name in header].index(own) for column, own in columns.items()}
    rows, numbers, number = list[list[str]](), list[int](), 0
    for record, lines, ended in records:
        if isinstance(record, Gap):
            holes.add(file, record.why, kind="bytes")
            continue
        if not record.strip():
            continue
        number += 1
        cells = _cells(record)
        if cells == header:  # of a file that was joined
            number -= 1
            continue
        if cells is None or len(cells) != len(header):
            holes.add(file, _CUT, number)
            continue
        if lines > 1:  # an open quote may have swallowed rows
            for text in {text for cell in cells if "\n" in cell for text in re.findall("[0-9]{1,129}", cell)}:
                if is_put(text):
                    why = "a cell of several lines that names user records: is there a quote without its end?"
                    holes.add(file, why, number, number=text)
        last = max(where, key=where.__getitem__)
        if not ended and where[last] == len(header) - 1:
            is_name = last != NUMBER and is_number(cells[where[NUMBER]].strip())
            holes.add(file, _END, number, number=cells[where[NUMBER]].strip() if is_name else None)
        rows.append([cells[at] for at in where.values()])
        numbers.append(number)
        if len(rows) == _ROWS:
            yield Batch(dict(zip(where, map(list, zip(*rows, strict=True)), strict=True)), np.array(numbers))
            rows, numbers = [], []
    if rows:
        yield Batch(dict(zip(where, map(list, zip(*rows, strict=True)), strict=True)), np.array(numbers))


def _records(items: Iterable[Any]) -> Iterator[tuple[str | Gap, int, bool]]:
    """Each record of a CSV file: its text, how many lines it has, whether the last one has an end."""
    parts: list[str] = []
    quotes = size = 0
    for item in chain(items, [None]):
        if item is None or isinstance(item, Gap):
            if parts:
                yield "\n".join(parts), len(parts), False
            if item is not None:
                yield item, 0, True
            parts, quotes, size = [], 0, 0
            continue
        text = (item.text if isinstance(item, Cut) else item).decode("utf-8", "replace").removesuffix("\r")
        parts.append(text)
        quotes += text.count('"')
        size += len(text)
        if quotes % 2 == 0:
            yield "\n".join(parts), len(parts), not isinstance(item, Cut)
            parts, quotes, size = [], 0, 0
        elif size > 1 << 26:
            yield Gap("a quote without its end"), 0, True
            parts, quotes, size = [], 0, 0


def _cells(record: str) -> list[str] | None:
    """The cells of a record; None if it is none."""
    if '"' not in record:
        return record.split(",")
    cells, at = [], 0
    while match := _CELL.match(record, at):
        quoted = match[1]
        cells.append(match[2] if quoted is None else quoted.replace('""', '"'))
        at = match.end()
        if not match[3]:
            return cells
    return None


# -- cells ----------------------------------------------------------------------------------------


class Streams:
    """Which rows are of the stream that is audited. ``others``: names and ARNs of other streams; ``arns``: of
    streams of its name."""

    def __init__(self, stream: str | None, arn: str | None) -> None:
        self.stream, self.arn = stream, arn
        self.others: set[str] = set()
        self.arns: set[str] = set()

    def has(self, origin: Origin) -> bool:
        """Whether rows of this origin are of the stream."""
        if origin.stream_arn is not None and not origin.is_queue and origin.stream == self.stream:
            self.arns.add(origin.stream_arn)
        if origin.is_of(self.stream, self.arn):
            return True
        self.others.add(str(origin.stream_arn or origin.stream))
        return False


def count_batch(tally: Tally, holes: Holes, streams: Streams, file: str, batch: Batch) -> None:
    """Count the rows of a table of handled user records."""
    columns, numbers = batch
    sure = np.ones(len(numbers), bool)
    keep = np.ones(len(numbers), bool)
    no_stream = np.zeros(len(numbers), bool)
    if STREAM in columns:
        code, texts, _ = _names(columns[STREAM], lambda text: True)
        origins = [_origin_of(text) for text in texts]
        of_it = np.array([origin is not None and streams.has(origin) for origin in origins] + [True])[code]
        no_stream = np.array([origin is None for origin in origins] + [False])[code]
        sure = np.array([origin is None or origin.stream_arn is not None for origin in origins] + [True])[
            code
        ]
        keep = of_it | no_stream
    # A cell that is no shard id of Kinesis, and that no ledger has, may mean any shard.
    is_shard_id = tally.index.codes.keys() - _NULLS
    shard, shards, has_shard = _names(
        columns[SHARD], lambda text: text in is_shard_id or bool(_SHARD_ID.fullmatch(text))
    )
    number, texts, has_number = _names(columns[NUMBER], is_number)
    first = last = np.full(len(shard), NO_SUB_SEQUENCE_NUMBER)
    if SUB in columns:
        first = last = _whole_numbers(columns[SUB])
    if LAST in columns:
        last = _whole_numbers(columns[LAST])
        last = np.where(last == NO_SUB_SEQUENCE_NUMBER, first, last)
    named = has_shard & has_number & keep & ~no_stream
    tally.bad += int(np.count_nonzero(keep & ~named))
    is_float = ~has_number & _matches(_FLOAT, texts)[number]
    is_short = ~is_float & ~has_shard & _matches(_SHORT_NUMBER, shards)[shard]
    empty = (shard < 0) & (number < 0)
    for wrong, why, cells in (
        (is_float, _NO_NUMBER, (texts, number)),
        (is_short, " is no shard id", (shards, shard)),
        (empty, "rows without shard and sequence number", None),
        (no_stream & has_number & has_shard, "rows with a streamName that is no name of a stream", None),
        (
            ~is_float & ~is_short & ~empty,
            "rows without a shard id, or without a sequence number as text",
            None,
        ),
    ):
        at = np.flatnonzero(wrong & keep & ~named)
        if len(at):
            example = f"'{cells[0][cells[1][at[0]]]}'" if cells else ""
            _add_rows(
                holes,
                file,
                why,
                at,
                numbers,
                (shard, shards, has_shard),
                (number, texts, has_number),
                example,
            )
    for which, is_sure in ((named & sure, True), (named & ~sure, False)):
        rows = np.flatnonzero(which)
        if not len(rows):
            continue
        pairs = pa.array(shard[rows] * len(texts) + number[rows]).dictionary_encode()
        codes = [divmod(pair, len(texts)) for pair in pairs.dictionary.to_pylist()]
        places = [(shards[of_shard], texts[of_number]) for of_shard, of_number in codes]
        record = pairs.indices.to_numpy().astype(np.int64)
        invalid, vague, stray = tally.add(places, record, first[rows], last[rows], sure=is_sure)
        for some, why in (
            (stray, "rows with the shard id of one shard and the sequence number of another"),
            (
                invalid,
                "rows that name no user record: the sub-sequence number is none, or the run has no end",
            ),
            (vague, "rows without a sub-sequence number, which name Kinesis records of several user records"),
        ):
            if len(some):
                names = (shard, shards, has_shard), (number, texts, has_number)
                _add_rows(holes, file, why, rows[some], numbers, *names)


_Cells = tuple[Any, list[str], Any]


def _add_rows(
    holes: Holes, file: str, why: str, at: Any, numbers: Any, shard: _Cells, number: _Cells, example: str = ""
) -> None:
    """Note rows that name no user record, by what of them is legible."""
    codes = np.where(number[2][at], number[0][at], -1), np.where(shard[2][at], shard[0][at], -1)
    pairs, times = np.unique(np.stack(codes), axis=1, return_counts=True)
    row = int(numbers[at].min())
    for (of_number, of_shard), count in zip(pairs.T.tolist(), times.tolist(), strict=True):
        legible = number[1][of_number] if of_number >= 0 else None
        in_shard = shard[1][of_shard] if of_shard >= 0 else None
        holes.add(file, why, row, times=count, number=legible, shard=in_shard, example=example)


def _origin_of(text: str) -> Origin | None:
    """The stream that a cell names; None for no name of one."""
    try:
        stream = stream_of(text.strip())
    except StreamNameError:
        return None
    return Origin(stream.name, stream.arn)


def _names(column: Any, is_valid: Callable[[str], bool]) -> _Cells:
    """For each cell the index of its text (-1: empty); the distinct texts; for each cell whether it is
    valid."""
    encoded = _texts(column)
    codes = pc.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy()
    different = [text.strip() for text in encoded.dictionary.to_pylist()]
    codes = np.array([*(at if text else -1 for at, text in enumerate(different)), -1])[codes]
    valid = [bool(text) and is_valid(text) for text in different]
    return codes, different, np.array([*valid, False])[codes]


def _matches(pattern: re.Pattern[str], texts: Sequence[str]) -> Any:
    """Whether each text matches; the last item is for an empty cell (index -1), as in `_names`."""
    return np.array([*(bool(pattern.fullmatch(text)) for text in texts), False])


def _texts(column: Any) -> Any:
    """A column as a dictionary array of texts. Any other cell, such as a list, becomes what `str` makes of
    it."""
    if isinstance(column, list):
        return pa.array(map(_text_of, column), pa.string()).dictionary_encode()
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
        return pa.array(map(_text_of, cells.to_pylist()), pa.string()).dictionary_encode()
    return array


def _text_of(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)


def _whole_numbers(column: Any) -> Any:
    """A column as numbers; -1 for a cell that is no number from 0 on, `NO_SUB_SEQUENCE_NUMBER` for an empty
    one."""
    if isinstance(column, list):
        known: dict[Any, int] = {}
        return np.array(
            [
                known[cell] if cell in known else known.setdefault(cell, _whole_number(cell))
                for cell in map(_plain, column)
            ]
        )
    if pa.types.is_signed_integer(column.type):
        whole = pc.fill_null(column.cast(pa.int64()), NO_SUB_SEQUENCE_NUMBER).to_numpy()
        return np.where((whole < 0) & column.is_valid().to_numpy(zero_copy_only=False), -1, whole)
    numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    encoded = column.dictionary_encode() if numeric or pa.types.is_decimal(column.type) else _texts(column)
    numbers = np.array([*map(_whole_number, encoded.dictionary.to_pylist()), NO_SUB_SEQUENCE_NUMBER])
    return numbers[pc.fill_null(encoded.indices.cast(pa.int64()), len(numbers) - 1).to_numpy()]


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, bool)) else str(value)


def _whole_number(value: Any) -> int:
    if isinstance(value, str):
        text = value.strip().lower()
        if text in _NULLS:
            return NO_SUB_SEQUENCE_NUMBER
        return max(int(text.partition(".")[0]), -1) if _INTEGER.fullmatch(text) else -1
    if value is None or value != value:  # (NaN)
        return NO_SUB_SEQUENCE_NUMBER
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    return max(int(value), -1) if number and abs(value) < 1 << 53 and value == int(value) else -1
