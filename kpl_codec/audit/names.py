"""The names of user records that ledgers know, sorted, so that a name is found by its place; how often each
was handled (a byte a user record); and what was handled and is not known.

Kinesis records, sorted by shard and sequence number     k = 0 1 2 ...
their user records, one after the other                  starts[k] + sub-sequence number
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ..findings import Finding
from ..ledger import CODES, Row

#: Rows that have a sequence number, and so a name.
NAMED = frozenset({"delivered", "again", "repaired"})
#: (shard id, sequence number, sub-sequence number)
Name = tuple[str, str, int]
#: User records of runs that are written out at a time.
_SLICE: Final = 1 << 20
#: Every Kinesis record has fewer user records.
_MOST_USER_RECORDS: Final = 10_000_000
#: Unclaimed Kinesis records of which the names are kept.
_MOST_UNCLAIMED: Final = 100_000


class Names:
    """The named rows of ``rows``; one that comes twice counts once. Arrays have an item a Kinesis record.

    ``shards``: all shard ids, sorted; ``shard``: an index into them. ``conflicts``: how many rows said
    something else than an earlier one of the same name.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        named: dict[tuple[str, str], Row] = {}
        self.conflicts = 0
        for row in rows:
            known = named.setdefault((row.shard_id, row.sequence_number), row)
            if known is not row and known != row:
                # AUD-9: "Of two rows with one name that differ, the one with more user records MUST count,
                # and the audit MUST NOT say complete."
                self.conflicts += "repaired" not in (known.kind, row.kind)
                if (CODES[known.kind], -known.user_records) > (CODES[row.kind], -row.user_records):
                    named[row.shard_id, row.sequence_number] = row
        self.rows = sorted(
            named.values(), key=lambda row: (row.shard_id, len(row.sequence_number), row.sequence_number)
        )
        self.shards = sorted({row.shard_id for row in self.rows})
        self._codes = {shard: code for code, shard in enumerate(self.shards)}
        self.shard = np.array([self._codes[row.shard_id] for row in self.rows], np.int64)
        self.kinds = np.array([CODES[row.kind] for row in self.rows], np.uint8)
        self.counts = np.array([row.user_records for row in self.rows], np.int64)
        self.at = np.array([row.at for row in self.rows], np.int64)
        self.starts = np.concatenate(([0], np.cumsum(self.counts))).astype(np.int64)
        #: Of each shard the first of its Kinesis records, and one past the last.
        self.bounds = np.searchsorted(self.shard, np.arange(len(self.shards) + 1))
        keys = _keys(self.shard, [row.sequence_number.encode() for row in self.rows])
        self._keys = np.append(keys, b"~")  # behind all others

    @property
    def user_records(self) -> int:
        """How many names there are."""
        return int(self.starts[-1])

    def find(self, shards: Sequence[str], numbers: Sequence[bytes]) -> tuple[Any, Any, Any]:
        """For each Kinesis record its place, -1 where no ledger has it; the place of the first known one of
        its shard that is not before it; and its shard, -1 for an unknown one. ``shards`` and ``numbers`` go
        together."""
        shard = np.array([self._codes.get(name, -1) for name in shards], np.int64)
        keys = _keys(shard, numbers)
        behind = np.searchsorted(self._keys, keys)
        return np.where(self._keys[behind] == keys, behind, -1), behind, shard

    def user_record(self, name: Name) -> int | None:
        """The user record of that name; None if no ledger has it."""
        record = int(self.find([name[0]], [name[1].encode()])[0][0])
        known = record >= 0 and 0 <= name[2] < self.counts[record]
        return int(self.starts[record]) + name[2] if known else None

    def record_of(self, user_records: Any) -> Any:
        """The Kinesis records of user records."""
        return np.searchsorted(self.starts, user_records, side="right") - 1


def _keys(shard: Any, numbers: Sequence[bytes]) -> Any:
    """Keys whose order as bytes is that of shard and sequence number."""
    keys = [b"%08d%04d%s" % (code, len(number), number) for code, number in zip(shard, numbers, strict=True)]
    return np.array(keys, bytes)


class Run(NamedTuple):
    """User records ``first`` to ``last`` of one Kinesis record."""

    shard_id: str
    sequence_number: str
    first: int
    last: int

    def finding(self, kind: str, detail: str, cause: str | None = None) -> Finding:
        """A finding about these."""
        count = self.last - self.first + 1
        return Finding(kind, *self[:3], user_records=count, cause=cause, detail=detail)


def runs_of(names: Names, user_records: Any) -> list[Run]:
    """Ascending user records as runs."""
    if not len(user_records):
        return []
    records = names.record_of(user_records)
    begins = np.flatnonzero((np.diff(user_records, prepend=-2) != 1) | (np.diff(records, prepend=-1) != 0))
    ends = np.append(begins[1:], len(records)) - 1
    subs = user_records - names.starts[records]
    return [
        Run(names.rows[record].shard_id, names.rows[record].sequence_number, first, last)
        for record, first, last in zip(
            records[begins].tolist(), subs[begins].tolist(), subs[ends].tolist(), strict=True
        )
    ]


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
        last = batch.first if batch.last is None else batch.last
        # (A run from a file may claim any length.)
        good = (batch.first >= 0) & (last < _MOST_USER_RECORDS) & (last >= batch.first)
        self.bad += int((~good).sum())
        record, first, lengths = batch.record[good], batch.first[good], (last - batch.first + 1)[good]
        places, passed, codes = self.names.find(batch.shards, batch.numbers)
        self.handled_shards.update(batch.shards)
        known = codes >= 0
        np.maximum.at(self.passed, codes[known], passed[known])
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
        at, times = np.unique(self.names.starts[places][record] + sub, return_counts=True)
        known = self.times[at]
        self.times[at] = np.maximum(known, 1) if batch.before else np.minimum(known + times, 255)

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
            known = self.unclaimed.get(name, Unclaimed(*name, _MOST_USER_RECORDS, 0, 0))
            if known.rows or len(self.unclaimed) < _MOST_UNCLAIMED:
                first, last = min(int(low[at]), known.first), max(int(high[at]), known.last)
                self.unclaimed[name] = Unclaimed(*name, first, last, int(rows[at]) + known.rows)
