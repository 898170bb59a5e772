"""Arrow batches of Kinesis records in, Arrow batches of user records out.

    for batch in deaggregate_batches(batches, policy="report", shard_map=shard_map):
        ...
    users, counts = deaggregate_table(table)  # at once, on all cores
    users, _ = deaggregate_table(table, columns=["partitionKey", "data"])  # makes no other columns

The input is anything with Arrow's PyCapsule interface: pyarrow's own objects, data frames of polars and
pandas, relations of DuckDB. It needs a binary column ``data``. ``streamName``, ``shardId``,
``sequenceNumber``, ``partitionKey``, ``explicitHashKey`` and ``approximateArrivalTimestamp`` are used if
present; all other columns are copied. The columns equal the objects that `kpl_codec.deaggregate` gives for
the same Kinesis records under the same policy. Compiled code writes the columns of sound records
(compiled_columns.py). All others, and all aggregates without it, are opened as `deaggregate` opens them, and
their columns are made of the objects (object_columns.py).

Rows with ``aggregated`` true, or with a sub-sequence number other than 0, were opened before. They stay
unchanged, so running twice does no harm. Output batches have a maximum size in bytes. Memory is limited to
what a few MiB of the input become.
Specification: spec/07-spark.md, SPK-1 to SPK-4, SPK-75; spec/03-deaggregation.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from ..compiled import speedups
from ..deaggregation.counts import Counts, Drop
from ..deaggregation.decompression import Decompressor
from ..deaggregation.policies import Opener, Policy, check_policy
from ..errors import CaptureError
from ..format.compression import max_decompressed_size
from ..format.hash_keys import HashKeyRange
from ..lazy import needing_extras
from ..limits import MAGIC
from ..shards.placement import Judge
from ..shards.shard_map import ShardMap

with needing_extras("kpl_codec.arrow"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

from .coalescing import coalesce
from .compiled_columns import CompiledColumns
from .decompressed import NEEDED, decompressed
from .exchange import ArrowArray, ArrowData, ArrowSchema, batches_of, plain, plain_schema
from .layout import COUNTING_FIELDS, ERROR_FIELDS, FIELDS, PLACEMENT_FIELDS, TAGS_FIELD, Layout, Source, parts
from .object_columns import no_data_batches, object_batches
from .unopened import UnopenedRows

#: The size of an output batch in bytes. A batch is larger only if one user record is.
DEFAULT_BATCH_BYTES = 4 * 1024 * 1024
#: About so many bytes of data are processed at a time. Fewer pay more often for what each part costs (threads
#: wait for each other in it), more do not stay in the CPU's cache.
_PART_BYTES = 16 * 1024 * 1024
#: A thread is started for so many bytes of data, not for fewer.
_LEAST_PART_BYTES = 1024 * 1024
#: The size of a chunk of a table: the user records of a part, unless they are much larger than its data.
_CHUNK_BYTES = 64 * 1024 * 1024
# How a row is processed.
_COMPILED, _OBJECTS, _UNOPENED, _NO_DATA = range(4)


def output_schema(
    schema: pa.Schema | ArrowSchema,
    policy: Policy = "strict",
    *,
    placement: bool = False,
    tags: bool = False,
    columns: Iterable[str] | None = None,
) -> pa.Schema:
    """The schema that `deaggregate_batches` gives for batches of ``schema``.

    The nine columns of a user record, ``tags`` if asked for, the input's other columns, with a shard map the
    placement columns, and under the ``report`` policy the columns of the KCL's outcome, of errors and for
    counting. ``columns``: only those of them, in that order.
    Raises TypeError for a column of the wrong type, CaptureError without ``data``, ValueError for a name in
    ``columns`` that is none of them, or is there twice.
    """
    return Layout(plain_schema(schema), policy, placement, tags, columns).schema


class Deaggregator:
    """Turns batches of ``schema`` into batches of ``.schema``.

    ``shard_map``, ``hash_key_range``, ``on_drop``, ``decompress``: as in `kpl_codec.deaggregate`. ``counts``:
    what was opened so far; those of the caller, if given.
    ``max_batch_bytes`` limits each output batch (one user record always fits). ``tags`` adds a column.
    ``columns``: the names of the columns that are wanted, None for all; others are not made.
    ``dictionaries``: whether text that is the same in many rows comes as dictionary arrays: all but sequence
    numbers, keys and errors. A batch stays within its limit if they are written out.
    Raises ValueError for an unknown policy, TypeError and CaptureError as `output_schema`.
    """

    def __init__(
        self,
        schema: pa.Schema | ArrowSchema,
        policy: Policy = "strict",
        *,
        shard_map: ShardMap | None = None,
        hash_key_range: HashKeyRange | None = None,
        on_drop: Callable[[Drop], None] | None = None,
        counts: Counts | None = None,
        tags: bool = False,
        decompress: bool | int = False,
        columns: Iterable[str] | None = None,
        max_batch_bytes: int = DEFAULT_BATCH_BYTES,
        dictionaries: bool = False,
    ) -> None:
        check_policy(policy)
        self.policy = policy
        self.shard_map = shard_map
        self.counts = Counts() if counts is None else counts
        self._on_drop = on_drop
        self.max_batch_bytes = max_batch_bytes
        # SPK-76: "Where the caller names columns, the output MUST have these, in that order, with the values
        # they have otherwise, and no others MUST be made."
        placement = shard_map is not None
        ranged = hash_key_range is not None
        layout = Layout(
            plain_schema(schema), policy, placement, tags, columns, ranged=ranged, dictionaries=dictionaries
        )
        self._schema = layout.schema
        self._max_decompressed = max_decompressed_size(decompress)
        if self._max_decompressed is not None and columns is not None:
            layout = layout.having(NEEDED)
        self._layout = layout
        self._judge = Judge(shard_map, hash_key_range) if self._layout.judged else None
        self._opener = Opener(policy, self._judge, self.counts, on_drop)
        self._unopened = UnopenedRows(self._layout, self._judge, self.counts)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def process(self, batch: pa.RecordBatch | ArrowArray) -> Iterator[pa.RecordBatch]:
        """The user records of one batch, in order. Under the ``strict`` policy it raises DecodeError, after
        the user records before it, and CaptureError for a row without data."""
        # SPK-3: "The columns MUST equal the objects that deaggregation gives for the same Kinesis records,
        # in the same order, under every policy."
        for part in parts(plain(batch), _PART_BYTES):
            made = self._process_part(Source(part, self._layout))
            if self._max_decompressed is None:
                yield from made
                continue
            undo = Decompressor(
                self._max_decompressed, self.counts.defects if self.policy == "report" else None
            )
            for rows in made:
                for batch in decompressed(rows, undo, self.max_batch_bytes):
                    yield batch.select(self._schema.names)

    def _process_part(self, source: Source) -> Iterator[pa.RecordBatch]:
        if not source.rows:
            return
        compiled = None
        if speedups is not None:
            compiled = CompiledColumns(source, self._layout, self._judge, self.policy)
        ways = self._ways(source, compiled)
        limit = self.max_batch_bytes
        ends = [*(np.flatnonzero(np.diff(ways)) + 1).tolist(), source.rows]
        start = 0
        for end in ends:
            way = ways[start]
            if way == _UNOPENED:
                yield from self._unopened.batches(source, start, end, limit)
            else:
                self._unopened.forget()
            if way == _COMPILED and compiled is not None:
                if self._on_drop is not None:
                    for drop in compiled.drops(start, end):
                        self._on_drop(drop)
                yield from compiled.batches(start, end, self.counts, limit)
            elif way == _OBJECTS:
                yield from object_batches(source, start, end, self._layout, self._opener, limit)
            elif way == _NO_DATA:
                # SPK-1: "A row whose data is null MUST be reported as no-data, and refused under the strict
                # policy."
                if self.policy == "strict":
                    raise CaptureError(code="no-data", field="data")
                yield from no_data_batches(source, start, end, self._layout, self.counts, limit)
            start = end

    def _ways(self, source: Source, compiled: CompiledColumns | None) -> np.ndarray[Any, Any]:
        """How each row is processed."""
        ways = np.full(source.rows, _OBJECTS, np.int8)
        if compiled is not None:
            ways[compiled.certain] = _COMPILED
        else:
            framed = pc.fill_null(pc.starts_with(source.data, MAGIC), True)
            ways[~framed.to_numpy(zero_copy_only=False)] = _UNOPENED
        if source.data.null_count:
            ways[source.data.is_null().to_numpy(zero_copy_only=False)] = _NO_DATA
        if source.opened is not None:
            ways[source.opened] = _UNOPENED
        return ways


class Batches(Iterator[pa.RecordBatch]):
    """The iterator that `deaggregate_batches` returns; ``counts``: what was opened so far."""

    def __init__(self, batches: Iterator[pa.RecordBatch], counts: Counts) -> None:
        self._batches = batches
        self.counts = counts

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)


class Users(NamedTuple):
    """What `deaggregate_table` returns: the user records, and what was opened and dropped."""

    table: pa.Table
    counts: Counts


def deaggregate_batches(
    batches: ArrowData,
    policy: Policy = "strict",
    *,
    shard_map: ShardMap | None = None,
    hash_key_range: HashKeyRange | None = None,
    on_drop: Callable[[Drop], None] | None = None,
    tags: bool = False,
    decompress: bool | int = False,
    columns: Iterable[str] | None = None,
    max_batch_bytes: int = DEFAULT_BATCH_BYTES,
) -> Batches:
    """The user records of ``batches``, which share one schema, lazily and in order.

    ``batches``: record batches, or an object that holds some: a table, a reader, a data frame.
    ``shard_map``, ``hash_key_range``, ``on_drop``, ``decompress``: as in `kpl_codec.deaggregate`; data is
    decompressed in rows that were opened before, too. Small batches are joined up to ``max_batch_bytes``
    (hostile input can make very many).
    ``columns``: the names of the columns that are wanted, in that order; others are not made.
    Raises what `Deaggregator` raises, TypeError for what is no Arrow data; ``strict`` raises DecodeError
    while iterating.
    """
    counts = Counts()
    options: dict[str, Any] = {
        "shard_map": shard_map,
        "hash_key_range": hash_key_range,
        "on_drop": on_drop,
        "counts": counts,
        "tags": tags,
        "decompress": decompress,
        "columns": columns,
        "max_batch_bytes": max_batch_bytes,
    }

    def process() -> Iterator[pa.RecordBatch]:
        deaggregator: Deaggregator | None = None
        for batch in batches_of(batches):
            if deaggregator is None:
                deaggregator = Deaggregator(batch.schema, policy, **options)
            yield from deaggregator.process(batch)

    return Batches(coalesce(process(), max_batch_bytes), counts)


def deaggregate_table(
    table: ArrowData,
    policy: Policy = "strict",
    *,
    shard_map: ShardMap | None = None,
    hash_key_range: HashKeyRange | None = None,
    on_drop: Callable[[Drop], None] | None = None,
    tags: bool = False,
    decompress: bool | int = False,
    columns: Iterable[str] | None = None,
    threads: int | None = None,
) -> Users:
    """The user records of ``table``, in order, as one table, and the counts of what was opened.

    ``table``: anything that `deaggregate_batches` takes, with at least one batch. ``threads``: how many work
    at a time, pyarrow's number (`pyarrow.cpu_count`) unless given; the rows are the same for any, the chunks
    are not. A chunk holds what at most 16 MiB of data become, cut at 64 MiB. ``on_drop`` is called in the
    caller's thread, at the end. Other arguments as in `deaggregate_batches`.
    Raises what `deaggregate_batches` raises, of the first record that is refused; ValueError for fewer than
    one thread, and for no batch at all, which has no columns.
    """
    if threads is None:
        threads = pa.cpu_count()
    if threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    check_policy(policy)
    source = map(plain, batches_of(table))
    first = next(source, None)
    if first is None:
        raise ValueError("no batches: a table without rows has columns, an empty list has none")
    columns = None if columns is None else list(columns)
    layout = Layout(first.schema, policy, shard_map is not None, tags, columns)
    shares = _shares([first, *source], layout, threads)
    waiting = iter(enumerate(shares))
    done: list[list[pa.RecordBatch]] = [[] for _ in shares]
    drops: list[list[Drop]] = [[] for _ in shares]
    refused: dict[int, Exception] = {}

    def work(counts: Counts) -> None:
        dropped: list[Drop] = []
        deaggregator = Deaggregator(
            first.schema,
            policy,
            shard_map=shard_map,
            hash_key_range=hash_key_range,
            on_drop=None if on_drop is None else dropped.append,
            counts=counts,
            tags=tags,
            decompress=decompress,
            columns=columns,
            max_batch_bytes=_CHUNK_BYTES,
        )
        for number, share in waiting:
            try:
                made = (batch for part in share for batch in deaggregator.process(part))
                done[number] = list(coalesce(made, DEFAULT_BATCH_BYTES))
            except Exception as error:  # noqa: BLE001 - raised below, if its record is the first of these
                refused[number] = error
            drops[number], dropped[:] = list(dropped), ()
            if refused:
                return

    # SPK-75: "Objects of any library that has Arrow's PyCapsule interface MUST be taken, and the number of
    # threads MUST NOT change what comes out."
    own, *others = (Counts() for _ in range(max(1, min(threads, len(shares)))))
    started = [threading.Thread(target=work, args=(of,), name="kpl-codec-arrow") for of in others]
    for thread in started:
        thread.start()
    try:
        work(own)
    finally:
        for _ in waiting:
            pass  # nothing is left, but after an interrupt or a record that is refused
        for thread in started:
            thread.join()
    if on_drop is not None:
        for drop in chain.from_iterable(drops[: min(refused, default=len(shares)) + 1]):
            on_drop(drop)
    if refused:
        raise refused[min(refused)]
    for of in others:
        own.add(of)
    return Users(pa.Table.from_batches(chain.from_iterable(done), layout.schema), own)


def _shares(batches: list[pa.RecordBatch], layout: Layout, threads: int) -> list[list[pa.RecordBatch]]:
    """``batches`` in parts for threads: of a large one as many for each thread, all about as large."""
    may_be_opened = not {"aggregated", "subSequenceNumber"}.isdisjoint(batches[0].schema.names)
    size = sum(batch.nbytes for batch in batches)
    rounds = -(-size // (threads * _PART_BYTES)) or 1
    part_bytes = max(_LEAST_PART_BYTES, -(-size // (threads * rounds)))
    shares: list[list[pa.RecordBatch]] = []
    for part in (part for batch in batches for part in parts(batch, part_bytes)):
        # What a row that was opened before becomes depends on the row before it: they stay together.
        if shares and may_be_opened and Source(part.slice(0, 1), layout).opened is not None:
            shares[-1].append(part)
        else:
            shares.append([part])
    return shares


__all__ = [
    "COUNTING_FIELDS",
    "DEFAULT_BATCH_BYTES",
    "ERROR_FIELDS",
    "FIELDS",
    "PLACEMENT_FIELDS",
    "TAGS_FIELD",
    "Batches",
    "Deaggregator",
    "Users",
    "coalesce",
    "deaggregate_batches",
    "deaggregate_table",
    "output_schema",
]
