"""Counts how often each known user record was handled, and keeps what is handled and not known.

Memory: a byte a user record, two with several sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from .names import Names

#: Sources that can be told apart; all later ones are one.
SOURCES: Final = 8
#: User records that are looked at at a time: what their arrays need.
SLICE: Final = 1 << 20
#: Every Kinesis record has fewer user records.
MOST_USER_RECORDS: Final = 10_000_000
#: Unclaimed Kinesis records of which the names are kept.
MOST_UNCLAIMED: Final = 100_000


class Unclaimed(NamedTuple):
    """A Kinesis record that was handled and that no ledger has. ``user_records``: rows, not names."""

    shard_id: str
    sequence_number: str
    user_records: int
    first: int
    last: int
    digest: bytes | None


class _Batch(NamedTuple):
    shards: Sequence[str]
    numbers: Any
    digests: Sequence[bytes | None] | None
    places: Any
    before: bool


class Tally:
    """Counts how often each name was handled, and by which sources.

    ``bad``: rows that name no user record. ``unclaimed_rows``: handled rows that no ledger has.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.times = np.zeros(names.user_records, np.uint8)  # 255: that often or oftener
        self._by: Any = None  # a bit a source, once there are two of them
        self.sources: list[str] = []
        self.rows = self.bad = self.unclaimed_rows = 0
        #: Of each shard one past the last known Kinesis record that is before the last handled one.
        self.passed = names.bounds[:-1].copy()
        self.unclaimed: dict[tuple[str, str], Unclaimed] = {}
        self.handled_shards: set[str] = set()

    def source(self, name: str) -> None:
        """The batches that follow are of this source."""
        if name not in self.sources:
            self.sources.append(name)
        self._bit = np.uint8(1 << min(self.sources.index(name), SOURCES - 1))
        if self._by is None and len(self.sources) > 1:
            self._by = self.by(slice(None))

    def by(self, user_records: Any) -> Any:
        """Of each user record a bit for each source that has handled it."""
        if self._by is None:
            return (self.times[user_records] > 0).astype(np.uint8)
        return self._by[user_records]

    def add(
        self,
        shards: Sequence[str],
        numbers: Any,
        record: Any,
        first: Any,
        last: Any | None = None,
        *,
        digests: Sequence[bytes | None] | None = None,
        before: bool = False,
    ) -> None:
        """A batch: ``shards`` and ``numbers`` (bytes) of its Kinesis records, each named once or oftener; and
        of each of its rows which of them it is of, and its user records ``first`` to ``last`` (the same
        without ``last``). ``before``: they were handled before, this is only said again."""
        single = last is None
        last = first if last is None else last
        # (A run from a file may claim any length: no Kinesis record has so many user records.)
        good = (first >= 0) & (last >= first) & (last < MOST_USER_RECORDS)
        if not good.all():
            self.bad += int((~good).sum())
            record, first, last = record[good], first[good], last[good]
        places, passed, codes = self.names.find(shards, numbers)
        self.handled_shards.update(shards)
        known = codes >= 0
        np.maximum.at(self.passed, codes[known], passed[known])
        batch = _Batch(shards, numbers, digests, places, before)
        lengths = last - first + 1
        ends = np.arange(1, len(record) + 1) if single else np.cumsum(lengths)
        start, done = 0, 0
        while start < len(ends):
            stop = max(int(np.searchsorted(ends, done + SLICE, side="right")), start + 1)
            piece = slice(start, stop)
            if single:
                self._count(batch, record[piece], first[piece])
            else:  # runs are written out
                count = lengths[piece]
                inside = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
                self._count(batch, np.repeat(record[piece], count), np.repeat(first[piece], count) + inside)
            start, done = stop, int(ends[stop - 1])

    def _count(self, batch: _Batch, record: Any, sub: Any) -> None:
        self.rows += len(record)
        place = batch.places[record]
        claimed = place >= 0
        claimed[claimed] = sub[claimed] < self.names.counts[place[claimed]]
        if not claimed.all():
            self._not_claimed(batch, record[~claimed], sub[~claimed])
            place, sub = place[claimed], sub[claimed]
        at = self.names.starts[place] + sub
        if self._by is not None:
            self._by[at] |= self._bit
        if batch.before:
            self.times[at] = np.maximum(self.times[at], 1)
        elif not _distinct(at):
            at, times = np.unique(at, return_counts=True)
            self.times[at] = np.minimum(self.times[at].astype(np.int64) + times, 255)
        else:
            known = self.times[at]
            self.times[at] = known + (known < 255)

    def _not_claimed(self, batch: _Batch, record: Any, sub: Any) -> None:
        self.unclaimed_rows += len(record)
        over = batch.places[record]  # a ledger has them, with fewer user records
        np.maximum.at(self.passed, self.names.shard[over[over >= 0]], over[over >= 0] + 1)
        order = np.argsort(record, kind="stable")
        kinds, counts = np.unique(record, return_counts=True)
        edges = np.concatenate(([0], np.cumsum(counts)))
        for at, which in enumerate(kinds):
            name = batch.shards[which], bytes(batch.numbers[which]).decode("utf-8", "replace")
            inside = sub[order[edges[at] : edges[at + 1]]]
            known = self.unclaimed.get(name)
            if known is None and len(self.unclaimed) >= MOST_UNCLAIMED:
                continue
            digest = None if batch.digests is None else batch.digests[which]
            low, high, rows = int(inside.min()), int(inside.max()), len(inside)
            if known is not None:
                low, high, rows = min(low, known.first), max(high, known.last), rows + known.user_records
                digest = digest or known.digest
            self.unclaimed[name] = Unclaimed(*name, rows, low, high, digest)


def _distinct(at: Any) -> bool:
    """Whether no user record is there twice, as far as that can be seen without sorting them all."""
    breaks = np.flatnonzero(np.diff(at) != 1)
    if not len(at) or len(breaks) * 8 > len(at):
        return not len(at)
    firsts, lasts = at[np.concatenate(([0], breaks + 1))], at[np.concatenate((breaks, [len(at) - 1]))]
    order = np.argsort(firsts)
    return bool((firsts[order][1:] > lasts[order][:-1]).all())
