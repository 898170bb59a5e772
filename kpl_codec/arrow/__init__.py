"""Arrow batches of Kinesis records in, Arrow batches of user records out.

    >>> import kpl_codec as kpl
    >>> import pyarrow as pa
    >>> from kpl_codec.arrow import deaggregate_batches, deaggregate_table, output_schema
    >>> data = kpl.encode([kpl.UserRecord("customer-1", b"one"), kpl.UserRecord("customer-2", b"two")])
    >>> columns = {"data": pa.array([data, b"three"], pa.binary()), "partitionKey": ["a", "customer-3"]}
    >>> table = pa.table(columns)
    >>> users, counts = deaggregate_table(table, columns=["partitionKey", "data"])  # at once, on all cores
    >>> users.column("partitionKey").to_pylist(), counts.user_records
    (['customer-1', 'customer-2', 'customer-3'], 3)
    >>> batches = deaggregate_batches(table.to_batches(), "report")  # in a few MiB of memory
    >>> [batch.num_rows for batch in batches], batches.counts.aggregated_records
    ([3], 1)
    >>> users.schema.names == output_schema(table.schema, columns=["partitionKey", "data"]).names
    True

The input is anything with Arrow's PyCapsule interface: pyarrow's own objects, data frames of polars and
pandas, relations of DuckDB. It needs a binary column ``data``; `FIELDS` names the other columns that are
used. All further columns are copied to each user record. The columns equal the objects of
`kpl_codec.deaggregate`. Rows that are user records already stay as they are. Compiled code writes the columns
of sound Kinesis records (compiled_columns.py); all others become objects first (object_columns.py).
Specification: spec/07-spark.md, 7.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from ..base.arguments import check_arguments, check_keywords
from ..base.lazy import public_names, require_extras
from ..base.values import describe_fields
from ..deaggregation.deaggregated_record import Counts, Drop
from ..deaggregation.payload import PayloadDecoder
from ..deaggregation.policies import RecordDeaggregator
from ..deaggregation.policy_rules import Policy, rules_of
from ..format.hash_keys import HashKeyRange
from ..shards.placement import PlacementChecker
from ..shards.shard_map import ShardMap
from ..shards.stream_name import StreamMatcher

if TYPE_CHECKING:
    from typing_extensions import Unpack

with require_extras("kpl_codec.arrow"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

from .compiled_columns import CompiledColumns, has_compiled_code
from .exchange import ArrowData, batches_of, plain, plain_schema
from .exchange import coalesce as coalesce
from .exchange import with_siblings_together as with_siblings_together
from .layout import FIELDS as FIELDS
from .layout import InputBatch, Layout, Numbers, parts
from .object_columns import ObjectColumns

#: The size of an output batch in bytes. A batch is larger only if one user record is.
DEFAULT_BATCH_BYTES = 4 * 1024 * 1024
#: About how many bytes of data are processed at a time: fewer take longer, more exceed the CPU's cache.
_PART_BYTES = 16 * 1024 * 1024
#: The fewest bytes of data that a thread is given.
_LEAST_PART_BYTES = 1024 * 1024
#: Bytes of a chunk of a table at most. A chunk holds the user records of one part (`_PART_BYTES` of data),
#: unless they are larger than this.
_CHUNK_BYTES = 64 * 1024 * 1024
# How a row is processed: by compiled code, as objects, or copied, because it was opened before;
# `_OTHER_STREAM` is added for a row of another stream than the shard map's.
_COMPILED, _OBJECTS, _OPENED, _OTHER_STREAM = range(4)


def output_schema(
    schema: ArrowData,
    policy: Policy = "strict",
    *,
    tags: bool = False,
    columns: Iterable[str] | None = None,
) -> pa.Schema:
    """The schema that `deaggregate_batches` gives for batches of ``schema`` without a shard map. (With one:
    the ``schema`` of a `Deaggregator`.)

    In this order: the nine columns of a user record (`FIELDS`); ``tags``; the input's other columns; with a
    shard map those of the verdict; under the ``report`` policy those of the KCL's outcome, of errors and
    for counting. ``columns``: as for `Deaggregator`. Raises TypeError for a column of the
    wrong type, CaptureError without a column ``data``, ValueError for an unknown policy and for a name in
    ``columns`` that is no such column or occurs twice.
    """
    check_arguments("output_schema", locals())
    return schema_of(schema, policy, placement=False, tags=tags, columns=columns)


def schema_of(
    schema: ArrowData,
    policy: Policy,
    *,
    placement: bool,
    tags: bool,
    columns: Iterable[str] | None = None,
) -> pa.Schema:
    """`output_schema` where the shard map is not at hand. ``placement``: whether there will be one."""
    return Layout(plain_schema(schema), rules_of(policy), placement, tags, columns).schema


class Options(TypedDict, total=False):
    """Keyword arguments of `deaggregate_batches` and `deaggregate_table`; see `Deaggregator`."""

    shard_map: ShardMap | None
    hash_key_range: HashKeyRange | None
    on_drop: Callable[[Drop], None] | None
    max_decompressed_size: int | None
    tags: bool
    columns: Iterable[str] | None


class Deaggregator:
    """Turns batches of ``schema`` into batches of ``.schema``. ``.counts``: of all batches so far.

    ``shard_map``, ``hash_key_range``, ``on_drop``, ``max_decompressed_size`` (bytes): as for
    `kpl_codec.deaggregate`; a row whose ``streamName`` is not the map's stream is not judged. ``tags``: adds
    a column. ``columns``: the names of the columns to make, in their order; None for all.
    ``max_batch_bytes``: of an output batch; one user record always fits.

    Raises ValueError for an unknown policy, TypeError and CaptureError as `output_schema`, and SeveralStreams
    for rows of several streams where the map does not say of which stream it is.
    """

    def __init__(
        self,
        schema: ArrowData,
        policy: Policy = "strict",
        *,
        shard_map: ShardMap | None = None,
        hash_key_range: HashKeyRange | None = None,
        on_drop: Callable[[Drop], None] | None = None,
        max_decompressed_size: int | None = None,
        tags: bool = False,
        columns: Iterable[str] | None = None,
        max_batch_bytes: int = DEFAULT_BATCH_BYTES,
    ) -> None:
        options: Any = {**locals()}
        check_arguments("Deaggregator", options)
        del options["self"]
        self._set_up(**options)

    def _set_up(
        self,
        schema: ArrowData,
        policy: Policy,
        *,
        shard_map: ShardMap | None = None,
        hash_key_range: HashKeyRange | None = None,
        on_drop: Callable[[Drop], None] | None = None,
        max_decompressed_size: int | None = None,
        tags: bool = False,
        columns: Iterable[str] | None = None,
        max_batch_bytes: int = DEFAULT_BATCH_BYTES,
        dictionaries: bool = False,
        streams: StreamMatcher | None = None,
        counts: Counts | None = None,
    ) -> None:
        self._rules = rules = rules_of(policy)
        self.counts = Counts() if counts is None else counts
        self._on_drop = on_drop
        self.max_batch_bytes = max_batch_bytes
        decoder = PayloadDecoder(max_decompressed_size, rules, self.counts)
        self._beginnings = decoder.beginnings
        # SPK-76: "Where the caller names columns, the output MUST have these, in that order, with the values
        # they have otherwise, and no others MUST be made."
        self._layout = Layout(
            plain_schema(schema),
            rules,
            shard_map is not None,
            tags,
            columns,
            ranged=hash_key_range is not None,
            dictionaries=dictionaries,
        )
        judge = PlacementChecker(shard_map, hash_key_range) if self._layout.judged else None
        self._streams = streams or StreamMatcher(None if shard_map is None else shard_map.stream)
        #: For rows of the map's stream, and (None) for rows of other streams, which are not judged.
        self._judges = judge, None
        self._objects = []
        for judge in self._judges:
            opener = RecordDeaggregator(rules, judge, self.counts, on_drop)
            objects = ObjectColumns(self._layout, rules, opener, decoder, judge, self.counts)
            self._objects.append(objects)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches that `process` makes."""
        return self._layout.schema

    def process(self, batch: ArrowData) -> Iterator[pa.RecordBatch]:
        """The user records of one batch, in order. Of rows that were opened before, the siblings in the same
        batch are known (PLC-6). Under the ``strict`` policy it raises DecodeError for the
        first defective record and CaptureError for a row without data, after the user records before it."""
        # SPK-3: "The columns MUST equal the objects that deaggregation gives for the same Kinesis records,
        # in the same order, under every policy."
        for part in with_siblings_together(parts(plain(batch), _PART_BYTES)):
            yield from self._process_part(InputBatch(part, self._layout))
            self._skip(part.num_rows)

    def _skip(self, rows: int) -> None:
        """Count rows of the input, whose numbers errors say."""
        for objects in self._objects:
            objects.rows_before += rows

    def _depends_on_row_before(self, batch: pa.RecordBatch) -> bool:
        """Whether the first row is a user record that was opened before: it may belong to the Kinesis record
        of the row before it."""
        return InputBatch(batch.slice(0, 1), self._layout).opened is not None

    def _process_part(self, source: InputBatch) -> Iterator[pa.RecordBatch]:
        if not source.rows:
            return
        others = self._rows_of_other_streams(source)
        judges = self._judges[: 1 if others is None else 2] if has_compiled_code() else ()
        compiled = [CompiledColumns(source, self._layout, judge, self._rules) for judge in judges]
        ways = np.full(source.rows, _OBJECTS, np.int8)
        if compiled:
            ways[compiled[0].certain] = _COMPILED
            if self._beginnings:
                ways[compiled[0].beginning_with(self._beginnings)] = _OBJECTS
        if source.opened is not None:
            ways[source.opened] = _OPENED
        if others is not None:
            ways += _OTHER_STREAM * others
        limit = self.max_batch_bytes
        start = 0
        for end in [*(np.flatnonzero(np.diff(ways)) + 1).tolist(), source.rows]:
            other, way = divmod(int(ways[start]), _OTHER_STREAM)
            objects = self._objects[other]
            if way == _OPENED:
                yield from objects.copy_rows(source, start, end, limit)
            elif way == _OBJECTS:
                yield from objects.open_rows(source, start, end, limit)
            else:
                objects.forget_last_row()
                columns = compiled[other]
                for drop in columns.drops(start, end):
                    self.counts.add_drop(drop, self._on_drop)
                yield from columns.batches(start, end, self.counts, limit)
            start = end

    def _rows_of_other_streams(self, source: InputBatch) -> Numbers | None:
        """1 for each row of another stream than the shard map's, else 0; None if no row is of another stream.
        Raises SeveralStreams."""
        # SPK-110: "A shard map that says which stream it is of MUST judge the records of that stream only:
        # one that names another stream comes as without a map."
        column = source.columns["streamName"]
        if self._judges[0] is None or self._judges[0].shard_map is None or column.null_count == source.rows:
            return None
        others = self._streams.mismatches(pc.unique(column).to_pylist())
        if not others:
            return None
        is_other = pc.is_in(column.cast(pa.string()), value_set=pa.array(others, pa.string()))
        return np.asarray(is_other.to_numpy(zero_copy_only=False), np.int8)


def new_deaggregator(schema: ArrowData, policy: Policy, **options: Any) -> Deaggregator:
    """A `Deaggregator` with checked ``options``, and what this library chooses besides. ``dictionaries``:
    whether text that repeats in many rows comes as dictionary arrays (all but keys and errors); ``streams``:
    one object for all that share a map, so that together they refuse rows of several streams; ``counts``:
    where to count."""
    made = Deaggregator.__new__(Deaggregator)
    made._set_up(schema, policy, **options)
    return made


class Batches(Iterator[pa.RecordBatch]):
    """The iterator of `deaggregate_batches`; ``counts``: of the records that it has read so far."""

    def __init__(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> None:
        self._batches = batches
        self.counts = counts

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)


@describe_fields(table="The user records, one a row.", counts="What was read and what was dropped.")
class Users(NamedTuple):
    """The result of `deaggregate_table`."""

    table: pa.Table
    counts: Counts


def deaggregate_batches(
    batches: ArrowData,
    policy: Policy = "strict",
    *,
    max_batch_bytes: int = DEFAULT_BATCH_BYTES,
    **options: Unpack[Options],
) -> Batches:
    """The user records of ``batches``, in order, each batch made when it is asked for.

    ``batches``: record batches of one schema, or an object that holds some: a table, a reader, a data frame.
    ``max_batch_bytes``: smaller batches are joined up to it. Raises what `Deaggregator` raises, and TypeError
    for what is no Arrow data; ``strict`` raises DecodeError while iterating.
    """
    check_keywords("deaggregate_batches", options, deaggregate_batches, Options)
    check_arguments("deaggregate_batches", {**locals(), **options})
    counts = Counts()
    rows = process_all(batches, policy, counts, max_batch_bytes=max_batch_bytes, **options)
    return Batches(coalesce(rows, max_batch_bytes), counts)


def process_all(
    batches: ArrowData, policy: Policy, counts: Counts, **options: Any
) -> Iterator[pa.RecordBatch]:
    """The output of one `Deaggregator`, with ``counts`` and ``options``, for ``batches`` of one schema."""
    source = with_siblings_together(map(plain, batches_of(batches)))
    for first in source:  # runs once: the inner loop takes all other batches
        deaggregator = new_deaggregator(first.schema, policy, counts=counts, **options)
        for batch in chain((first,), source):
            yield from deaggregator.process(batch)


def deaggregate_table(
    table: ArrowData, policy: Policy = "strict", *, threads: int | None = None, **options: Unpack[Options]
) -> Users:
    """The user records of ``table``, anything that `deaggregate_batches` takes with at least one batch, in
    order, as one table, and the counts of what was read.

    ``threads``: how many work at a time, by default `pyarrow.cpu_count`; the rows do not depend on it, the
    chunks do. A chunk holds the user records of at most 16 MiB of data, and at most 64 MiB of them.
    ``on_drop`` is called in the caller's thread. Raises what `deaggregate_batches` raises, for the first
    record that is refused; ValueError for fewer than one thread, and for a list without a batch, which has no
    columns.
    """
    check_keywords("deaggregate_table", options, deaggregate_table, Options)
    check_arguments("deaggregate_table", {**locals(), **options})
    if threads is None:
        threads = pa.cpu_count()
    source = map(plain, batches_of(table))
    first = next(source, None)
    if first is None:
        raise ValueError("no batches: a table without rows has columns, an empty list has none")
    on_drop = options.pop("on_drop", None)
    if (names := options.get("columns")) is not None:
        options["columns"] = list(names)
    shard_map = options.get("shard_map")
    streams = StreamMatcher(None if shard_map is None else shard_map.stream)
    make = partial(
        new_deaggregator, first.schema, policy, max_batch_bytes=_CHUNK_BYTES, streams=streams, **options
    )
    deaggregator = make()
    portions = _portions([first, *source], deaggregator, threads)
    firsts = accumulate((sum(part.num_rows for part in portion) for portion in portions), initial=0)
    batches: list[pa.RecordBatch] = []
    counts = Counts()

    # SPK-75: "Objects of any library that has Arrow's PyCapsule interface MUST be taken, and the number of
    # threads MUST NOT change what comes out."
    def work(
        portion: list[pa.RecordBatch], rows_before: int
    ) -> tuple[list[pa.RecordBatch], Counts, list[Drop], Exception | None]:
        """One portion's rows, counts and drops, and the error that ended it. Threads share nothing."""
        drops: list[Drop] = []
        rows: list[pa.RecordBatch] = []
        own = make(on_drop=on_drop and drops.append)
        own._skip(rows_before)
        error: Exception | None = None
        try:
            whole = with_siblings_together(portion)
            rows.extend(coalesce(chain.from_iterable(map(own.process, whole)), DEFAULT_BATCH_BYTES))
        except Exception as raised:  # noqa: BLE001 - raised in the caller's thread, after the drops before it
            error = raised
        return rows, own.counts, drops, error

    with ThreadPoolExecutor(threads, "kpl-codec-arrow") as pool:
        for rows, own_counts, drops, error in pool.map(work, portions, firsts):
            batches += rows
            counts.add(own_counts)
            if on_drop is not None:
                for drop in drops:
                    on_drop(drop)
            if error is not None:
                raise error
    return Users(pa.Table.from_batches(batches, deaggregator.schema), counts)


def _portions(
    batches: list[pa.RecordBatch], deaggregator: Deaggregator, threads: int
) -> list[list[pa.RecordBatch]]:
    """``batches`` cut into portions of about equal size, equally many for each thread."""
    size = sum(batch.nbytes for batch in batches)
    rounds = -(-size // (threads * _PART_BYTES)) or 1
    part_bytes = max(_LEAST_PART_BYTES, -(-size // (threads * rounds)))
    portions: list[list[pa.RecordBatch]] = []
    for part in (part for batch in batches if batch.num_rows for part in parts(batch, part_bytes)):
        if portions and deaggregator._depends_on_row_before(part):
            portions[-1].append(part)
        else:
            portions.append([part])
    return portions


__all__ = [
    "Batches",
    "Deaggregator",
    "Options",
    "Users",
    "deaggregate_batches",
    "deaggregate_table",
    "output_schema",
]
__dir__ = public_names(__name__)
