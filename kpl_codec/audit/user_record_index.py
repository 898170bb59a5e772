"""All user records that producers' ledgers name, numbered, and how often each was handled (one byte each).

Kinesis records, sorted by shard and sequence number     k = 0, 1, 2 ...
their user records, one after the other                  starts[k] + sub-sequence number

What was handled and no ledger names is kept beside: `HandledCounts.unclaimed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from ..findings import Finding
from ..ledger.ledger_rows import KINDS, NO_DIGEST, Row
from ..limits import MOST_USER_RECORDS

#: Kinds of rows with a sequence number: they name user records.
NAMED = frozenset({"delivered", "again", "repaired"})
#: (shard id, sequence number, sub-sequence number)
Name = tuple[str, str, int]
#: User records whose counts are looked at or changed at a time.
_SLICE: Final = 1 << 20
#: In place of a sub-sequence number that a row does not have.
NO_SUB_SEQUENCE_NUMBER: Final = -2
#: Each kind of a row as a number.
CODES: Final[dict[str, int]] = {kind: code for code, kind in enumerate(KINDS)}
#: Unclaimed Kinesis records of which the names are kept.
_MOST_UNCLAIMED: Final = 100_000


class UserRecordIndex:
    """The Kinesis records that ``rows`` name, each once. Arrays have an item for each Kinesis record;
    ``shard`` is an index into ``shards``, the sorted shard ids; ``bounds`` has of each shard the first of its
    Kinesis records, and one past the last. ``conflicts``: how many rows contradict an earlier one."""

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
        self.bounds = np.searchsorted(self.shard, np.arange(len(self.shards) + 1))
        keys = _keys(self.shard, [row.sequence_number.encode() for row in self.rows])
        self._keys = np.append(keys, b"~")  # behind all others
        self._by_hash: tuple[Any, Any] | None = None

    def find(self, shards: Sequence[str], numbers: Sequence[bytes]) -> tuple[Any, Any, Any]:
        """Of Kinesis records by shard id and sequence number: the index of each (-1: in no ledger), that of
        the first one that is not before it, and that of its shard (-1: unknown)."""
        shard = np.array([self._codes.get(name, -1) for name in shards], np.int64)
        keys = _keys(shard, numbers)
        behind = np.searchsorted(self._keys, keys)
        return np.where(self._keys[behind] == keys, behind, -1), behind, shard

    def in_any_shard(self, numbers: Iterable[bytes]) -> list[int]:
        """For each sequence number the index of a Kinesis record of any shard; -1 for none."""
        if self._by_hash is None:
            hashes = np.array([hash(row.sequence_number.encode()) for row in self.rows], np.int64)
            self._by_hash = np.argsort(hashes), np.sort(hashes)
        order, hashes = self._by_hash
        indices = []
        for number in numbers:
            at = int(np.searchsorted(hashes, hash(number)))
            index = int(order[at]) if at < len(order) else -1
            is_same = index >= 0 and self.rows[index].sequence_number.encode() == number
            indices.append(index if is_same else -1)
        return indices

    def user_record(self, name: Name) -> int | None:
        """The number of the user record of that name; None if no ledger has it."""
        record = int(self.find([name[0]], [name[1].encode()])[0][0])
        exists = record >= 0 and 0 <= name[2] < self.counts[record]
        return int(self.starts[record]) + name[2] if exists else None

    def record_of(self, user_records: Any) -> Any:
        """The indices of the Kinesis records that hold these user records."""
        return np.searchsorted(self.starts, user_records, side="right") - 1


def _rank(row: Row) -> tuple[bool, int, int]:
    """The lower of two rows of a Kinesis record counts: a ledger's, which has a digest, not a table's."""
    return row.digest == NO_DIGEST, CODES[row.kind], -row.user_records


def _contradict(other: Row, row: Row) -> bool:
    """Whether two rows of one Kinesis record differ. (A table has neither digest nor time nor kind.)"""
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
    """Ascending runs of user records, each within a Kinesis record. Arrays have an item for each run: its
    Kinesis record, its first user record, one past its last, how often each was handled. ``len`` counts user
    records."""

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


def runs_in(names: UserRecordIndex, user_records: Any, times: Any = None) -> Runs:
    """Ascending user records as runs, each of those that were handled equally often (default: never)."""
    times = np.zeros(len(user_records), np.uint8) if times is None else times
    records = names.record_of(user_records)
    begins = np.ones(len(records), bool)
    begins[1:] = (np.diff(user_records) != 1) | (np.diff(records) != 0) | (times[1:] != times[:-1])
    at = np.flatnonzero(begins)
    stops = user_records[np.append(at[1:], len(records))[: len(at)] - 1] + 1
    return Runs(records[at], user_records[at], stops, times[at])


def join(*parts: Runs) -> Runs:
    return Runs(*(np.concatenate([getattr(part, name) for part in parts]) for name in Runs.__annotations__))


def not_once(tally: HandledCounts, hidden: Any) -> Runs:
    """All user records that were not handled exactly once, without those in ``hidden``."""
    starts = tally.names.starts
    # No run is cut: a slice ends where a Kinesis record does.
    edges = starts[np.searchsorted(starts, np.arange(0, starts[-1], _SLICE))]
    parts = [runs_in(tally.names, np.empty(0, np.int64))]
    for low, high in pairwise([*np.unique(edges).tolist(), int(starts[-1])]):
        times = tally.times[low:high]
        selected = times != 1
        selected[hidden[(hidden >= low) & (hidden < high)] - low] = False
        at = np.flatnonzero(selected)
        parts.append(runs_in(tally.names, at + low, times[at]))
    return join(*parts)


def runs_of(names: UserRecordIndex, runs: Runs) -> list[Run]:
    """The names of runs."""
    first, last = runs.start - names.starts[runs.record], runs.stop - names.starts[runs.record] - 1
    rows = [names.rows[record] for record in runs.record.tolist()]
    ends = zip(first.tolist(), last.tolist(), strict=True)
    return [Run(row.shard_id, row.sequence_number, *subs) for row, subs in zip(rows, ends, strict=True)]


class Unclaimed(NamedTuple):
    """A Kinesis record that was handled and that no ledger has. Its user records ``first`` to ``last`` were;
    ``rows``: how many rows say so."""

    shard_id: str
    sequence_number: str
    first: int
    last: int
    rows: int


class HandledRows(NamedTuple):
    """Handled user records. Arrays have an item for each row: the user records ``first`` to ``last`` of
    ``record``, an index into the shard ids ``shards`` and the sequence numbers ``numbers``. ``first`` and
    ``last`` may be `NO_SUB_SEQUENCE_NUMBER`: the user record of a Kinesis record that has only one.
    ``before``: they were handled in an earlier delivery, and not again."""

    shards: Sequence[str]
    numbers: Sequence[bytes]
    record: Any
    first: Any
    last: Any
    before: bool = False

    @classmethod
    def of(cls, rows: Sequence[Row], before: bool = False) -> HandledRows:
        """Of rows of ledgers."""
        places = [(row.shard_id, row.sequence_number) for row in rows]
        index = {place: at for at, place in enumerate(dict.fromkeys(places))}
        names = [shard for shard, _ in index], [number.encode() for _, number in index]
        first = np.array([row.first for row in rows], np.int64)
        last = first + np.array([row.user_records for row in rows], np.int64) - 1
        return cls(*names, np.array([index[place] for place in places], np.int64), first, last, before)


class HandledCounts:
    """Counts how often each user record was handled. ``rows``: user records that rows name; ``bad``: rows
    that name none; ``unclaimed_rows``: user records of rows that no ledger has."""

    def __init__(self, names: UserRecordIndex) -> None:
        self.names = names
        self.times = np.zeros(names.starts[-1], np.uint8)  # 255: that often or oftener
        self.rows = self.bad = self.unclaimed_rows = 0
        #: Of each shard the index of the first Kinesis record that is behind all that were handled.
        self.passed = names.bounds[:-1].copy()
        self.unclaimed: dict[tuple[str, str], Unclaimed] = {}
        self.handled_shards: set[str] = set()
        #: Kinesis records that a row may name which does not say, or not legibly, which user record.
        self.doubtful = np.zeros(len(names.rows), bool)
        #: User records that a poison hook took: the first, and one past the last.
        self.aside: list[tuple[int, int]] = []
        #: Digests of the records of queues, by ("", record id).
        self.queued: dict[tuple[str, str], bytes] = {}
        #: Whether some were handled in no order: a queue's.
        self.has_no_order = False

    def mark_doubtful(self, shards: Sequence[str | None]) -> None:
        """Note that rows which cannot be read may name any Kinesis record of these shards; None: of all."""
        codes = [code for code, shard in enumerate(self.names.shards) if shard in shards or None in shards]
        self.doubtful |= np.isin(self.names.shard, codes)

    def put_aside(self, row: Row) -> bool:
        """Note that a poison hook took the user records of ``row``. Gives whether its sequence number is of
        another shard."""
        indices, is_stray = self._find([row.shard_id], [row.sequence_number.encode()])
        if (index := int(indices[0])) >= 0:
            code = self.names.shard[index]
            self.passed[code] = max(self.passed[code], index + 1)
            start, count = int(self.names.starts[index]), int(self.names.counts[index])
            last = min(row.first + (row.user_records or count), count)
            self.aside.append((start + min(row.first, count), start + last))
        return bool(is_stray[0])

    def _find(self, shards: Sequence[str], numbers: Sequence[bytes]) -> tuple[Any, Any]:
        """The indices of Kinesis records, -1 where no ledger has them; and whether each is of another
        shard."""
        indices, passed, codes = self.names.find(shards, numbers)
        is_stray, unknown = np.zeros(len(indices), bool), np.flatnonzero(indices < 0)
        if len(unknown):
            others = np.array(self.names.in_any_shard(numbers[at] for at in unknown.tolist()))
            # AUD-28: "A row with the shard id of one shard and the sequence number of another MUST be
            # reported, MUST NOT count for the shard that it names, and MUST make the Kinesis record with that
            # number unknown."
            is_stray[unknown] = others >= 0
            self.doubtful[others[others >= 0]] = True
            codes[is_stray] = -1
        self.handled_shards.update(np.array(shards, object)[~is_stray].tolist())
        np.maximum.at(self.passed, codes[codes >= 0], passed[codes >= 0])
        return indices, is_stray

    def add(self, batch: HandledRows) -> tuple[Any, Any, Any]:
        """Count a batch. Gives the indices of the rows that name no user record, of those that do not say
        which, and of those with a sequence number of another shard."""
        indices, is_stray = self._find(batch.shards, batch.numbers)
        counts = np.where(indices >= 0, np.append(self.names.counts, 0)[indices], 0)[batch.record]
        lacking = (batch.first == NO_SUB_SEQUENCE_NUMBER) | (batch.last == NO_SUB_SEQUENCE_NUMBER)
        first, last = np.where(lacking, 0, batch.first), np.where(lacking, 0, batch.last)
        vague, stray = lacking & (counts > 1), is_stray[batch.record]
        valid = (first >= 0) & (last < MOST_USER_RECORDS) & (last >= first)
        unsure = indices[batch.record[vague | ~valid]]
        self.doubtful[unsure[unsure >= 0]] = True
        use = valid & ~vague & ~stray
        self.bad += int(np.count_nonzero(~use))
        if not use.all():
            counts, first, last = counts[use], first[use], last[use]
        record = batch.record[use]
        self.rows += int((last - first + 1).sum())
        lengths = np.clip(np.minimum(last + 1, counts) - first, 0, None)
        beyond = last >= counts
        if beyond.any():
            self._not_claimed(batch, indices, record[beyond], np.maximum(first, counts)[beyond], last[beyond])
        claimed = lengths > 0
        starts = self.names.starts[np.maximum(indices[record[claimed]], 0)] + first[claimed]
        self._count(starts, lengths[claimed], batch.before)
        return np.flatnonzero(~valid), np.flatnonzero(vague & valid), np.flatnonzero(stray)

    def _count(self, starts: Any, lengths: Any, before: bool) -> None:
        """Count ``lengths`` user records from each of ``starts`` on."""
        ends, row, offset = np.cumsum(lengths), 0, 0
        if len(ends) and ends[-1] > 4 * len(self.times) + _SLICE:  # runs that overlap many times
            sorted_starts, sorted_stops = np.sort(starts), np.sort(starts + lengths)
            for low in range(0, len(self.times), _SLICE):
                at = np.arange(low, min(low + _SLICE, len(self.times)))
                times = np.searchsorted(sorted_starts, at, "right")
                times -= np.searchsorted(sorted_stops, at, "right")
                self._raise(at[times > 0], times[times > 0], before)
            return
        while row < len(ends):
            stop = max(int(np.searchsorted(ends, offset + _SLICE, side="right")), row + 1)
            count = lengths[row:stop]
            inside = np.arange(ends[stop - 1] - offset) - np.repeat(ends[row:stop] - count - offset, count)
            at, times = np.repeat(starts[row:stop], count) + inside, np.ones(1, np.int64)
            if not _distinct(at):
                at, times = np.unique(at, return_counts=True)
            self._raise(at, times, before)
            row, offset = stop, int(ends[stop - 1])

    def _raise(self, at: Any, times: Any, before: bool) -> None:
        counted = self.times[at]
        self.times[at] = np.maximum(counted, 1) if before else np.minimum(counted + times, 255)

    def _not_claimed(self, batch: HandledRows, indices: Any, record: Any, first: Any, last: Any) -> None:
        """Note user records that no ledger has."""
        self.unclaimed_rows += int((last - first + 1).sum())
        shorter = indices[record]  # a ledger has the Kinesis record, with fewer user records
        shorter = shorter[shorter >= 0]
        np.maximum.at(self.passed, self.names.shard[shorter], shorter + 1)
        rows = np.bincount(record, last - first + 1, minlength=len(indices)).astype(np.int64)
        low, high = np.full(len(rows), MOST_USER_RECORDS), np.zeros(len(rows), np.int64)
        np.minimum.at(low, record, first)
        np.maximum.at(high, record, last)
        for at in np.flatnonzero(rows).tolist():
            place = batch.shards[at], bytes(batch.numbers[at]).decode("utf-8", "replace")
            earlier = self.unclaimed.get(place, Unclaimed(*place, MOST_USER_RECORDS, 0, 0))
            if earlier.rows or len(self.unclaimed) < _MOST_UNCLAIMED:
                lowest, highest = min(int(low[at]), earlier.first), max(int(high[at]), earlier.last)
                self.unclaimed[place] = Unclaimed(*place, lowest, highest, int(rows[at]) + earlier.rows)


def _distinct(at: Any) -> bool:
    """Whether no user record is there twice. Looks at runs, of which most tables have few."""
    breaks = np.flatnonzero(np.diff(at) != 1)
    firsts, lasts = np.append(at[:1], at[breaks + 1]), np.append(at[breaks], at[-1:])
    order = np.argsort(firsts)
    return bool((firsts[order][1:] > lasts[order][:-1]).all())
