"""Counts how often each known user record was handled, and keeps what is handled and not known.

Memory: a byte a user record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from .names import Names

#: User records of runs that are written out at a time.
_SLICE: Final = 1 << 20
#: Every Kinesis record has fewer user records.
_MOST_USER_RECORDS: Final = 10_000_000
#: Unclaimed Kinesis records of which the names are kept.
_MOST_UNCLAIMED: Final = 100_000


class Unclaimed(NamedTuple):
    """A Kinesis record that was handled and that no ledger has, with its user records ``first`` to ``last``.
    ``rows``: how many rows said so."""

    shard_id: str
    sequence_number: str
    first: int
    last: int
    rows: int


class Batch(NamedTuple):
    """Handled user records, row by row: ``first`` to ``last`` (the same without ``last``) of ``record``, an
    index into the Kinesis records ``shards`` and ``numbers``, each of which is named once or oftener.
    ``before``: they were handled before, this is only said again."""

    shards: Sequence[str]
    numbers: Sequence[bytes]
    record: Any
    first: Any
    last: Any = None
    before: bool = False


class Tally:
    """Counts how often each name was handled.

    ``bad``: rows that name no user record. ``unclaimed_rows``: handled rows that no ledger has.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.times = np.zeros(names.user_records, np.uint8)  # 255: that often or oftener
        self.rows = self.bad = self.unclaimed_rows = 0
        #: Of each shard one past the last known Kinesis record that is before the last handled one.
        self.passed = names.bounds[:-1].copy()
        self.unclaimed: dict[tuple[str, str], Unclaimed] = {}
        self.handled_shards: set[str] = set()
        #: Of records of queues, by their places in the ledger, the digests.
        self.queued: dict[tuple[str, str], bytes] = {}

    def add(self, batch: Batch) -> None:
        """Count a batch."""
        _, _, record, first, last, _ = batch
        last = first if last is None else last
        # (A run from a file may claim any length.)
        good = (first >= 0) & (last < _MOST_USER_RECORDS) & (last >= first)
        if not good.all():
            self.bad += int((~good).sum())
            record, first, last = record[good], first[good], last[good]
        places, passed, codes = self.names.find(batch.shards, batch.numbers)
        self.handled_shards.update(batch.shards)
        known = codes >= 0
        np.maximum.at(self.passed, codes[known], passed[known])
        if batch.last is None:
            self._count(batch, places, record, first)
            return
        lengths = last - first + 1
        ends, start, done = np.cumsum(lengths), 0, 0
        while start < len(ends):
            stop = max(int(np.searchsorted(ends, done + _SLICE, side="right")), start + 1)
            count = lengths[start:stop]
            inside = np.arange(ends[stop - 1] - done) - np.repeat(ends[start:stop] - count - done, count)
            users = np.repeat(first[start:stop], count) + inside
            self._count(batch, places, np.repeat(record[start:stop], count), users)
            start, done = stop, int(ends[stop - 1])

    def _count(self, batch: Batch, places: Any, record: Any, sub: Any) -> None:
        self.rows += len(record)
        # (What no ledger has is as one without user records.)
        claimed = sub < np.where(places >= 0, np.append(self.names.counts, 0)[places], 0)[record]
        if not claimed.all():
            self._not_claimed(batch, places, record[~claimed], sub[~claimed])
            record, sub = record[claimed], sub[claimed]
        at = self.names.starts[places][record] + sub
        if batch.before:
            self.times[at] = np.maximum(self.times[at], 1)
        elif _distinct(at):
            known = self.times[at]
            self.times[at] = known + (known < 255)
        else:
            at, times = np.unique(at, return_counts=True)
            self.times[at] = np.minimum(self.times[at].astype(np.int64) + times, 255)

    def _not_claimed(self, batch: Batch, places: Any, record: Any, sub: Any) -> None:
        self.unclaimed_rows += len(record)
        over = places[record]  # a ledger has them, with fewer user records
        np.maximum.at(self.passed, self.names.shard[over[over >= 0]], over[over >= 0] + 1)
        rows = np.bincount(record, minlength=len(places))
        low, high = np.full(len(rows), _MOST_USER_RECORDS), np.zeros(len(rows), np.int64)
        np.minimum.at(low, record, sub)
        np.maximum.at(high, record, sub)
        for at in np.flatnonzero(rows).tolist():
            name = batch.shards[at], bytes(batch.numbers[at]).decode("utf-8", "replace")
            one = Unclaimed(*name, int(low[at]), int(high[at]), int(rows[at]))
            known = self.unclaimed.get(name)
            if known is not None:
                one = Unclaimed(
                    *name, min(one.first, known.first), max(one.last, known.last), one.rows + known.rows
                )
            if known is not None or len(self.unclaimed) < _MOST_UNCLAIMED:
                self.unclaimed[name] = one


def _distinct(at: Any) -> bool:
    """Whether no user record is there twice: by its runs, of which there are few in most tables."""
    breaks = np.flatnonzero(np.diff(at) != 1)
    firsts, lasts = np.append(at[:1], at[breaks + 1]), np.append(at[breaks], at[-1:])
    order = np.argsort(firsts)
    return bool((firsts[order][1:] > lasts[order][:-1]).all())
