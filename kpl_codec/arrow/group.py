"""A run of Kinesis records on its way to columns of user records.

Its keys are one table and its user records are numbers into it; text and bytes are written out only
slice by slice, because that is where a small frame could grow large (one long key, many short user
records).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..deaggregation.policies import Counts, Policy
from ..format.message import AggregatedRecord
from .layout import KEPT, TAGS_FIELD, Layout, Source, lengths, tag_values
from .outline import Outline
from .placer import Placer, explicit_hash_key_bytes, hash_key_bytes, partition_key_bytes


class Group:
    """A run of rows of one source batch, plain ones and sound aggregates, on their way out together."""

    def __init__(
        self, source: Source, layout: Layout, placer: Placer | None, counts: Counts, policy: Policy
    ) -> None:
        self._source, self._layout, self._placer = source, layout, placer
        self._counts, self._policy = counts, policy
        self._clear()

    def _clear(self) -> None:
        self.bytes = 0
        # Rows start to stop, or one frame.
        self._parts: list[tuple[int, int, AggregatedRecord | Outline | None]] = []

    def add_plain(self, start: int, stop: int) -> None:
        """Rows that are their own only user record."""
        if start < stop:
            self._parts.append((start, stop, None))

    def add_aggregate(self, row: int, parsed: AggregatedRecord | Outline, size: int) -> None:
        """One sound aggregate."""
        self._parts.append((row, row + 1, parsed))
        self.bytes += size + len(parsed.partition_key_indices) * int(self._source.width()[row])

    def flush(self, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """All of it, in order, in batches of at most ``max_bytes`` (or one row)."""
        parts = self._parts
        self._clear()
        if parts:
            columns = _Columns(self._source, self._layout, parts, self._placer)
            yield from columns.slices(self._policy, self._counts, max_bytes)


class _Columns:
    """A group as arrays: for each user record numbers into small tables, which `slices` writes out."""

    def __init__(
        self,
        source: Source,
        layout: Layout,
        parts: list[tuple[int, int, AggregatedRecord | Outline | None]],
        placer: Placer | None,
    ) -> None:
        self._source, self._layout = source, layout
        self._first, self._last = parts[0][0], parts[-1][1]
        base = self._last - self._first  # plain rows are numbered from 0, table entries from here
        self._opens = any(parsed is not None for _, _, parsed in parts)
        # Where every part is rows or outlines, data is cut out of the batch's bytes, not put together.
        cuts = self._opens and not any(isinstance(parsed, AggregatedRecord) for _, _, parsed in parts)
        keys: list[str] = []
        hash_keys: list[str] = []
        data: list[bytes] = []
        tags: list[Any] = []
        pks: list[Any] = []
        ehks: list[Any] = []
        starts, ends = [], []
        # Per part: how many user records; what its key, explicit hash key and payload numbers start from.
        counts, key_bases, hash_key_bases, bases = [], [], [], []
        for start, stop, parsed in parts:
            key_bases.append(base + len(keys) if parsed is not None else 0)
            hash_key_bases.append(base + len(hash_keys) if parsed is not None else 0)
            if parsed is None:
                span = np.arange(start - self._first, stop - self._first)
                pks.append(span)
                ehks.append(span)
                bases.append(start - self._first)
                counts.append(stop - start)
                tags.extend(repeat(None, stop - start))
                if cuts:
                    of_rows = source.spans(start, stop)
                    starts.append(of_rows[0])
                    ends.append(of_rows[1])
                continue
            count = len(parsed.partition_key_indices)
            counts.append(count)
            pks.append(parsed.partition_key_indices)
            keys.extend(parsed.partition_key_table)
            if parsed.explicit_hash_key_indices is None:
                ehks.append(_NONE.repeat(count))
            else:
                ehks.append(parsed.explicit_hash_key_indices)
                hash_keys.extend(parsed.explicit_hash_key_table)
            bases.append(base + len(data))
            parsed_tags = None
            if not isinstance(parsed, Outline):
                data.extend(parsed.data)
                parsed_tags = parsed.tags
            elif cuts:
                starts.append(parsed.starts)
                ends.append(parsed.ends)
            else:
                spans = zip(parsed.starts.tolist(), parsed.ends.tolist(), strict=True)
                data.extend(source.bytes[a:b].tobytes() for a, b in spans)
            tags.extend(repeat(None, count) if parsed_tags is None else parsed_tags)
        total = sum(counts)
        within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        opened = np.repeat([parsed is not None for _, _, parsed in parts], counts)
        self.rows = np.repeat([start - self._first for start, _, _ in parts], counts) + within * ~opened
        self.subs = within * opened
        self.frames = np.where(opened, np.repeat(np.arange(len(parts)), counts), -1)
        self.pks = np.concatenate(pks) + np.repeat(key_bases, counts)
        ehk_indices = np.concatenate(ehks)
        self.ehks = np.where(ehk_indices < 0, -1, ehk_indices + np.repeat(hash_key_bases, counts))
        self._key_table = self._table("partitionKey", keys, pa.string())
        self._hash_key_table = self._table("explicitHashKey", hash_keys, pa.string())
        if cuts:
            self._data_table = source.cut(np.concatenate(starts), np.concatenate(ends))
            self.payloads = 2 * np.arange(total) + 1
        else:
            self._data_table = self._table("data", data, pa.binary())
            self.payloads = np.repeat(bases, counts) + within
        self._tags = tags if layout.tags and any(tags) else None
        self.counts = int(opened.sum()), sum(parsed is not None for _, _, parsed in parts)
        self.in_range: np.ndarray[Any, Any] | None = None
        if placer is not None:
            self._place(placer, keys, hash_keys, base)

    def _table(self, name: str, entries: list[Any], kind: pa.DataType) -> pa.Array:
        own = self._source.columns[name].slice(self._first, self._last - self._first)
        if not self._opens:
            return own
        if own.type != kind:
            kind = own.type
        return pa.concat_arrays([own, pa.array(entries, kind)])

    def _place(self, placer: Placer, keys: list[str], hash_keys: list[str], base: int) -> None:
        """Each table entry is hashed and judged once for the shard its Kinesis record lies on."""
        frames, rows = self.frames, self.rows
        opened = self._source.opened
        plain = frames < 0
        row_hashes: list[bytes | None] = [None] * base
        certain_rows = np.zeros(base, bool)
        if plain.any():
            own_keys = self._key_table.slice(0, base).to_pylist()
            own_hash_keys = self._hash_key_table.slice(0, base).to_pylist()
            for row in rows[plain].tolist():
                row_hashes[row] = hash_key_bytes(own_keys[row], own_hash_keys[row])
                certain_rows[row] = own_hash_keys[row] is not None
            if opened is not None:
                flags = pc.fill_null(self._source.columns["aggregated"].slice(self._first, base), False)
                certain_rows |= flags.to_numpy(zero_copy_only=False)
        hashes: list[bytes | None] = [*row_hashes, *map(partition_key_bytes, keys)]
        hashes.extend(map(explicit_hash_key_bytes, hash_keys))
        # A user record's hash is its explicit hash key's where it has one, else its partition key's.
        explicit = (self.ehks >= 0) & ~plain
        self.items = np.where(explicit, self.ehks + len(keys), self.pks)
        # The table entries of a frame belong to its row; an entry nobody uses goes to any.
        owner = np.zeros(len(hashes), np.int64)
        owner[self.items] = rows
        shard_ids, codes = self._source.shards()
        certain = np.ones(len(hashes), bool)
        certain[:base] = certain_rows
        known = np.array([item is not None for item in hashes])
        self._hashes = pa.array(hashes, pa.binary())
        self._expected, self._verdicts, in_range = placer(
            b"".join(item or bytes(16) for item in hashes),
            known,
            shard_ids,
            codes[self._first : self._last][owner],
            certain,
        )
        self.in_range = in_range[self.items]
        self._kinds = self._aggregate_kinds()

    def _aggregate_kinds(self) -> np.ndarray[Any, Any]:
        """Per user record the number of its aggregate's kind in _KINDS."""
        assert self.in_range is not None
        starts = np.flatnonzero(np.diff(self.frames, prepend=-2))
        low = np.minimum.reduceat(self.in_range, starts)
        high = np.maximum.reduceat(self.in_range, starts)
        kinds = np.select([self.frames[starts] < 0, low < 0, low != high], [0, 0, 2], np.where(low > 0, 1, 3))
        return np.repeat(kinds, np.diff(starts, append=len(self.frames)))

    def slices(self, policy: Policy, counts: Counts, max_bytes: int) -> Iterator[pa.RecordBatch]:
        users, aggregates = self.counts
        keep = None
        foreign = np.zeros(len(self.rows), bool)
        if self.in_range is not None:
            # KCL-4, as kcl.py: one user record outside the range takes the whole aggregate with it.
            foreign = self._kinds >= 2
            if policy == "kcl" and foreign.any():
                keep = np.flatnonzero(~foreign)
                lost = int(foreign.sum())
                counts.dropped["out-of-range"] += lost
                users -= lost
        counts.aggregated_records += aggregates
        counts.user_records += users + int((self.frames < 0).sum())
        weights = (
            self._source.width()[self._first : self._last][self.rows]
            + lengths(self._key_table)[self.pks]
            + np.where(
                self.ehks < 0,
                0,
                lengths(self._hash_key_table)[self.ehks] if len(self._hash_key_table) else 0,
            )
            + lengths(self._data_table)[self.payloads]
        )
        if keep is not None:
            weights = weights[keep]
        ends = np.cumsum(weights)
        start, before = 0, 0
        while start < len(ends):
            # SPK-4: "An output batch MUST stay within its limit of bytes unless it holds one user record
            # only, whatever the input holds."
            stop = max(int(np.searchsorted(ends, before + max_bytes, side="right")), start + 1)
            chosen = np.arange(start, stop) if keep is None else keep[start:stop]
            yield self._write(chosen, foreign, policy)
            start, before = stop, int(ends[stop - 1])

    def _write(
        self, chosen: np.ndarray[Any, Any], foreign: np.ndarray[Any, Any], policy: Policy
    ) -> pa.RecordBatch:
        source, count = self._source, len(chosen)
        every = count == len(self.rows)
        rows = self.rows if every else self.rows[chosen]
        frames = self.frames if every else self.frames[chosen]
        plain = frames < 0
        columns: dict[str, pa.Array] = {}
        if not self._opens:  # nothing but plain rows next to one another: no copy
            for name in (*self._layout.shared, "partitionKey", "explicitHashKey", "data"):
                columns[name] = source.columns[name].slice(self._first + int(rows[0]), count)
        else:
            where = pa.array(rows)
            for name in self._layout.shared:
                own = source.columns[name].slice(self._first, self._last - self._first)
                columns[name] = own.take(where)
            columns["partitionKey"] = self._key_table.take(pa.array(self.pks[chosen]))
            ehks = self.ehks[chosen]
            columns["explicitHashKey"] = self._hash_key_table.take(pa.array(ehks, mask=ehks < 0))
            payloads = self.payloads[chosen]
            if not plain.any() and count and int(payloads[-1]) - int(payloads[0]) == count - 1:
                columns["data"] = self._data_table.slice(int(payloads[0]), count)
            else:
                columns["data"] = self._data_table.take(pa.array(payloads))
        columns["subSequenceNumber"] = pa.array(self.subs[chosen], pa.int64())
        columns["aggregated"] = pa.array(~plain)
        if self._tags is not None and policy != "kcl":
            columns["tags"] = pa.array([tag_values(self._tags[i]) for i in chosen.tolist()], TAGS_FIELD.type)
        if self.in_range is not None:
            items = pa.array(self.items[chosen])
            columns["hashKey"] = self._hashes.take(items)
            columns["expectedShardId"] = self._expected.take(items)
            columns["placement"] = self._verdicts.take(items)
            columns["aggregatePlacement"] = _KINDS.take(pa.array(self._kinds[chosen]))
        if self._layout.report:
            columns["kcl"] = _OUTCOMES.take(pa.array(foreign[chosen].astype(np.int8)))
            columns["errorCount"] = pa.array(np.zeros(count, np.int64))
        if source.opened is not None and plain.any():
            self._keep_opened(columns, rows, plain)
        return self._layout.batch(columns, count)

    def _keep_opened(
        self, columns: dict[str, pa.Array], rows: np.ndarray[Any, Any], plain: np.ndarray[Any, Any]
    ) -> None:
        """Rows that were user records of an aggregate already stay what they were."""
        where = pa.array(rows)
        size = self._last - self._first
        mask = pc.and_(self._source.opened.slice(self._first, size).take(where), pa.array(plain))  # type: ignore[union-attr]
        for name in KEPT:
            own = self._source.columns.get(name)
            at = self._layout.schema.get_field_index(name)
            if own is None or at < 0 or (own.null_count == len(own) and name in _STAND_INS):
                continue
            was = own.slice(self._first, size).take(where)
            now = columns.get(name, pa.nulls(len(rows), self._layout.schema.field(at).type))
            columns[name] = pc.if_else(mask, was, now)


_NONE = np.array([-1])
#: Columns that `Source` makes up as null where a batch lacks them: null there says nothing.
_STAND_INS = ("subSequenceNumber", "aggregated")
_KINDS = pa.array([None, "whole", "mixed", "foreign"], pa.string())
_OUTCOMES = pa.array(["delivered", "dropped"], pa.string())
