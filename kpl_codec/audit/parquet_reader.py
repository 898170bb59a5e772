"""Reads Parquet files that name handled user records, row group by row group. The columns are shardId,
sequenceNumber, subSequenceNumber, and streamName where a file has it; other columns are not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..captures.files import RESULTS, UNREADABLE
from ..captures.parquet_rows import joined_at
from ..rendering.labels import plural
from .index import NO_SUB_SEQUENCE_NUMBER
from .lost_parts import LostPart

SHARD, NUMBER, SUB, STREAM = "shardId", "sequenceNumber", "subSequenceNumber", "streamName"
#: A column of runs of user records, of which each row would name only the first.
_RUNS: Final = "lastSubSequenceNumber"
_BATCH_ROWS: Final = 1 << 18
_IS_TEXT: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)


class NoTable(Exception):
    """A Parquet file that does not name user records: why, and what to write instead."""


class Texts(NamedTuple):
    """A column: for each row the index of its text (-1: null or empty), and the different texts."""

    codes: Any
    texts: list[str]

    def map(self, function: Callable[[str], Any], empty: Any) -> Any:
        """What ``function`` says of each row's text; ``empty`` of an empty cell."""
        return np.array([*map(function, self.texts), empty])[self.codes]

    def text(self, row: int) -> str:
        return self.texts[self.codes[row]] if self.codes[row] >= 0 else ""


class HandledRows(NamedTuple):
    """Rows that each name a handled user record. ``sub``: its sub-sequence number (`NO_SUB_SEQUENCE_NUMBER`
    where it is null), an array of numpy; ``stream``: None in a file without streamName; ``first``: the number
    of the first row in its file, from 1."""

    shard: Texts
    number: Texts
    sub: Any
    stream: Texts | None
    first: int


def read_parquet(file: str, source: Any) -> Iterator[HandledRows | LostPart]:
    """The rows of a Parquet file, and what is lost of it. Raises NoTable before anything is given."""
    try:
        plain = pq.ParquetFile(source)
        names = _columns(plain)
        # ACC-6, as in captures/parquet_rows.py
        if (joined := joined_at(source, plain, names[NUMBER])) is not None:
            raise NoTable(joined)
        texts = [names[name] for name in (SHARD, NUMBER, STREAM) if name in names]
        table = pq.ParquetFile(
            source, metadata=plain.metadata, read_dictionary=texts, page_checksum_verification=True
        )
    except UNREADABLE as error:
        yield LostPart(file, _first_line(error))
        return
    first = 1
    for number in range(plain.metadata.num_row_groups):
        rows, read = plain.metadata.row_group(number).num_rows, 0
        # ACC-2, as in captures/parquet_rows.py: a page with a wrong checksum is named with its rows.
        try:
            for batch in table.iter_batches(_BATCH_ROWS, row_groups=[number], columns=[*names.values()]):
                yield _handled_rows({name: batch[own] for name, own in names.items()}, first + read)
                read += len(batch)
            why = f"a row group of {plural(rows, 'row')} that has {read:,}"
        except UNREADABLE as error:
            why = f"rows that cannot be read: {_first_line(error)}"
            read = -1
        if read != rows:
            yield LostPart(file, why, first)
        first += rows
    if plain.metadata.num_rows != first - 1:
        said = plural(plain.metadata.num_rows, "row")
        yield LostPart(file, f"its footer says {said}, and its row groups have {first - 1:,}")


def _columns(parquet: pq.ParquetFile) -> dict[str, str]:
    """The file's own names of the columns that are read. Raises NoTable."""
    schema = parquet.schema_arrow
    # ACC-3, as in captures/parquet_rows.py: of results of kpl-codec
    if RESULTS in (parquet.metadata.metadata or {}):
        raise NoTable("these are results of kpl-codec")
    # (Athena and Hive write names in small letters.)
    columns: dict[str, str] = {}
    known = {name.lower(): name for name in (SHARD, NUMBER, SUB, STREAM, _RUNS)}
    for own in schema.names:
        if (name := known.get(own.lower())) is not None:
            if name in columns:
                raise NoTable(f"it has two columns {name}")
            columns[name] = own
    if _RUNS in columns:
        raise NoTable(f"its rows are runs of user records ({_RUNS}): write a row for each user record")
    for name in (SHARD, NUMBER, SUB):
        if name not in columns:
            shown = ", ".join(schema.names[:10])
            raise NoTable(f"Parquet without a column {name}; it has: {shown}")
    for name, own in columns.items():
        kind = schema.field(own).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if name == SUB and not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise NoTable(f"column {own} is {kind}: write integers")
        if name != SUB and not any(is_text(kind) for is_text in _IS_TEXT):
            raise NoTable(f"column {own} is {kind}: write text")
    return columns


def _handled_rows(columns: dict[str, Any], first: int) -> HandledRows:
    subs = pc.fill_null(columns[SUB].cast(pa.int64()), NO_SUB_SEQUENCE_NUMBER).to_numpy()
    below = (subs < 0) & ~pc.is_null(columns[SUB]).to_numpy(zero_copy_only=False)
    stream = _texts(columns[STREAM]) if STREAM in columns else None
    return HandledRows(
        _texts(columns[SHARD]), _texts(columns[NUMBER]), np.where(below, -1, subs), stream, first
    )


def _texts(column: Any) -> Texts:
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    different = column.dictionary.cast(pa.large_binary()).to_pylist()  # (it may be no UTF-8)
    texts = ["" if value is None else value.decode("utf-8", "replace") for value in different]
    codes = pc.fill_null(column.indices.cast(pa.int64()), -1).to_numpy()
    return Texts(np.array([*(at if text else -1 for at, text in enumerate(texts)), -1])[codes], texts)


def _first_line(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error)).partition("\n")[0][:300].rstrip(".")
