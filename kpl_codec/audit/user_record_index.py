"""The names of user records that ledgers know, sorted, so that a name is found by its place; how often each
was handled (a byte a user record); and what was handled and is not known.

Kinesis records, sorted by shard and sequence number     k = 0 1 2 ...
their user records, one after the other                  starts[k] + sub-sequence number
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from ..findings import Finding
from ..ledger.ledger_rows import KINDS, NO_DIGEST, Row
from ..limits import MOST_USER_RECORDS

#: Rows that have a sequence number, and so a name.
NAMED = frozenset({"delivered", "again", "repaired"})
#: (shard id, sequence number, sub-sequence number)
Name = tuple[str, str, int]
#: User records of runs that are written out at a time.
_SLICE: Final = 1 << 20
#: A sub-sequence number that a row does not tell.
NO_SUB_SEQUENCE_NUMBER: Final = -2
#: Each kind of a row as a number.
CODES: Final[dict[str, int]] = {kind: code for code, kind in enumerate(KINDS)}
#: Unclaimed Kinesis records of which the names are kept.
_MOST_UNCLAIMED: Final = 100_000


class UserRecordIndex:
    """The named rows of ``rows``; one that comes twice counts once. Arrays have an item a Kinesis record.

    ``shards``: all shard ids, sorted; ``shard``: an index into them. ``conflicts``: how many rows said
    something else than an earlier one of the same name.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        named: dict[tuple[str, str], Row] = {}
        self.conflicts = 0
        for row in rows:
            first = named.setdefault((row.shard_id, row.sequence_number), row)
            if first is not row and first != row:
                # AUD-9: "Of two rows with one name that differ, the one with more user records MUST count,
                # and the audit MUST NOT say complete."
                self.conflicts += _contradict(first, row) and "repaired" not in (first.kind, row.kind)
                named[row.shard_id, row.sequence_number] = min(first, row, key=_rank)
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
        self._by_hash: tuple[Any, Any] | None = None

    def find(self, shards: Sequence[str], numbers: Sequence[bytes]) -> tuple[Any, Any, Any]:
        """For each Kinesis record its place, -1 where no ledger has it; the place of the first known one of
        its shard that is not before it; and its shard, -1 for an unknown one. ``shards`` and ``numbers`` go
        together."""
        shard = np.array([self._codes.get(name, -1) for name in shards], np.int64)
        keys = _keys(shard, numbers)
        behind = np.searchsorted(self._keys, keys)
        return np.where(self._keys[behind] == keys, behind, -1), behind, shard

    def in_any_shard(self, numbers: Iterable[bytes]) -> list[int]:
        """For each sequence number a Kinesis record of any shard that has it; -1 where none has."""
        if self._by_hash is None:
            hashes = np.array([hash(row.sequence_number.encode()) for row in self.rows], np.int64)
            self._by_hash = np.argsort(hashes), np.sort(hashes)
        order, hashes = self._by_hash
        places = []
        for number in numbers:
            at = int(np.searchsorted(hashes, hash(number)))
            place = int(order[at]) if at < len(order) else -1
            places.append(place if self.rows and self.rows[place].sequence_number.encode() == number else -1)
        return places

    def user_record(self, name: Name) -> int | None:
        """The user record of that name; None if no ledger has it."""
        record = int(self.find([name[0]], [name[1].encode()])[0][0])
        exists = record >= 0 and 0 <= name[2] < self.counts[record]
        return int(self.starts[record]) + name[2] if exists else None

    def record_of(self, user_records: Any) -> Any:
        return np.searchsorted(self.starts, user_records, side="right") - 1


def _rank(row: Row) -> tuple[bool, int, int]:
    """Which of two rows of a name counts: a ledger's, which has a digest, before a table's."""
    return row.digest == NO_DIGEST, CODES[row.kind], -row.user_records


def _contradict(other: Row, row: Row) -> bool:
    """Whether two rows of a name say different things. (A table has neither digest nor time nor kind.)"""
    have_digests = NO_DIGEST not in (other.digest, row.digest)
    differ = other.user_records != row.user_records
    return differ or (have_digests and (other.kind != row.kind or other.digest != row.digest))


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
        count = self.last - self.first + 1
        return Finding(kind, *self[:3], user_records=count, cause=cause, detail=detail)


@dataclass(frozen=True, eq=False)
class Runs:
    """Ascending user records, as runs within a Kinesis record. Arrays have an item a run: its Kinesis record,
    its first user record, one past its last, and how often each was handled. ``len``: user records."""

    record: Any
    start: Any
    stop: Any
    times: Any

    def __len__(self) -> int:
        return int((self.stop - self.start).sum())

    def where(self, mask: Any) -> Runs:
        return Runs(self.record[mask], self.start[mask], self.stop[mask], self.times[mask])

    def within(self, low: Any, high: Any) -> Runs:
        """Of each run the part from ``low`` to before ``high``."""
        start, stop = np.maximum(self.start, low), np.minimum(self.stop, high)
        return replace(self, start=start, stop=stop).where(start < stop)


def runs_in(names: UserRecordIndex, user_records: Any, times: Any) -> Runs:
    """Ascending user records as runs, of those that were handled as often."""
    records = names.record_of(user_records)
    begins = np.ones(len(records), bool)
    begins[1:] = (np.diff(user_records) != 1) | (np.diff(records) != 0) | (times[1:] != times[:-1])
    at = np.flatnonzero(begins)
    stops = user_records[np.append(at[1:], len(records))[: len(at)] - 1] + 1
    return Runs(records[at], user_records[at], stops, times[at])


def not_once(tally: HandledCounts, hidden: Any) -> Runs:
    """All user records that were handled otherwise than once, but for those that are ``hidden``."""
    parts = [runs_in(tally.names, np.empty(0, np.int64), np.empty(0, np.uint8))]
    for low in range(0, len(tally.times), _SLICE):
        times = tally.times[low : low + _SLICE]
        other = times != 1
        if hidden is not None:
            other &= ~hidden[low : low + _SLICE]
        at = np.flatnonzero(other)
        parts.append(runs_in(tally.names, at + low, times[at]))
    runs = Runs(*(np.concatenate([getattr(part, name) for part in parts]) for name in Runs.__annotations__))
    # One that a slice has cut is one again.
    begins = np.ones(len(runs.record), bool)
    begins[1:] = (runs.start[1:] != runs.stop[:-1]) | (runs.record[1:] != runs.record[:-1])
    begins[1:] |= runs.times[1:] != runs.times[:-1]
    at = np.flatnonzero(begins)
    stops = runs.stop[np.append(at[1:], len(begins))[: len(at)] - 1]
    return replace(runs.where(at), stop=stops)


def runs_of(names: UserRecordIndex, runs: Runs) -> list[Run]:
    """Runs by their names."""
    subs = runs.start - names.starts[runs.record], runs.stop - names.starts[runs.record] - 1
    return [
        Run(names.rows[record].shard_id, names.rows[record].sequence_number, first, last)
        for record, first, last in zip(runs.record.tolist(), *(sub.tolist() for sub in subs), strict=True)
    ]


class Unclaimed(NamedTuple):
    """A Kinesis record that was handled and that no ledger has, with its user records ``first`` to ``last``.
    ``rows``: how many rows said so."""

    shard_id: str
    sequence_number: str
    first: int
    last: int
    rows: int


class HandledRows(NamedTuple):
    """Handled user records, row by row: ``first`` to ``last`` (the same without ``last``) of ``record``, an
    index into the Kinesis records ``shards`` and ``numbers``, each of which is named once or oftener.
    ``first`` may be `NO_SUB_SEQUENCE_NUMBER`: the user record of a Kinesis record that has only one.
    ``before``: they were handled before, this is only said again."""

    shards: Sequence[str]
    numbers: Sequence[bytes]
    record: Any
    first: Any
    last: Any = None
    before: bool = False


class HandledCounts:
    """Counts how often each name was handled.

    ``bad``: rows that name no user record. ``unclaimed_rows``: handled rows that no ledger has.
    """

    def __init__(self, names: UserRecordIndex) -> None:
        self.names = names
        self.times = np.zeros(names.starts[-1], np.uint8)  # 255: that often or oftener
        self.rows = self.bad = self.unclaimed_rows = 0
        #: Of each shard one past the last known Kinesis record that is before the last handled one.
        self.passed = names.bounds[:-1].copy()
        self.unclaimed: dict[tuple[str, str], Unclaimed] = {}
        self.handled_shards: set[str] = set()
        #: Kinesis records that rows name which do not tell, or not so that it can be read, the user record.
        self.doubtful = np.zeros(len(names.rows), bool)
        #: User records that a poison hook took: the first, and one past the last.
        self.aside: list[tuple[int, int]] = []
        #: Of records of queues, by their places in the ledger, the digests.
        self.queued: dict[tuple[str, str], bytes] = {}
        #: Whether some were handled in no order: a queue's.
        self.has_no_order = False

    def mark_doubtful(self, shards: Sequence[str | None]) -> None:
        """Rows that cannot be read may name any Kinesis record of these shards; None: of all."""
        codes = [code for code, shard in enumerate(self.names.shards) if shard in shards or None in shards]
        self.doubtful |= np.isin(self.names.shard, codes)

    def put_aside(self, row: Row) -> bool:
        """A poison hook took a Kinesis record, or some of its user records. Gives whether its sequence number
        is of another shard."""
        places, strays = self._find([row.shard_id], [row.sequence_number.encode()])
        if (place := int(places[0])) >= 0:
            code = self.names.shard[place]
            self.passed[code] = max(self.passed[code], place + 1)
            start, count = int(self.names.starts[place]), int(self.names.counts[place])
            last = min(row.first + (row.user_records or count), count)
            self.aside.append((start + min(row.first, count), start + last))
        return bool(strays[0])

    def _find(self, shards: Sequence[str], numbers: Sequence[bytes]) -> tuple[Any, Any]:
        """The places of Kinesis records, -1 where no ledger has them; and those that are of another shard."""
        places, passed, codes = self.names.find(shards, numbers)
        strays, unknown = np.zeros(len(places), bool), np.flatnonzero(places < 0)
        if len(unknown):
            others = np.array(self.names.in_any_shard(numbers[at] for at in unknown.tolist()))
            # AUD-28: "A row whose sequence number is of another shard than it says MUST be reported, MUST NOT
            # count for the shard that it says, and MUST make unknown what it may name."
            strays[unknown] = others >= 0
            self.doubtful[others[others >= 0]] = True
            codes[strays] = -1
        self.handled_shards.update(shard for shard, stray in zip(shards, strays, strict=True) if not stray)
        np.maximum.at(self.passed, codes[codes >= 0], passed[codes >= 0])
        return places, strays

    def add(self, batch: HandledRows) -> tuple[Any, Any, Any]:
        """Gives the indices of the rows that name no user record, of those of which it is not told, and of
        those with a sequence number of another shard."""
        places, strays = self._find(batch.shards, batch.numbers)
        stray = strays[batch.record]
        counts = np.where(places >= 0, np.append(self.names.counts, 0)[places], 0)[batch.record]
        ends = batch.first if batch.last is None else batch.last
        lacking = (batch.first == NO_SUB_SEQUENCE_NUMBER) | (ends == NO_SUB_SEQUENCE_NUMBER)
        first, last = np.where(lacking, 0, batch.first), np.where(lacking, 0, ends)
        vague = lacking & (counts > 1)
        good = (first >= 0) & (last < MOST_USER_RECORDS) & (last >= first)
        unsure = places[batch.record[vague | ~good]]
        self.doubtful[unsure[unsure >= 0]] = True
        use = good & ~vague & ~stray
        self.bad += int(np.count_nonzero(~use))
        if not use.all():
            counts, first, last = counts[use], first[use], last[use]
        record = batch.record[use]
        self.rows += int((last - first + 1).sum())
        lengths = np.clip(np.minimum(last + 1, counts) - first, 0, None)
        over = last >= counts
        if over.any():
            self._not_claimed(batch, places, record[over], np.maximum(first, counts)[over], last[over])
        there = lengths > 0
        starts = self.names.starts[np.maximum(places[record[there]], 0)] + first[there]
        self._count(starts, lengths[there], batch.before)
        return np.flatnonzero(~good), np.flatnonzero(vague & good), np.flatnonzero(stray)

    def _count(self, starts: Any, lengths: Any, before: bool) -> None:
        """Count user records from each of ``starts`` on."""
        ends, start, offset = np.cumsum(lengths), 0, 0
        if len(ends) and ends[-1] > 4 * len(self.times) + _SLICE:  # many times over: once for all
            begun, ended = np.sort(starts), np.sort(starts + lengths)
            for low in range(0, len(self.times), _SLICE):
                at = np.arange(low, min(low + _SLICE, len(self.times)))
                times = np.searchsorted(begun, at, "right") - np.searchsorted(ended, at, "right")
                self._raise(at[times > 0], times[times > 0], before)
            return
        while start < len(ends):
            stop = max(int(np.searchsorted(ends, offset + _SLICE, side="right")), start + 1)
            count = lengths[start:stop]
            inside = np.arange(ends[stop - 1] - offset) - np.repeat(ends[start:stop] - count - offset, count)
            at, times = np.repeat(starts[start:stop], count) + inside, np.ones(1, np.int64)
            if not _distinct(at):
                at, times = np.unique(at, return_counts=True)
            self._raise(at, times, before)
            start, offset = stop, int(ends[stop - 1])

    def _raise(self, at: Any, times: Any, before: bool) -> None:
        times_before = self.times[at]
        self.times[at] = np.maximum(times_before, 1) if before else np.minimum(times_before + times, 255)

    def _not_claimed(self, batch: HandledRows, places: Any, record: Any, first: Any, last: Any) -> None:
        """User records that no ledger has."""
        self.unclaimed_rows += int((last - first + 1).sum())
        over = places[record]  # a ledger has them, with fewer user records
        np.maximum.at(self.passed, self.names.shard[over[over >= 0]], over[over >= 0] + 1)
        rows = np.bincount(record, last - first + 1, minlength=len(places)).astype(np.int64)
        low, high = np.full(len(rows), MOST_USER_RECORDS), np.zeros(len(rows), np.int64)
        np.minimum.at(low, record, first)
        np.maximum.at(high, record, last)
        for at in np.flatnonzero(rows).tolist():
            name = batch.shards[at], bytes(batch.numbers[at]).decode("utf-8", "replace")
            earlier = self.unclaimed.get(name, Unclaimed(*name, MOST_USER_RECORDS, 0, 0))
            if earlier.rows or len(self.unclaimed) < _MOST_UNCLAIMED:
                lowest, highest = min(int(low[at]), earlier.first), max(int(high[at]), earlier.last)
                self.unclaimed[name] = Unclaimed(*name, lowest, highest, int(rows[at]) + earlier.rows)


def _distinct(at: Any) -> bool:
    """Whether no user record is there twice: by its runs, of which there are few in most tables."""
    breaks = np.flatnonzero(np.diff(at) != 1)
    firsts, lasts = np.append(at[:1], at[breaks + 1]), np.append(at[breaks], at[-1:])
    order = np.argsort(firsts)
    return bool((firsts[order][1:] > lasts[order][:-1]).all())
