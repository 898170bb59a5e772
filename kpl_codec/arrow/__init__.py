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
(compiled_columns.py); those of all others are made of the objects (object_columns.py). Rows that were opened
before stay unchanged, so running twice does no harm. Memory is limited to what a few MiB of the input become.
Specification: spec/07-spark.md, SPK-1 to SPK-4, SPK-75; spec/03-deaggregation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from ..deaggregation.deaggregated_record import Counts, Drop
from ..deaggregation.payload import PayloadDecoder
from ..deaggregation.policies import RecordDeaggregator
from ..deaggregation.policy_rules import Policy, rules_of
from ..format.hash_keys import HashKeyRange
from ..lazy import needing_extras
from ..schema_registry import Unframe
from ..shards.placement import PlacementChecker
from ..shards.shard_map import ShardMap
from ..shards.stream_name import StreamMatcher

if TYPE_CHECKING:
    from typing_extensions import Unpack

with needing_extras("kpl_codec.arrow"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

from .compiled_columns import compiled_columns
from .exchange import ArrowData, batches_of, plain, plain_schema
from .exchange import coalesce as coalesce
from .layout import FIELDS as FIELDS
from .layout import Layout, Numbers, Source, parts
from .object_columns import NEEDED, ObjectColumns, decode_payloads

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
_COMPILED, _OBJECTS, _KEPT = range(3)
#: What is added for a row of another stream than the shard map's.
_OTHER = 3


def output_schema(
    schema: ArrowData,
    policy: Policy = "strict",
    *,
    placement: bool = False,
    tags: bool = False,
    unframe: Unframe = False,
    columns: Iterable[str] | None = None,
    dictionaries: bool | None = None,
) -> pa.Schema:
    """The schema that `deaggregate_batches` gives for batches of ``schema``.

    The nine columns of a user record, ``tags`` and (``unframe``) ``schemaVersionId`` if asked for, the
    input's other columns, with a shard map the placement columns, and under the ``report`` policy the columns
    of the KCL's outcome, of errors and for counting. ``columns``: only those of them, in that order. Raises
    TypeError for a column of the wrong type, CaptureError without ``data``, ValueError for a name in
    ``columns`` that is none of them, or is there twice, and for an unknown policy.
    """
    return Layout(
        plain_schema(schema),
        rules_of(policy),
        placement,
        tags,
        columns,
        unframe=unframe is not False,
        dictionaries=dictionaries,
    ).schema


class Options(TypedDict, total=False):
    """Keyword arguments of the functions here; `Deaggregator` says what each is."""

    shard_map: ShardMap | None
    hash_key_range: HashKeyRange | None
    on_drop: Callable[[Drop], None] | None
    max_decompressed_size: int | None
    unframe: Unframe
    tags: bool
    columns: Iterable[str] | None


def _check(options: Mapping[str, Any]) -> None:
    """Raises TypeError for a name that `Options` does not have: at the call, not at the first batch."""
    unknown = options.keys() - Options.__annotations__
    if unknown:
        raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")


class Deaggregator:
    """Turns batches of ``schema`` into batches of ``.schema``.

    ``shard_map``, ``hash_key_range``, ``on_drop``, ``max_decompressed_size``, ``unframe``: as in
    `kpl_codec.deaggregate`; ``unframe`` adds the column ``schemaVersionId``, and rows that have one stay.
    Rows whose ``streamName`` is another stream than the map's come as without a map. ``streams``: what
    several that share a map share, too, to refuse rows of several streams by one map.
    ``.counts``: what was opened so far.
    ``max_batch_bytes`` limits each output batch (one user record always fits). ``tags`` adds a column.
    ``columns``: the names of the columns that are wanted, None for all; others are not made.
    ``dictionaries``: whether text that is the same in many rows comes as dictionary arrays: all but keys and
    errors; None: ``schemaVersionId`` only. A batch stays within its limit if they are written out.
    Raises ValueError for an unknown policy, TypeError and CaptureError as `output_schema`; SeveralStreams
    for rows of several streams by a map that does not say which one it is of.
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
        unframe: Unframe = False,
        tags: bool = False,
        columns: Iterable[str] | None = None,
        max_batch_bytes: int = DEFAULT_BATCH_BYTES,
        dictionaries: bool | None = None,
        streams: StreamMatcher | None = None,
        _counts: Counts | None = None,
    ) -> None:
        self._rules = rules = rules_of(policy)
        self.counts = Counts() if _counts is None else _counts
        self._on_drop = on_drop
        self.max_batch_bytes = max_batch_bytes
        #: Takes compression and frames off, where compiled code does not.
        self._decoder = PayloadDecoder(max_decompressed_size, unframe, rules, self.counts.defects)
        # It does not see frames in compressed data, and knows no versions.
        self._peels = unframe is True and max_decompressed_size is None
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
            needed=NEEDED if self._decoder.beginnings else (),
            unframe=unframe is not False,
        )
        judge = PlacementChecker(shard_map, hash_key_range) if self._layout.judged else None
        self._streams = streams or StreamMatcher(None if shard_map is None else shard_map.stream)
        #: By whether a row is of another stream than the map: such a row is not judged.
        self._judges = judge, None
        self._objects = [self._objects_by(judge) for judge in self._judges]

    def _objects_by(self, judge: PlacementChecker | None) -> ObjectColumns:
        opener = RecordDeaggregator(self._rules, judge, self.counts, self._on_drop)
        return ObjectColumns(self._layout, self._rules, opener, judge, self.counts)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        return self._layout.schema

    def process(self, batch: ArrowData) -> Iterator[pa.RecordBatch]:
        """The user records of one batch, in order. Under the ``strict`` policy it raises DecodeError, after
        the user records before it, and CaptureError for a row without data."""
        # SPK-3: "The columns MUST equal the objects that deaggregation gives for the same Kinesis records,
        # in the same order, under every policy."
        for part in parts(plain(batch), _PART_BYTES):
            batches = self._process_part(Source(part, self._layout))
            whole = len(self._layout.made) == len(self.schema)
            yield from batches if whole else (rows.select(self.schema.names) for rows in batches)

    def _payloads_decoded(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decode = partial(decode_payloads, decoder=self._decoder, max_bytes=self.max_batch_bytes)
        return chain.from_iterable(map(decode, batches)) if self._decoder.beginnings else batches

    def goes_on(self, batch: pa.RecordBatch) -> bool:
        """Whether the first row was opened before: what becomes of it depends on the one in front."""
        return Source(batch.slice(0, 1), self._layout).opened is not None

    def _process_part(self, source: Source) -> Iterator[pa.RecordBatch]:
        if not source.rows:
            return
        others = self._others(source)
        compiled = [
            columns
            for judge in self._judges[: 1 if others is None else 2]
            if (columns := compiled_columns(source, self._layout, judge, self._rules, self._peels))
            is not None
        ]
        ways = np.full(source.rows, _OBJECTS, np.int8)
        if compiled:
            ways[compiled[0].certain] = _COMPILED
        if source.opened is not None:
            ways[source.opened] = _KEPT
        if others is not None:
            ways += _OTHER * others
        limit = self.max_batch_bytes
        start = 0
        for end in [*(np.flatnonzero(np.diff(ways)) + 1).tolist(), source.rows]:
            other, way = divmod(int(ways[start]), _OTHER)
            objects = self._objects[other]
            if way == _KEPT:
                yield from self._payloads_decoded(objects.kept(source, start, end, limit))
            elif way == _OBJECTS:
                yield from self._payloads_decoded(objects.opened(source, start, end, limit))
            else:
                objects.forget()
                columns = compiled[other]
                for drop in columns.drops(start, end):
                    self.counts.dropped[drop.reason] += drop.user_records
                    if self._on_drop is not None:
                        self._on_drop(drop)
                batches = columns.batches(start, end, self.counts, limit)
                done = self._peels and not columns.packed
                yield from batches if done else self._payloads_decoded(batches)
            start = end

    def _others(self, source: Source) -> Numbers | None:
        """1 for each row of another stream than the shard map is of, else 0; None where there is none. Raises
        SeveralStreams."""
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
    max_batch_bytes: int = DEFAULT_BATCH_BYTES,
    **options: Unpack[Options],
) -> Batches:
    """The user records of ``batches``, which share one schema, lazily and in order.

    ``batches``: record batches, or an object that holds some: a table, a reader, a data frame.
    ``options``: see `Options`; data is decompressed and unframed in rows that were opened before, too. Small
    batches are joined up to ``max_batch_bytes`` (hostile input can make very many). Raises what
    `Deaggregator` raises, TypeError for what is no Arrow data; ``strict`` raises DecodeError while iterating.
    """
    _check(options)
    counts = Counts()

    def process() -> Iterator[pa.RecordBatch]:
        source = batches_of(batches)
        for first in source:
            deaggregator = Deaggregator(
                first.schema, policy, max_batch_bytes=max_batch_bytes, _counts=counts, **options
            )
            for batch in chain((first,), source):
                yield from deaggregator.process(batch)

    return Batches(coalesce(process(), max_batch_bytes), counts)


def deaggregate_table(
    table: ArrowData, policy: Policy = "strict", *, threads: int | None = None, **options: Unpack[Options]
) -> Users:
    """The user records of ``table``, in order, as one table, and the counts of what was opened.

    ``table``: anything that `deaggregate_batches` takes, with at least one batch. ``threads``: how many work
    at a time, pyarrow's number (`pyarrow.cpu_count`) unless given; the rows are the same for any, the chunks
    are not. A chunk holds what at most 16 MiB of data become, cut at 64 MiB. ``on_drop`` is called in the
    caller's thread. ``options``: see `Options`.
    Raises what `deaggregate_batches` raises, of the first record that is refused; ValueError for fewer than
    one thread, and for no batch at all, which has no columns.
    """
    _check(options)
    if threads is None:
        threads = pa.cpu_count()
    if threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    source = map(plain, batches_of(table))
    first = next(source, None)
    if first is None:
        raise ValueError("no batches: a table without rows has columns, an empty list has none")
    on_drop = options.pop("on_drop", None)
    names = options.get("columns")
    if names is not None:
        options["columns"] = list(names)
    shard_map = options.get("shard_map")
    streams = StreamMatcher(None if shard_map is None else shard_map.stream)
    make = partial(
        Deaggregator, first.schema, policy, max_batch_bytes=_CHUNK_BYTES, streams=streams, **options
    )
    deaggregator = make()
    shares = _shares([first, *source], deaggregator, threads)
    batches: list[pa.RecordBatch] = []
    counts = Counts()

    # SPK-75: "Objects of any library that has Arrow's PyCapsule interface MUST be taken, and the number of
    # threads MUST NOT change what comes out."
    def work(
        share: list[pa.RecordBatch],
    ) -> tuple[list[pa.RecordBatch], Counts, list[Drop], Exception | None]:
        """What a thread does; threads share nothing."""
        drops: list[Drop] = []
        made: list[pa.RecordBatch] = []
        own = make(on_drop=on_drop and drops.append)
        try:
            made.extend(coalesce(chain.from_iterable(map(own.process, share)), DEFAULT_BATCH_BYTES))
        except Exception as error:  # noqa: BLE001 - raised in the caller's thread, after the drops before it
            return made, own.counts, drops, error
        return made, own.counts, drops, None

    with ThreadPoolExecutor(threads, "kpl-codec-arrow") as pool:
        for made, counted, drops, refusal in pool.map(work, shares):
            batches += made
            counts.add(counted)
            if on_drop is not None:
                for drop in drops:
                    on_drop(drop)
            if refusal is not None:
                raise refusal
    return Users(pa.Table.from_batches(batches, deaggregator.schema), counts)


def _shares(
    batches: list[pa.RecordBatch], deaggregator: Deaggregator, threads: int
) -> list[list[pa.RecordBatch]]:
    """``batches`` in parts for threads: of a large one as many for each thread, all about as large."""
    may_be_opened = not {"aggregated", "subSequenceNumber"}.isdisjoint(batches[0].schema.names)
    size = sum(batch.nbytes for batch in batches)
    rounds = -(-size // (threads * _PART_BYTES)) or 1
    part_bytes = max(_LEAST_PART_BYTES, -(-size // (threads * rounds)))
    shares: list[list[pa.RecordBatch]] = []
    for part in (part for batch in batches if batch.num_rows for part in parts(batch, part_bytes)):
        if shares and may_be_opened and deaggregator.goes_on(part):
            shares[-1].append(part)
        else:
            shares.append([part])
    return shares


__all__ = [
    "Batches",
    "Deaggregator",
    "Options",
    "Users",
    "deaggregate_batches",
    "deaggregate_table",
    "output_schema",
]
