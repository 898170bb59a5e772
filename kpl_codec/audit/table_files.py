"""Opens the files of an audit, and reads tables: Parquet, CSV and JSON lines, some rows at a time.

Of a table with lines that are cut or broken, the other lines are read (AUD-21).
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from ..captures import InputError, Location
from .ledger_reader import LedgerReader

#: Columns, and how they are spelled: their letters alone, in lower case.
SHARD, NUMBER, SUB, LAST, COUNT = "shard", "sequence_number", "sub_sequence_number", "last", "user_records"
_SPELLINGS: Final = {
    SHARD: r"(kinesis)?shard(id)?",
    NUMBER: r"(kinesis)?sequencenumber|seq",
    SUB: r"(first)?subsequencenumber|sub|subseq",
    LAST: r"lastsubsequencenumber",
    COUNT: r"userrecords|userrecordcount|count",
}
TABLES: Final = (".parquet", ".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".json", ".json.gz")
_BATCH_ROWS: Final = 1 << 18


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
    name: str
    size: int


def read_bytes(file: InputFile, most: int | None = None) -> bytes:
    """The first ``most`` bytes of the file, or all, without decompression."""
    system, inner = file.place.filesystem()
    with system.open_input_stream(inner, compression=None) as stream:
        return bytes(stream.read(most))


def open_text(file: InputFile) -> Any:
    """The text of the file, compressed or not."""
    system, inner = file.place.filesystem()
    return system.open_input_stream(inner, compression="gzip" if read_bytes(file, 2) == b"\x1f\x8b" else None)


def read_lines(file: InputFile, progress: ReadProgress) -> Iterator[bytes]:
    """The lines of a text; one above 1 MiB in pieces."""
    read_before = progress.read
    with io.BufferedReader(open_text(file), 1 << 20) as stream:
        while line := stream.readline(1 << 20):
            progress.read = min(progress.read + len(line), read_before + file.size)
            yield line


class BrokenLines:
    """The lines of a table that are no rows, by their row numbers. The reader reports each."""

    why = "a line that is cut, or no row of the table"

    def __init__(self, reader: LedgerReader, file: InputFile) -> None:
        self._reader, self._file = reader, file
        self.numbers: list[int] = []

    def add(self, number: int) -> None:
        self.numbers.append(number)
        self._reader.report_lost(self._file.name, self.why, number)

    def numbers_of_others(self, first: int, count: int) -> Any:
        """The row numbers of the next ``count`` rows from ``first`` on, without those of broken lines."""
        numbers = np.arange(first, first + count + len(self.numbers))
        return numbers[~np.isin(numbers, self.numbers)][:count]


def read_tables(
    file: InputFile, names: tuple[str, ...], progress: ReadProgress, lines: BrokenLines
) -> Iterator[dict[str, Any]]:
    """The columns ``names``, and `LAST` if the table has it, some rows at a time. The table may lack
    `SUB`."""
    system, inner = file.place.filesystem()
    with ExitStack() as files:
        batches: Iterable[Any]
        rows = 0
        if not file.name.endswith(TABLES[1:]):
            columns = _columns(pq.read_schema(inner, filesystem=system), names, file)
            text = [columns[SHARD], columns[NUMBER]]
            parquet = files.enter_context(pq.ParquetFile(inner, filesystem=system, read_dictionary=text))
            rows = parquet.metadata.num_rows
            batches = parquet.iter_batches(_BATCH_ROWS, columns=list(columns.values()))
        elif "csv" in file.name:
            numbered = enumerate(read_lines(file, ReadProgress()), 1)
            head, header = next(((number, line) for number, line in numbered if line.strip()), (0, b""))
            header = b"".join(header.splitlines()[:1]) + b"\n"
            with pa.csv.open_csv(io.BytesIO(header)) as reader:
                # (A sequence number has too many digits for a number type.)
                schema = pa.schema([(name, pa.string()) for name in reader.schema.names])
            columns = _columns(schema, names, file)
            batches = _csv_batches(file, schema, lines, head)
        else:
            try:
                table = pa.json.read_json(open_text(file))
            except pa.ArrowInvalid:
                keys = dict.fromkeys(key for _, row in _json_rows(file) for key in row or ())
                if not keys:
                    raise
                schema = pa.schema(dict.fromkeys(keys, pa.string()))
                columns = _columns(schema, names, file)
                batches = _json_batches(file, [*columns.values()], lines)
            else:
                columns, batches = _columns(table.schema, names, file), table.to_batches()
        read_before = progress.read
        for batch in batches:
            yield {name: batch[column] for name, column in columns.items()}
            size = file.size * batch.num_rows / rows if rows else batch.nbytes
            progress.read = min(progress.read + size, read_before + file.size)


def _csv_batches(
    file: InputFile, schema: pa.Schema, lines: BrokenLines, head: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a CSV file as text. From the first broken line on pyarrow calls a handler for each broken
    line. ``head``: the number of lines up to the header."""
    as_text = pa.csv.ConvertOptions(column_types=schema)
    done = 0
    try:
        with pa.csv.open_csv(open_text(file), convert_options=as_text) as batches:
            for batch in batches:
                yield batch
                done += batch.num_rows
            return
    except pa.ArrowInvalid:
        pass
    # The handler gets the line as text, also where a character is cut (so Latin-1), and its number only
    # without threads.
    options = pa.csv.ReadOptions(
        use_threads=False,
        encoding="latin1",
        column_names=schema.names,
        skip_rows=head,
    )

    def skip(row: Any) -> str:
        lines.add(row.number - head)
        return "skip"

    handler = pa.csv.ParseOptions(invalid_row_handler=skip)
    with pa.csv.open_csv(open_text(file), options, handler, as_text) as batches:
        for batch in batches:
            again = min(done, batch.num_rows)
            done -= again
            yield batch.slice(again)


def _json_rows(file: InputFile) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Each line but the empty ones, with its number; None for one that is no JSON object."""
    number = 0
    for line in read_lines(file, ReadProgress()):
        if not line.strip():
            continue
        number += 1
        try:
            row = json.loads(line)
            json.dumps(row, ensure_ascii=False).encode()  # half of a surrogate pair
        except (ValueError, RecursionError):
            row = None
        yield number, row if isinstance(row, dict) else None


def _json_batches(file: InputFile, columns: Sequence[str], lines: BrokenLines) -> Iterator[pa.RecordBatch]:
    """These columns of a JSON file, of which pyarrow cannot read all lines, as text."""
    rows: list[list[str | None]] = []
    numbered = _json_rows(file)
    while piece := [*islice(numbered, _BATCH_ROWS)]:
        rows = []
        for number, row in piece:
            if row is None:
                lines.add(number)
            else:
                rows.append([text_of(row.get(column)) for column in columns])
        cells = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        if rows:
            yield pa.record_batch(cells, names=list(columns))


def _columns(schema: pa.Schema, names: tuple[str, ...], file: InputFile) -> dict[str, str]:
    """The file's own names of the columns."""
    plain = {re.sub(r"[^a-z]", "", name.lower()): name for name in schema.names}
    spellings = {}
    for column in (*names, LAST):
        own_name = next((name for key, name in plain.items() if re.fullmatch(_SPELLINGS[column], key)), None)
        if own_name is not None and schema.names.count(own_name) > 1:
            reason = f"it has several columns {own_name}"
            raise InputError(code="unreadable", path=file.place.path, reason=reason)
        if own_name is not None:
            spellings[column] = own_name
        elif column not in (SUB, LAST):
            reason = f"no column {column}; it has: {', '.join(plain.values())}"
            raise InputError(code="unreadable", path=file.place.path, reason=reason)
    kind = schema.field(spellings[NUMBER]).type
    if pa.types.is_floating(kind):
        reason = f"column {spellings[NUMBER]} is {kind}, which loses digits of a sequence number: write text"
        raise InputError(code="unreadable", path=file.place.path, reason=reason)
    return spellings


def text_of(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)
