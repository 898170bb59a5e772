"""Arrow batches of Kinesis records in, Arrow batches of user records out: the bulk road.

    for batch in deaggregate_batches(batches, policy="report", shard_map=shard_map):
        ...

A batch needs a binary column ``data``. ``streamName``, ``shardId``, ``sequenceNumber``, ``partitionKey``,
``explicitHashKey`` and ``approximateArrivalTimestamp`` are used where they are there; every other column
is carried along. The columns equal the objects that `kpl_codec.deaggregate` gives for the same Kinesis
records under the same policy. For sound aggregates they are put together from key tables, indices and
offsets, without an object per user record; a defective frame goes through `deaggregate` itself.

Rows that say ``aggregated``, or have a sub-sequence number other than 0, were opened before: they pass
as they are, so that running twice does no harm. Output batches are bounded in bytes; what is held
meanwhile is bounded as well, by what a few MiB of the input grow to.
Specification: spec/07-spark.md, SPK-1 to SPK-4; spec/03-deaggregation.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..compiled import speedups
from ..deaggregation.policies import Counts, Policy
from ..errors import CaptureError, ChecksumMismatch, KplError
from ..format import frame
from ..format.message import parse
from ..limits import MAGIC
from ..shards.shard_map import ShardMap
from .compiled_columns import SideBySide
from .fallback import defective_rows
from .group import Group
from .layout import ERROR_FIELDS, FIELDS, PLACEMENT_FIELDS, TAGS_FIELD, Layout, Source, parts
from .outline import outlines
from .placer import Placer

#: Bytes that an output batch aims at. A batch is larger only where one user record is.
DEFAULT_BATCH_BYTES = 4 * 1024 * 1024
#: Bytes of data, about, that are worked on at a time: what is held meanwhile stays in the cache.
_PART_BYTES = 4 * 1024 * 1024


def output_schema(
    schema: pa.Schema, policy: Policy = "strict", *, placement: bool = False, tags: bool = False
) -> pa.Schema:
    """What `deaggregate_batches` gives for batches of ``schema``.

    The nine columns of a user record, ``tags`` if asked for, the input's other columns, then with a
    shard map the placement columns, and under the ``report`` policy what the KCL does and the errors.
    Raises TypeError for a column of the wrong type, CaptureError without ``data``.
    """
    return Layout(schema, policy, placement, tags).schema


class Deaggregator:
    """Batches of ``schema`` in, batches of ``.schema`` out; ``counts`` tells what went through.

    ``max_batch_bytes`` bounds each output batch (one user record always fits). ``tags`` adds a column.
    Raises ValueError for an unknown policy, TypeError and CaptureError as `output_schema`.
    """

    def __init__(
        self,
        schema: pa.Schema,
        policy: Policy = "strict",
        shard_map: ShardMap | None = None,
        *,
        tags: bool = False,
        max_batch_bytes: int = DEFAULT_BATCH_BYTES,
    ) -> None:
        if policy not in ("strict", "kcl", "report"):
            raise ValueError(f"policy {policy!r}: strict, kcl or report")
        self.policy = policy
        self.shard_map = shard_map
        self.counts = Counts()
        self.max_batch_bytes = max_batch_bytes
        self._layout = Layout(schema, policy, shard_map is not None, tags)
        self._placer = Placer(shard_map) if shard_map is not None else None

    @property
    def schema(self) -> pa.Schema:
        return self._layout.schema

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The user records of one batch, in order. Raises DecodeError under the ``strict`` policy, after
        the user records before it; CaptureError there for a row without data."""
        # SPK-3: "The columns MUST equal the objects that deaggregation gives for the same Kinesis records,
        # in the same order, under every policy."
        self.counts.kinesis_records += batch.num_rows
        for part in parts(batch, _PART_BYTES):
            yield from self._process_part(Source(part, self._layout))

    def _process_part(self, source: Source) -> Iterator[pa.RecordBatch]:
        if speedups is None or source.opened is not None or not source.rows:
            yield from self._process(source, 0, source.rows)
            return
        quick = SideBySide(source, self._layout, self._placer, self.policy)
        # Runs of rows that the compiled parser is certain of, and runs that it is not.
        ends = [*(np.flatnonzero(np.diff(quick.certain)) + 1).tolist(), source.rows]
        start = 0
        for end in ends:
            if quick.certain[start]:
                yield from quick.batches(start, end, self.counts, self.max_batch_bytes)
            else:
                yield from self._process(source, start, end)
            start = end

    def _process(self, source: Source, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The user records of the rows ``start`` to before ``end``."""
        group = Group(source, self._layout, self._placer, self.counts, self.policy)
        done = start  # rows before this one are in the group, or out
        to_open = self._to_open(source, start, end)
        certain = outlines(source, to_open) if speedups is None else {}
        for row in to_open:
            if row in certain:
                group.add_plain(done, row)
                done = row + 1
                group.add_aggregate(row, certain[row], source.size_of(row))
                if group.bytes >= self.max_batch_bytes:
                    yield from group.flush(self.max_batch_bytes)
                continue
            data = source.data_at(row)
            # SPK-1: "A row whose data is null MUST be reported as no-data, and refused under the strict
            # policy."
            if data is not None and not frame.looks_aggregated(data):
                continue
            group.add_plain(done, row)
            done = row + 1
            parsed = None
            if data is not None:
                with suppress(ChecksumMismatch):
                    parsed = parse(frame.split_frame(data))
            if parsed is not None:
                group.add_aggregate(row, parsed, len(data or b""))
                if group.bytes >= self.max_batch_bytes:
                    yield from group.flush(self.max_batch_bytes)
                continue
            yield from group.flush(self.max_batch_bytes)
            if data is None and self.policy == "strict":
                raise CaptureError(code="no-data", field="data")
            yield from defective_rows(
                source, row, self._layout, self.policy, self.shard_map, self.counts, self.max_batch_bytes
            )
        group.add_plain(done, end)
        yield from group.flush(self.max_batch_bytes)

    def _to_open(self, source: Source, start: int, end: int) -> list[int]:
        """Those of the rows that may be aggregates, or have no data; all others are plain for certain."""
        candidates = pc.fill_null(pc.starts_with(source.data.slice(start, end - start), MAGIC), True)
        if source.opened is not None:
            # SPK-2: "A row that says it came out of an aggregate (aggregated, or a sub-sequence number other
            # than 0) MUST pass unopened, as it is."
            candidates = pc.and_not(candidates, source.opened.slice(start, end - start))
        return (np.flatnonzero(candidates.to_numpy(zero_copy_only=False)) + start).tolist()


def deaggregate_batches(
    batches: Iterable[pa.RecordBatch],
    policy: Policy = "strict",
    shard_map: ShardMap | None = None,
    *,
    tags: bool = False,
    max_batch_bytes: int = DEFAULT_BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The user records of ``batches``, which share one schema, lazily and in order.

    Small batches (as hostile input makes them) are put together up to ``max_batch_bytes``.
    Raises what `Deaggregator` raises; ``strict`` raises DecodeError while iterating.
    """
    deaggregator: Deaggregator | None = None

    def process() -> Iterator[pa.RecordBatch]:
        nonlocal deaggregator
        for batch in batches:
            if deaggregator is None:
                deaggregator = Deaggregator(
                    batch.schema, policy, shard_map, tags=tags, max_batch_bytes=max_batch_bytes
                )
            yield from deaggregator.process(batch)

    return coalesce(process(), max_batch_bytes)


def coalesce(batches: Iterable[pa.RecordBatch], max_batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: neighbours are joined while they stay within ``max_batch_bytes``.

    What is held back is given before an error of ``batches`` is raised.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    try:
        for batch in batches:
            if held and size + batch.nbytes > max_batch_bytes:
                yield _join(held)
                held, size = [], 0
            held.append(batch)
            size += batch.nbytes
    except KplError:
        if held:
            yield _join(held)
        raise
    if held:
        yield _join(held)


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0]


__all__ = [
    "DEFAULT_BATCH_BYTES",
    "ERROR_FIELDS",
    "FIELDS",
    "PLACEMENT_FIELDS",
    "TAGS_FIELD",
    "Deaggregator",
    "coalesce",
    "deaggregate_batches",
    "output_schema",
]
