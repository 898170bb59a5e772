"""All user records that producers' ledgers name, numbered, and how often each was handled (one byte each).

Kinesis records, sorted by shard and sequence number     k = 0, 1, 2 ...
their user records, one after the other                  starts[k] + sub-sequence number

`HandledCounts.unclaimed` keeps the Kinesis records that were handled and that no producer's ledger names.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from ..findings import Finding
from ..ledger.ledger_rows import KINDS, NO_DIGEST, Row
from ..limits import MOST_USER_RECORDS

#: Kinds of rows with a sequence number: they name user records.
NAMED = frozenset({"delivered", "again", "repaired"})
#: Of a Kinesis record: shard id and sequence number. Of a user record: also its sub-sequence number.
Place = tuple[str, str]
Name = tuple[str, str, int]
#: How many user records' counts are read or changed at a time.
_SLICE: Final = 1 << 20
#: Stands for the sub-sequence number of a row without one.
NO_SUB_SEQUENCE_NUMBER: Final = -2
#: Each kind of a row as a number.
CODES: Final[dict[str, int]] = {kind: code for code, kind in enumerate(KINDS)}
#: How many unclaimed Kinesis records are kept by name.
_MOST_UNCLAIMED: Final = 100_000


class UserRecordIndex:
    """The Kinesis records that ``rows`` name, each once. Arrays have an item for each Kinesis record;
    ``shard`` is an index into ``shards``, the sorted shard ids; the Kinesis records of shard ``i`` are those
    from ``bounds[i]`` to before ``bounds[i + 1]``. ``conflicts``: how many rows contradict an earlier one."""

    def __init__(self, rows: Iterable[Row]) -> None:
        named: dict[Place, Row] = {}
        self.conflicts = 0
        for row in rows:
            first = named.setdefault((row.shard_id, row.sequence_number), row)
            if first is not row and first != row:
                # AUD-9: "Of two rows with one name that differ, the one with more user records MUST count,
                # and the audit MUST NOT say complete."
                self.conflicts += _contradict(first, row) and "repaired" not in (first.kind, row.kind)
                named[row.shard_id, row.sequence_number] = min(first, row, key=_rank)
        self.rows = [named[place] for place in sorted(named, key=_in_order)]
        #: The index of each Kinesis record, by its place.
        self.records = {(row.shard_id, row.sequence_number): at for at, row in enumerate(self.rows)}
        self.shards = sorted({row.shard_id for row in self.rows})
        self.codes = {shard: code for code, shard in enumerate(self.shards)}
        self.shard = np.array([self.codes[row.shard_id] for row in self.rows], np.int64)
        self.kinds = np.array([CODES[row.kind] for row in self.rows], np.uint8)
        self.counts = np.array([row.user_records for row in self.rows], np.int64)
        self.at = np.array([row.at for row in self.rows], np.int64)
        self.starts = np.concatenate(([0], np.cumsum(self.counts))).astype(np.int64)
        self.bounds = np.searchsorted(self.shard, np.arange(len(self.shards) + 1))

    def behind(self, place: Place) -> int:
        """The index of the first Kinesis record that is not before ``place``."""
        key = _in_order(place)
        return bisect_left(self.rows, key, key=lambda row: _in_order((row.shard_id, row.sequence_number)))

    @cached_property
    def by_number(self) -> dict[str, int]:
        """The index of a Kinesis record of any shard, by its sequence number."""
        return {number: at for (_, number), at in self.records.items()}

    def user_record(self, name: Name) -> int | None:
        """The number of the user record of that name; None if no ledger has it."""
        record = self.records.get(name[:2])
        if record is None or not 0 <= name[2] < self.counts[record]:
            return None
        return int(self.starts[record]) + name[2]

    def record_of(self, user_records: Any) -> Any:
        """The indices of the Kinesis records that hold these user records."""
        return np.searchsorted(self.starts, user_records, side="right") - 1


def _in_order(place: Place) -> tuple[str, int, str]:
    return place[0], len(place[1]), place[1]


def _rank(row: Row) -> tuple[bool, int, int]:
    """The sort key of rows of one Kinesis record, of which the lowest counts: a ledger's, which has a digest,
    before a table's."""
    return row.digest == NO_DIGEST, CODES[row.kind], -row.user_records


def _contradict(other: Row, row: Row) -> bool:
    """Whether two rows of one Kinesis record differ. (A table has neither digest nor time nor kind.)"""
    have_digests = NO_DIGEST not in (other.digest, row.digest)
    differ = other.user_records != row.user_records
    return differ or (have_digests and (other.kind != row.kind or other.digest != row.digest))


def rows_of_copies(copies: Iterable[tuple[Name, Name]]) -> list[Row]:
    """Rows of the Kinesis records that hold copies. The log does not say when they were put, so their time is
    later than any --until."""
    counts: dict[Place, int] = {}
    for _, (shard_id, number, sub) in copies:
        counts[shard_id, number] = max(counts.get((shard_id, number), 0), sub + 1)
    return [Row("repaired", *place, count, 1 << 62) for place, count in counts.items()]


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
    Kinesis record, its first user record, one past its last, and the ``value`` of all its user records.
    ``len`` counts user records."""

    record: Any
    start: Any
    stop: Any
    value: Any

    def __len__(self) -> int:
        return int((self.stop - self.start).sum())

    def where(self, mask: Any) -> Runs:
        return Runs(self.record[mask], self.start[mask], self.stop[mask], self.value[mask])


def runs_in(names: UserRecordIndex, user_records: Any, values: Any) -> Runs:
    """The runs of user records that are given by ascending numbers and their ``values``."""
    records = names.record_of(user_records)
    begins = np.ones(len(records), bool)
    begins[1:] = (np.diff(user_records) != 1) | (np.diff(records) != 0) | (np.diff(values) != 0)
    at = np.flatnonzero(begins)
    stops = user_records[np.append(at[1:], len(records))[: len(at)] - 1] + 1
    return Runs(records[at], user_records[at], stops, values[at])


def runs_of(names: UserRecordIndex, runs: Runs) -> list[Run]:
    """The runs by the names of their user records."""
    first, last = runs.start - names.starts[runs.record], runs.stop - names.starts[runs.record] - 1
    rows = [names.rows[record] for record in runs.record.tolist()]
    ends = zip(first.tolist(), last.tolist(), strict=True)
    return [Run(row.shard_id, row.sequence_number, *subs) for row, subs in zip(rows, ends, strict=True)]


class Unclaimed(NamedTuple):
    """A Kinesis record that was handled and that no producer's ledger has. ``first``, ``last``: the lowest
    and highest sub-sequence number that was handled; ``rows``: how many user records the rows name."""

    shard_id: str
    sequence_number: str
    first: int
    last: int
    rows: int


class HandledCounts:
    """Counts how often each user record was handled. ``rows``: how many user records the rows name;
    ``bad``: how many rows name none; ``unclaimed_rows``: how many named user records no producer's ledger
    has."""

    def __init__(self, names: UserRecordIndex) -> None:
        self.names = names
        self.times = np.zeros(names.starts[-1], np.uint8)  # 255: 255 times or more
        self.rows = self.bad = self.unclaimed_rows = 0
        #: By shard: the index of the first Kinesis record after all that were handled.
        self.passed: list[int] = names.bounds[:-1].tolist()
        self.unclaimed: dict[Place, Unclaimed] = {}
        self.handled_shards: set[str] = set()
        #: Whether each Kinesis record may be named by a row that does not say legibly which user record it
        #: means.
        self.doubtful = np.zeros(len(names.rows), bool)
        #: User records that a poison hook took: the first, and one past the last.
        self.aside: list[tuple[int, int]] = []
        #: Digests of the records of queues, by ("", record id).
        self.queued: dict[Place, bytes] = {}
        #: Whether some rows are of a queue, which delivers in no order.
        self.has_no_order = False

    def mark_doubtful(self, shards: Sequence[str | None]) -> None:
        """Note that rows which cannot be read may name any Kinesis record of these shards; None: of all."""
        codes = [code for code, shard in enumerate(self.names.shards) if shard in shards or None in shards]
        self.doubtful |= np.isin(self.names.shard, codes)

    def not_once(self) -> Iterator[Any]:
        """The user records that were not handled exactly once, those of some Kinesis records at a time."""
        starts = self.names.starts
        edges = np.unique(starts[np.searchsorted(starts, np.arange(0, starts[-1], _SLICE))]).tolist()
        for low, high in pairwise([*edges, int(starts[-1])]):
            yield np.flatnonzero(self.times[low:high] != 1) + low

    def put_aside(self, row: Row) -> bool:
        """Note that a poison hook took the user records of ``row``. Returns whether its sequence number is
        of another shard."""
        index, is_stray = self._find((row.shard_id, row.sequence_number))
        if index >= 0:
            self._pass(row.shard_id, index + 1)
            start, count = int(self.names.starts[index]), int(self.names.counts[index])
            last = min(row.first + (row.user_records or count), count)
            self.aside.append((start + min(row.first, count), start + last))
        return is_stray

    def _find(self, place: Place) -> tuple[int, bool]:
        """The index of a handled Kinesis record, -1 where no ledger has it; whether it is of another shard
        than ``place`` says."""
        index = self.names.records.get(place, -1)
        if index < 0 and place[1] in self.names.by_number:
            # AUD-28: "A row with the shard id of one shard and the sequence number of another MUST be
            # reported, MUST NOT count for the shard that it names, and MUST make the Kinesis record with that
            # number unknown."
            self.doubtful[self.names.by_number[place[1]]] = True
            return -1, True
        self.handled_shards.add(place[0])
        if place[0] in self.names.codes:
            self._pass(place[0], index if index >= 0 else self.names.behind(place))
        return index, False

    def _pass(self, shard_id: str, index: int) -> None:
        code = self.names.codes[shard_id]
        self.passed[code] = max(self.passed[code], index)

    def add_rows(self, rows: Sequence[Row], *, before: bool = False) -> int:
        """Count rows of a ledger. Returns how many have a sequence number of another shard."""
        places: dict[Place, int] = {}
        record = [places.setdefault((row.shard_id, row.sequence_number), len(places)) for row in rows]
        first = np.array([row.first for row in rows], np.int64)
        last = first + np.array([row.user_records for row in rows], np.int64) - 1
        return len(self.add([*places], np.array(record, np.int64), first, last, before=before)[2])

    def add(
        self, places: Sequence[Place], record: Any, first: Any, last: Any, *, before: bool = False
    ) -> tuple[Any, Any, Any]:
        """Count rows, each of which says that the user records ``first`` to ``last`` of a Kinesis record were
        handled; ``record`` is an index into ``places``. ``first`` and ``last`` may be
        `NO_SUB_SEQUENCE_NUMBER`: the user record of a Kinesis record that has only one. ``before``: handled
        in an earlier delivery, and not again. Returns the indices of the rows that name no user record, of
        those that do not say which, and of those with a sequence number of another shard."""
        matches = np.array([self._find(place) for place in places], np.int64)
        indices, is_stray = matches.reshape(-1, 2).T
        counts = np.where(indices >= 0, np.append(self.names.counts, 0)[indices], 0)[record]
        lacking = (first == NO_SUB_SEQUENCE_NUMBER) | (last == NO_SUB_SEQUENCE_NUMBER)
        first, last = np.where(lacking, 0, first), np.where(lacking, 0, last)
        vague, stray = lacking & (counts > 1), is_stray[record] > 0
        valid = (first >= 0) & (last < MOST_USER_RECORDS) & (last >= first)
        unsure = indices[record[vague | ~valid]]
        self.doubtful[unsure[unsure >= 0]] = True
        use = valid & ~vague & ~stray
        self.bad += int(np.count_nonzero(~use))
        counts, first, last, record = counts[use], first[use], last[use], record[use]
        self.rows += int((last - first + 1).sum())
        lengths = np.clip(np.minimum(last + 1, counts) - first, 0, None)
        beyond = last >= counts
        if beyond.any():
            self._not_claimed(
                places, indices, record[beyond], np.maximum(first, counts)[beyond], last[beyond]
            )
        claimed = lengths > 0
        self._count(self.names.starts[indices[record[claimed]]] + first[claimed], lengths[claimed], before)
        return np.flatnonzero(~valid), np.flatnonzero(vague & valid), np.flatnonzero(stray)

    def _count(self, starts: Any, lengths: Any, before: bool) -> None:
        """Count ``lengths`` user records from each of ``starts`` on."""
        ends, row, offset = np.cumsum(lengths), 0, 0
        if len(ends) and ends[-1] > 4 * len(self.times) + _SLICE:  # many rows name the same user records
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
            at = np.repeat(starts[row:stop], count) + inside
            self._raise(*np.unique(at, return_counts=True), before)
            row, offset = stop, int(ends[stop - 1])

    def _raise(self, at: Any, times: Any, before: bool) -> None:
        counted = self.times[at]
        self.times[at] = np.maximum(counted, 1) if before else np.minimum(counted + times, 255)

    def _not_claimed(self, places: Sequence[Place], indices: Any, record: Any, first: Any, last: Any) -> None:
        """Note handled user records that no producer's ledger has."""
        counts = last - first + 1
        self.unclaimed_rows += int(counts.sum())
        rows = np.bincount(record, counts, minlength=len(indices)).astype(np.int64)
        low, high = np.full(len(rows), MOST_USER_RECORDS), np.zeros(len(rows), np.int64)
        np.minimum.at(low, record, first)
        np.maximum.at(high, record, last)
        for at in np.flatnonzero(rows).tolist():
            place = places[at]
            if indices[at] >= 0:  # a ledger has the Kinesis record, with fewer user records
                self._pass(place[0], int(indices[at]) + 1)
            earlier = self.unclaimed.get(place, Unclaimed(*place, MOST_USER_RECORDS, 0, 0))
            if earlier.rows or len(self.unclaimed) < _MOST_UNCLAIMED:
                lowest, highest = min(int(low[at]), earlier.first), max(int(high[at]), earlier.last)
                self.unclaimed[place] = Unclaimed(*place, lowest, highest, int(rows[at]) + earlier.rows)
