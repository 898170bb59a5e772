"""Writes a DataFrame to a stream by the producer: aggregated, and at least once.

A task checks all of its rows (beyond 64 MiB they wait on disk), puts them, and waits until each is in the
stream. A row that cannot be delivered fails the task, and if Spark repeats it all rows are written again.
Specification: spec/07-spark-source.md, SPK-67 to SPK-69, SPK-73,
SPK-118.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ...errors import EncodeError, KplError
from ...format.records import Tag
from ...producer.threads import Producer
from ..functions import plain_errors
from .positions import OptionError
from .source_options import SourceOptions

#: PySpark 4.0 gives streams row by row only.
_StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)
_Arguments = tuple[str | None, bytes, str | None, tuple[Tag, ...]]
#: Bytes of rows that a task holds in memory while it checks the others.
_MOST_IN_MEMORY: Final = 64 * 1024 * 1024
#: The columns of a write, and the types that each may have.
_COLUMNS: Final = {
    "partitionKey": "string",
    "data": "binary or string",
    "explicitHashKey": "string",
    "tags": "array<struct<key:string,value:string>>",
}
_STANDARD: Final = {name.lower(): name for name in _COLUMNS}


class RowsNotWritten(KplError):
    """Of the ``rows`` that a task put, ``failed`` are not in the stream (``code``, ``reason``: of the first);
    ``written`` are, and will be there twice if the task runs again."""

    code: str
    requirement = "SPK-67"
    rows: int
    failed: int
    written: int
    reason: str
    text = "{failed} of {rows} rows not written ({written} are): {code}: {reason}"
    concerns = "Readers of the stream that the query writes to: some rows are missing."
    todo = "Let Spark run the task again; rows already put come twice."
    codes = ("ProvisionedThroughputExceededException",)


def check_write(schema: StructType, overwrite: bool) -> None:
    """Raise OptionError unless there is a column ``data`` (binary or string), and besides it only
    ``partitionKey``, ``explicitHashKey`` and ``tags`` (an array of structs of the texts key and value), each
    once and in any case: Spark does not tell a data source how the session matches names."""
    # SPK-69: "A write that would have to remove records MUST be refused: a stream is only appended to."
    if overwrite:
        raise OptionError(option="mode", value="overwrite", expected="append")
    # SPK-68: "A column that would not be written MUST be refused, not dropped."
    columns: set[str] = set()
    for column in schema.fields:
        name, kind = _STANDARD.get(column.name.lower()), column.dataType.typeName()
        if name is None or name in columns:
            expected = f"only {', '.join(_COLUMNS)}, each once in any case"
            raise OptionError(option="schema", value=column.name, expected=expected)
        columns.add(name)
        if name == "tags":
            kind = column.dataType.simpleString()
        if kind not in (expected := _COLUMNS[name]).split(" or "):
            raise OptionError(option="schema", value=f"{column.name} {column.dataType}", expected=expected)
    if "data" not in columns:
        raise OptionError(option="schema", value=schema.names, expected="a column data")


def refuse_new_table(property_of: Callable[[str], str | None]) -> None:
    """Raise OptionError if the rows are to fill a table that Spark has just made for them, as saveAsTable,
    writeTo(...).create() and toTable do. ``property_of``: gives a property of the job by its name."""
    if property_of("sql.streaming.queryId") is not None:
        fills_table = (property_of("callSite.short") or "").startswith("toTable ")
    else:
        # A write by itself is the root of its own execution; this one is a part of the command for the table.
        part, root = (property_of(f"spark.sql.execution.{name}") for name in ("id", "root.id"))
        fills_table = None not in (part, root) and part != root
    # SPK-118: "A table of Spark's catalog MUST be refused where it is made or used, before a row is put, with
    # what to use instead."
    if fills_table:
        raise OptionError(code="catalog-table", option="provider", value=None, expected="a temporary view")


class _WriterTask:
    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    @plain_errors()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Put every row. Raises RowsNotWritten; EncodeError for a row that cannot be written, before any
        row of the task was put; OptionError for a table of the catalog."""
        if (context := TaskContext.get()) is not None:
            refuse_new_table(context.getLocalProperty)
        options, lock = self.options, threading.Lock()
        rows = written = 0
        failure: BaseException | None = None

        def count(future: Any) -> None:
            nonlocal written, failure
            error = future.exception()
            with lock:
                written += error is None
                failure = failure or error

        with (
            Producer(options.name_or_arn, config=options.producer, client=options.client()) as producer,
            _check_all(iterator, producer) as items,
        ):
            producer.wait_ready()
            for record in map(_arguments, _rows(items)):
                rows += 1
                producer.put(*record).add_done_callback(count)
                if failure is not None:
                    break  # more rows would be written twice
            # SPK-67: "A task MUST NOT succeed before each of its rows is in the stream, and MUST fail with
            # the number of rows that are not."
            producer.flush()
        if written == rows:
            return WriterCommitMessage()
        failed, code = rows - written, getattr(failure, "code", "unknown")
        raise RowsNotWritten(
            rows=rows, failed=failed, written=written, code=code, reason=str(failure)
        ) from failure


def _rows(items: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for item in items:
        if hasattr(item, "to_pylist"):
            names = [_STANDARD[name.lower()] for name in item.schema.names]
            yield from item.rename_columns(names).to_pylist()
        else:
            row = item.asDict(recursive=True)
            yield {_STANDARD[name.lower()]: value for name, value in row.items()}


def _arguments(row: dict[str, Any]) -> _Arguments:
    """The arguments of `Producer.put` for a row. Raises EncodeError for data or a tag that is null."""
    data = row["data"]
    if data is None:
        raise EncodeError(code="null", field="data")
    data = data.encode() if isinstance(data, str) else bytes(data)
    if None in (pairs := row.get("tags") or ()):
        raise EncodeError(code="null", field="a tag")
    tags = tuple(Tag(tag["key"], tag["value"]) for tag in pairs)
    return row.get("partitionKey"), data, row.get("explicitHashKey"), tags


@contextmanager
def _check_all(items: Iterable[Any], producer: Producer) -> Iterator[Iterator[Any]]:
    """Check the rows of all items, then yield the same items. Raises EncodeError."""
    # SPK-73: "A row that cannot be written MUST fail its task before any row of the task is put."
    with SpooledTemporaryFile(max_size=_MOST_IN_MEMORY) as stored:
        count = 0
        for item in items:
            for row in _rows([item]):
                producer.check(*_arguments(row))
            pickle.dump(item, stored, protocol=5)
            count += 1
        stored.seek(0)
        yield (pickle.load(stored) for _ in range(count))


class KinesisWriter(_WriterTask, DataSourceArrowWriter):
    """The tasks of a batch write."""


class KinesisStreamWriter(_WriterTask, _StreamWriter):  # type: ignore[misc]
    """The tasks of a streaming write."""
