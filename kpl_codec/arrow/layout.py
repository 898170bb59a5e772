"""The names and types of all columns: of the output (`Layout`), and of one input batch (`InputBatch`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..deaggregation.policy_rules import PolicyRules
from ..errors import CaptureError
from ..shards.placement import Placement, PlacementChecker, ShardPlacementChecker

Numbers = np.ndarray[Any, Any]
#: The columns of a user record. Names and order are those of the existing Kinesis connectors.
FIELDS = (
    pa.field("streamName", pa.string()),
    pa.field("shardId", pa.string()),
    pa.field("sequenceNumber", pa.string()),
    pa.field("subSequenceNumber", pa.int64()),
    pa.field("aggregated", pa.bool_()),
    pa.field("partitionKey", pa.string()),
    pa.field("explicitHashKey", pa.string()),
    pa.field("data", pa.binary()),
    pa.field("approximateArrivalTimestamp", pa.timestamp("us", "UTC")),
)
TAGS_FIELD = pa.field("tags", pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))
#: Makes a column from a function of a row's shard, which is called once for each distinct shard.
OfShards = Callable[[Callable[[ShardPlacementChecker], Any], pa.DataType], pa.Array]
#: With a shard map: the columns whose values differ from row to row, with their type and a function of the
#: rows' hash keys (16 bytes each, big-endian; null without a placement) and of `OfShards`.
HASH_KEY_COLUMNS: dict[str, tuple[pa.DataType, Callable[[pa.Array, OfShards], pa.Array]]] = {
    "hashKey": (pa.binary(), lambda hash_keys, _: hash_keys),
}
#: With a shard map: the columns whose values many user records share, with their type and a function of a
#: `Placement`.
VERDICT_COLUMNS: dict[str, tuple[pa.DataType, Callable[[Placement], Any]]] = {
    "expectedShardId": (pa.string(), lambda placement: placement.expected_shard_id),
    "placement": (pa.string(), lambda placement: placement.verdict),
}
PLACEMENT_FIELDS = (
    *(pa.field(name, kind) for name, (kind, _) in (HASH_KEY_COLUMNS | VERDICT_COLUMNS).items()),
    pa.field("aggregatePlacement", pa.string()),
)
#: Under the report policy: what the KCL does with the row, and the first of its ``errorCount`` defects.
ERROR_FIELDS = (
    pa.field("kcl", pa.string()),
    pa.field("error", pa.string()),
    pa.field("errorOffset", pa.int64()),
    pa.field("errorRecordIndex", pa.int64()),
    pa.field("errorRequirement", pa.string()),
    pa.field("errorText", pa.string()),
    pa.field("errorCount", pa.int64()),
)
#: Under the report policy, for counting: whether a row is the first one of its Kinesis record, and with a
#: shard map whether its hash key is in its shard's range (null: not known).
COUNTING_FIELDS = (
    pa.field("firstOfRecord", pa.bool_()),
    pa.field("inRange", pa.bool_()),
)
#: The types of all columns that are made here.
TYPES: dict[str, pa.DataType] = {
    field.name: field.type
    for field in (*FIELDS, TAGS_FIELD, *PLACEMENT_FIELDS, *ERROR_FIELDS, *COUNTING_FIELDS)
}
#: The value of a `Placement` in each column that is the same for many user records.
VERDICT_VALUES = {name: value for name, (_, value) in VERDICT_COLUMNS.items()}
VERDICT_VALUES["inRange"] = lambda placement: placement.in_range
KEYS_AND_DATA = ("partitionKey", "explicitHashKey", "data")
#: The columns that all user records of a Kinesis record share.
_SHARED = ("streamName", "shardId", "sequenceNumber", "approximateArrivalTimestamp")
#: Columns in which few different texts repeat.
_WORDS = ("expectedShardId", "placement", "aggregatePlacement", "kcl")
_TEXTS, _BYTES = (pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())
_CODED = pa.dictionary(pa.int32(), pa.string())
#: About how many bytes a row takes without its texts and binary values.
_ROW_BYTES = 128
#: Frames that compiled code hashes at a time.
LANES = 32


def values_of(column: pa.Array) -> list[Any]:
    """The values of a column; of a dictionary array 60 times faster than its `to_pylist`."""
    coded = pa.types.is_dictionary(column.type)
    values: list[Any] = (column.cast(column.type.value_type) if coded else column).to_pylist()
    return values


class Layout:
    """The columns of the input and the output. ``ranged``: all records are of one shard, whose hash key range
    is known."""

    def __init__(
        self,
        schema: pa.Schema,
        rules: PolicyRules,
        placement: bool,
        tags: bool,
        columns: Iterable[str] | None = None,
        *,
        ranged: bool = False,
        dictionaries: bool = False,
    ) -> None:
        self.input = schema
        first, last = _new_fields(schema, rules, placement, tags)
        new = {field.name for field in (*first, *last)}
        _check_input(schema, new)
        copied = [field.with_nullable(True) for field in schema if field.name not in new]
        every = [*first, *copied, *last]
        shared = [*_SHARED, *(field.name for field in copied)]
        #: The columns that are dictionary arrays.
        self.coded: set[str] = set()
        if dictionaries:
            repeated = {*shared, *_WORDS}
            self.coded = {f.name for f in every if f.type == pa.string() and f.name in repeated}
        every = [f.with_type(_CODED) if f.name in self.coded else f for f in every]
        self.schema = _select(pa.schema(every), columns)
        #: The columns that are made here. All others are the caller's, whatever their names and types.
        self.own = new
        self._new = new.intersection(self.schema.names)
        #: Whether a column shows the placement; ``judged``: whether any value in the output depends on it.
        self.placement = placement and self.wants(*(f.name for f in PLACEMENT_FIELDS), *VERDICT_VALUES)
        self.judged = (placement or ranged) and (rules.as_kcl or self.placement or self.wants("kcl"))
        #: The columns whose value all user records of a Kinesis record share.
        self.shared = [name for name in shared if name in self.schema.names]
        self._repeated: dict[str, pa.Array] = {}  # by column

    def wants(self, *names: str) -> bool:
        """Whether a column of one of these names is made, and not just copied from the input."""
        return not self._new.isdisjoint(names)

    def batch(self, columns: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
        """A batch of ``.schema``. A column that is not among ``columns`` is null."""
        arrays = []
        for field in self.schema:
            column = columns.get(field.name)
            if column is None:
                column = self.repeat(field.name, pa.scalar(None, field.type), rows)
            column = self.encode(field.name, column)
            arrays.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def repeat(self, name: str, value: pa.Scalar, rows: int) -> pa.Array:
        """A column with one value in all rows: a part of the one before, if that had the same value."""
        column = self._repeated.get(name)
        if column is None or len(column) < max(rows, 1) or not column[0].equals(value):
            column = self._repeated[name] = _repeat(value, rows)
        return column.slice(0, rows)

    def encode(self, name: str, column: pa.Array) -> pa.Array:
        """The values of a column, as a dictionary array if it is one of `coded`."""
        coded = name in self.coded and not pa.types.is_dictionary(column.type)
        return column.dictionary_encode() if coded else column

    def row_values(
        self,
        judge: PlacementChecker,
        hash_keys: Callable[[], pa.Array],
        shard_ids: Callable[[], pa.Array],
    ) -> dict[str, pa.Array]:
        """The wanted columns of HASH_KEY_COLUMNS, for rows with these hash keys on these shards."""

        def of_shards(value: Callable[[ShardPlacementChecker], Any], kind: pa.DataType) -> pa.Array:
            coded = shard_ids().cast(pa.string()).dictionary_encode("encode")  # null counts as a shard
            values = [value(judge.on(shard_id)) for shard_id in coded.dictionary.to_pylist()]
            return pa.array(values, kind).take(coded.indices)

        names = list(filter(self.wants, HASH_KEY_COLUMNS))
        keys = hash_keys() if names else None
        return {name: HASH_KEY_COLUMNS[name][1](keys, of_shards) for name in names}

    def value_tables(self, tables: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """The possible values of each column that is wanted, encoded as the column is."""
        return {name: self.encode(name, table) for name, table in tables.items() if self.wants(name)}


def _repeat(value: pa.Scalar, rows: int) -> pa.Array:
    """`pa.repeat`, which copies a text once for each row, and knows fewer types than `pa.nulls`."""
    if not value.is_valid:
        return pa.nulls(rows, value.type)
    if value.type != pa.string() or value.as_buffer().size * rows >= 1 << 31:
        return pa.repeat(value, rows)
    text = value.as_buffer().to_pybytes()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(text))
    return pa.Array.from_buffers(value.type, rows, [None, pa.py_buffer(ends), pa.py_buffer(text * rows)])


def _check_input(schema: pa.Schema, own: set[str]) -> None:
    for name, count in Counter(schema.names).items():
        if count > 1:
            raise TypeError(f"column {name} is there {count} times")
        if name in own and not _fits(schema.field(name).type, TYPES[name]):
            raise TypeError(f"column {name} is {schema.field(name).type}, not {TYPES[name]}")
    if schema.get_field_index("data") < 0:
        hint = f"there are {', '.join(schema.names)[:200] or 'no columns'}"
        raise CaptureError(code="no-data-column", field="the column data", hint=hint)


def _new_fields(
    schema: pa.Schema, rules: PolicyRules, placement: bool, tags: bool
) -> tuple[list[pa.Field], list[pa.Field]]:
    """The fields of a user record, and those of its verdict and its defects."""
    arrival = FIELDS[-1]
    if arrival.name in schema.names:  # in the input's unit and zone
        arrival = arrival.with_type(schema.field(arrival.name).type)
    first = [*FIELDS[:-1], arrival, *([TAGS_FIELD] if tags else ())]
    last = [*PLACEMENT_FIELDS] if placement else []
    if rules.shows_defects:
        last += [*ERROR_FIELDS, *COUNTING_FIELDS[: 1 + placement]]
    return first, last


def _select(schema: pa.Schema, columns: Iterable[str] | None) -> pa.Schema:
    """The fields of ``schema`` that ``columns`` names, in its order; all for None."""
    if columns is None:
        return schema
    if isinstance(columns, str):
        raise TypeError(f"columns is one text, {columns!r}, where a list of names belongs")
    names = list(columns)
    unknown = [name for name in names if schema.get_field_index(name) < 0]
    if unknown:
        raise ValueError(f"no column {unknown[0]!r}: there are {', '.join(schema.names)}")
    if len(set(names)) < len(names) or not names:
        raise ValueError(f"columns {names}: name one at least, and each once")
    return pa.schema([schema.field(name) for name in names], schema.metadata)


def _fits(actual: pa.DataType, expected: pa.DataType) -> bool:
    if pa.types.is_null(actual):
        return True
    if pa.types.is_string(expected):
        return (actual.value_type if pa.types.is_dictionary(actual) else actual) in _TEXTS
    if pa.types.is_binary(expected):
        return actual in _BYTES or bool(pa.types.is_fixed_size_binary(actual))
    if pa.types.is_integer(expected):
        return bool(pa.types.is_integer(actual))
    return bool(pa.types.is_timestamp(actual) or actual == expected)


def lengths(column: pa.Array) -> Numbers:
    """Bytes of text or binary in each row; null counts 0."""
    sizes = pc.fill_null(pc.binary_length(column), 0)
    return np.asarray(sizes.to_numpy(zero_copy_only=False), np.int64)


def parts(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Slices of ``batch``, in order, of equally many rows, with about ``max_bytes`` of data each. The number
    of rows is a multiple of `LANES`."""
    rows = batch.num_rows * max_bytes // max(1, batch.column("data").nbytes)
    rows = max(LANES, round(rows / LANES) * LANES)
    for start in range(0, max(1, batch.num_rows), rows):
        yield batch.slice(start, rows)


def without_marks(numbers: pa.Array, error_counts: pa.Array | None = None) -> pa.Array:
    """``numbers``, the column subSequenceNumber, with null where -1 marks a plain record. In a row that has
    one of ``error_counts``, the column errorCount, -1 stays: the row is of the report policy, about a frame
    as a whole."""
    # CAP-32: "A sub-sequence number of -1 MUST count as none, but in a row with an errorCount that is
    # passed on; another number below 0, and what is no number, MUST be refused."
    if numbers.null_count == len(numbers):  # the usual input has no such column
        return numbers
    marks = pc.equal(numbers, -1)
    if not pc.any(marks).as_py():
        return numbers
    if error_counts is not None:
        marks = pc.and_(marks, pc.is_null(error_counts))
    return pc.if_else(marks, None, numbers)


class InputBatch:
    """The columns of one input batch, in the types of this module."""

    def __init__(self, batch: pa.RecordBatch, layout: Layout) -> None:
        if not batch.schema.equals(layout.input):
            raise TypeError("batches of one run must share one schema")
        self.rows = batch.num_rows
        self.columns: dict[str, pa.Array] = {}
        for field, column in zip(batch.schema, batch.columns, strict=True):
            kind = TYPES[field.name] if field.name in layout.own else None
            if field.name == "data":
                column = column if field.type in _BYTES else column.cast(pa.large_binary())
            elif kind is not None and not pa.types.is_timestamp(kind) and column.type != kind:
                column = column.cast(kind)
            self.columns[field.name] = layout.encode(field.name, column)
        for field in FIELDS:
            if field.name not in self.columns:
                self.columns[field.name] = pa.nulls(self.rows, field.type)
        self.data = self.columns["data"]
        numbers = self.columns["subSequenceNumber"]
        self.columns["subSequenceNumber"] = without_marks(numbers, self.columns.get("errorCount"))
        #: Whether each row was opened before; None if none was.
        self.opened = self._find_opened()
        self._layout = layout

    def _find_opened(self) -> Numbers | None:
        # SPK-2: "A row that was opened before (it has a sub-sequence number, also 0, or is marked aggregated;
        # of -1 see CAP-32) MUST NOT be opened again, and is judged by what it was (PLC-6, PLC-7)."
        numbers, flags = self.columns["subSequenceNumber"], self.columns["aggregated"]
        if numbers.null_count == flags.null_count == self.rows:
            return None
        marks = pc.or_(pc.fill_null(flags, False), pc.is_valid(numbers))
        opened = marks.to_numpy(zero_copy_only=False)
        return opened if opened.any() else None

    def shards(self) -> tuple[list[str | None], Numbers]:
        """The distinct shard ids (the last is None), and the index of each row's shard id among them."""
        coded = self.columns["shardId"].dictionary_encode()
        ids = [*coded.dictionary.to_pylist(), None]
        indices = pc.fill_null(coded.indices, len(ids) - 1)
        return ids, indices.to_numpy(zero_copy_only=False).astype(np.int64)

    @cached_property
    def width(self) -> Numbers:
        """Bytes that each row adds to every user record that comes out of it, without data and keys."""
        width = np.full(self.rows, _ROW_BYTES, np.int64)
        for name in self._layout.shared:
            column = self.columns[name]
            if isinstance(column.type, pa.BaseExtensionType):
                column = column.storage
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()  # as if written out
            if column.type in (*_TEXTS, *_BYTES) or pa.types.is_fixed_size_binary(column.type):
                width += lengths(column)
            elif pa.types.is_nested(column.type):
                width += np.array([column.slice(i, 1).nbytes for i in range(self.rows)], np.int64)
            else:
                width += 8
        return width

    def values(self, name: str, start: int, end: int) -> list[Any]:
        """The values of a column in the rows ``start`` to before ``end``; None where it is missing."""
        column = self.columns.get(name)
        return [None] * (end - start) if column is None else values_of(column.slice(start, end - start))
