"""All user records that producers' ledgers name, numbered, and how often each was handled (one byte each).

Kinesis records, sorted by sequence number and shard     k = 0, 1, 2 ... their user records, one after the
other                  starts[k] + sub-sequence number

Within a shard this is the order of the stream, so the consumer of a shard is past all its user records before
the last one that it has handled."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from ..findings import Finding
from ..format.limits import MOST_USER_RECORDS
from ..ledger.ledger_rows import KINDS, Row
from ..shards.sequence_numbers import is_sequence_number

#: Kinds of rows with a sequence number: they name user records.
NAMED: Final = frozenset({"delivered", "again"})
#: Of a Kinesis record: shard id and sequence number. Of a user record: also its sub-sequence number.
Place = tuple[str, str]
Name = tuple[str, str, int]
#: Each kind of a row as a number.
CODES: Final[dict[str, int]] = {kind: code for code, kind in enumerate(KINDS)}
#: Stands for the sub-sequence number of a row without one.
NO_SUB_SEQUENCE_NUMBER: Final = -2
#: Of a byte of a user record: how often it was handled (63: or more), whether before, whether put aside.
TIMES, BEFORE, ASIDE = 63, 64, 128
#: How many user records are looked at at a time.
SLICE: Final = 1 << 20
#: A sequence number takes 24 bytes of a key, the shard's code 4. No number of the service is as large as
#: this.
_NUMBER_BYTES: Final = 24
_TOO_LARGE: Final = 1 << 8 * _NUMBER_BYTES
_KEY: Final = np.dtype("S28")
#: How many unclaimed Kinesis records are kept by name.
_MOST_UNCLAIMED: Final = 100_000


def is_number(text: str) -> bool:
    """Whether a text is a sequence number that the service may have given."""
    return is_sequence_number(text) and int(text) < _TOO_LARGE


class Columns:
    """Rows of the producers' ledgers of one stream, in little memory. ``shards``: shard ids by code, shared
    by all columns of an audit. Of rows that name no user record only sums are kept: ``attempts``: of attempts
    without an answer the most user records, by digest; ``undelivered``: user records by kind and error
    code."""

    def __init__(self, shards: dict[str, int]) -> None:
        self.shards = shards
        self.keys, self.digests, self.kinds = bytearray(), bytearray(), bytearray()
        self.counts, self.at = array("i"), array("q")
        self.attempts: dict[bytes, int] = {}
        self.undelivered: dict[str, Counter[str]] = {"refused": Counter(), "left": Counter()}
        self.user_records = self.rows = 0

    def add(self, row: Row) -> bool:
        """Add a row. Returns False for one that has no place although its kind should have."""
        self.rows += 1
        if row.kind in NAMED:
            if not (row.shard_id and row.sequence_number and is_number(row.sequence_number)):
                return False
            code = self.shards.setdefault(row.shard_id, len(self.shards))
            self.keys += int(row.sequence_number).to_bytes(_NUMBER_BYTES, "big") + code.to_bytes(4, "big")
            self.digests += row.digest
            self.kinds.append(CODES[row.kind])
            self.counts.append(row.user_records)
            self.at.append(row.at)
            self.user_records += row.user_records
        elif row.kind == "unanswered":
            self.attempts[row.digest] = max(self.attempts.get(row.digest, 0), row.user_records)
        elif row.kind in self.undelivered:
            self.undelivered[row.kind][row.shard_id] += row.user_records
        return True

    def merge(self, other: Columns) -> None:
        for name in ("keys", "digests", "kinds", "counts", "at"):
            getattr(self, name).extend(getattr(other, name))
        for digest, count in other.attempts.items():
            self.attempts[digest] = max(self.attempts.get(digest, 0), count)
        for kind, counts in other.undelivered.items():
            self.undelivered[kind].update(counts)
        self.rows += other.rows
        self.user_records += other.user_records


class Index:
    """The Kinesis records of ``columns``, each once. Arrays have an item for each Kinesis record; ``shard``
    is an index into ``shards``, the shard ids. ``conflicts``: how many rows contradict another one."""

    def __init__(self, columns: Columns) -> None:
        self.shards = [*columns.shards]
        self.codes = columns.shards
        self.attempts, self.undelivered = columns.attempts, columns.undelivered
        keys = np.frombuffer(columns.keys, _KEY)
        digests = np.frombuffer(columns.digests, np.uint64)
        kinds = np.frombuffer(columns.kinds, np.uint8)
        counts, at = np.array(columns.counts, np.int32), np.array(columns.at, np.int64)
        # Of equal keys the one with the most user records comes first; else the order of rows must not
        # matter.
        order = np.argsort(keys, kind="stable")
        begins = np.ones(len(keys), bool)
        for low in range(1, len(keys), SLICE):  # (a copy of all keys would be the most of the memory)
            some = keys[order[low - 1 : low + SLICE]]
            begins[low : low + SLICE] = some[1:] != some[:-1]
        self.conflicts = 0
        for first in np.flatnonzero(begins[:-1] & ~begins[1:]).tolist():
            stop = first + 1
            while stop < len(keys) and not begins[stop]:
                stop += 1
            rows = order[first:stop].tolist()
            # AUD-9: "Of two rows with one name that differ, the one with more user records MUST count, and
            # the audit MUST NOT say complete."
            order[first] = min(
                rows, key=lambda row: (not digests[row], kinds[row], -counts[row], at[row], digests[row])
            )
            facts = {(int(counts[row]), int(kinds[row])) for row in rows}
            known = {int(digests[row]) for row in rows} - {0}
            counts[order[first]] = max(counts[row] for row in rows)
            self.conflicts += max(len(facts), len(known), 1) - 1
        order = order[begins]
        self._padded = np.full(len(order) + 1, b"\xff" * 28, _KEY)
        self.keys = self._padded[:-1]
        self.keys[:] = keys[order]
        self.shard = (
            self.keys.view(np.uint8).reshape(-1, 28)[:, 24:].copy().view(">u4").ravel().astype(np.int32)
        )
        self.kinds, self.digests, self.at = kinds[order], digests[order], at[order]
        self.starts = np.concatenate(([0], np.cumsum(counts[order], dtype=np.int64)))

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def counts(self) -> Any:
        return np.diff(self.starts)

    def place(self, record: int) -> Place:
        key = self.keys[record].ljust(28, b"\0")
        return self.shards[self.shard[record]], str(int.from_bytes(key[:_NUMBER_BYTES], "big"))

    def find(self, places: Sequence[Place]) -> tuple[Any, Any, Any]:
        """For each place the index of its Kinesis record, -1 where no ledger has it; the index of a Kinesis
        record of another shard that has its number, else -1; and the index of the first one that is not
        before it."""
        numbers = [int(number).to_bytes(_NUMBER_BYTES, "big") for _, number in places]
        codes = [self.codes.get(shard, 0xFFFFFFFF).to_bytes(4, "big") for shard, _ in places]
        keys = np.array([number + code for number, code in zip(numbers, codes, strict=True)], _KEY)
        behind = np.searchsorted(self.keys, keys)
        found = np.where(self._padded[behind] == keys, behind, -1)
        same = np.searchsorted(self.keys, np.array(numbers, _KEY))
        prefixes = self._padded[same].astype("S24")
        other = np.where((prefixes == np.array(numbers, "S24")) & (same < len(self)) & (found < 0), same, -1)
        return found, other, behind

    def records_with(self, numbers: Iterable[str]) -> Any:
        """The indices of the Kinesis records that have one of these sequence numbers."""
        begins = [int(number).to_bytes(_NUMBER_BYTES, "big") for number in numbers if is_number(number)]
        low = np.searchsorted(self.keys, np.array(begins, _KEY))
        ends = np.array([begin + b"\xff" * 4 for begin in begins], _KEY)
        high = np.searchsorted(self.keys, ends, "right")
        return np.concatenate([np.arange(0), *map(np.arange, low.tolist(), high.tolist())])

    def record_of(self, user_records: Any) -> Any:
        """The indices of the Kinesis records that hold these user records."""
        return np.searchsorted(self.starts, user_records, side="right") - 1

    def slices(self) -> Iterator[tuple[int, int]]:
        """The user records, those of some Kinesis records at a time: the first, and one past the last."""
        starts = self.starts
        edges = np.unique(starts[np.searchsorted(starts, np.arange(0, starts[-1], SLICE))]).tolist()
        yield from pairwise([*edges, int(starts[-1])])


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
    """Runs of user records, each within a Kinesis record. Arrays have an item for each run: its Kinesis
    record, its first user record, one past its last, and the ``value`` of all its user records. ``len``
    counts user records."""

    record: Any
    start: Any
    stop: Any
    value: Any

    def __len__(self) -> int:
        return int((self.stop - self.start).sum())

    def where(self, mask: Any) -> Runs:
        return Runs(self.record[mask], self.start[mask], self.stop[mask], self.value[mask])


def runs_in(index: Index, user_records: Any, values: Any) -> Runs:
    """The runs of user records that are given by ascending numbers and their ``values``."""
    records = index.record_of(user_records)
    begins = np.ones(len(records), bool)
    begins[1:] = (np.diff(user_records) != 1) | (np.diff(records) != 0) | (np.diff(values) != 0)
    at = np.flatnonzero(begins)
    stops = user_records[np.append(at[1:], len(records))[: len(at)] - 1] + 1
    return Runs(records[at], user_records[at], stops, values[at])


def runs_of(index: Index, runs: Runs) -> list[Run]:
    """The runs by the names of their user records."""
    first, last = runs.start - index.starts[runs.record], runs.stop - index.starts[runs.record] - 1
    places = map(index.place, runs.record.tolist())
    return [Run(*place, *subs) for place, *subs in zip(places, first.tolist(), last.tolist(), strict=True)]


class Unclaimed(NamedTuple):
    """A Kinesis record that was handled and that no producer's ledger has. ``first``, ``last``: the lowest
    and highest sub-sequence number that was handled; ``rows``: how many user records the rows name."""

    shard_id: str
    sequence_number: str
    first: int
    last: int
    rows: int


class Tally:
    """How often each user record of ``index`` was handled. ``rows``: how many user records rows name;
    ``bad``: how many rows name none; ``unclaimed``: what no ledger has, by place.

    ``past``: by shard, one past the last user record that a row names whose stream is sure; ``past_by_name``:
    of rows that only name their stream. The order of rows does not matter."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.times = np.zeros(int(index.starts[-1]), np.uint8)
        self.rows = self.bad = self.unclaimed_rows = 0
        self.past, self.past_by_name = (np.zeros(len(index.shards), np.int64) for _ in range(2))
        self.unclaimed: dict[Place, Unclaimed] = {}
        self.not_kept = False  # whether there are more unclaimed Kinesis records than are kept
        self.handled_shards: set[str] = set()

    def add_rows(self, rows: Sequence[Row], *, sure: bool = True) -> list[Row]:
        """Count rows of a consumer's ledger. Returns those with a sequence number of another shard, or of
        none."""
        named = [row for row in rows if is_number(row.sequence_number)]
        wrong = [row for row in rows if not is_number(row.sequence_number)]
        for kind, flag in (("handled", TIMES), ("before", BEFORE), ("aside", ASIDE)):
            some = [row for row in named if row.kind == kind]
            if some:
                places: dict[Place, int] = {}
                record = [places.setdefault((row.shard_id, row.sequence_number), len(places)) for row in some]
                first = np.array([row.first for row in some], np.int64)
                count = np.array([row.user_records for row in some], np.int64)
                last = np.where((count == 0) & (kind == "aside"), MOST_USER_RECORDS - 1, first + count - 1)
                what = self.add([*places], np.array(record), first, last, flag=flag, sure=sure)
                wrong += [some[at] for at in np.flatnonzero(what == 3).tolist()]
        return wrong

    def add(
        self,
        places: Sequence[Place],
        record: Any,
        first: Any,
        last: Any,
        *,
        flag: int = TIMES,
        sure: Any = True,
    ) -> Any:
        """Count rows, each of which says that the user records ``first`` to ``last`` of a Kinesis record were
        handled; ``record`` is an index into ``places``. ``first`` and ``last`` may be
        `NO_SUB_SEQUENCE_NUMBER`: the user record of a Kinesis record that has only one. ``sure``: whether a
        row's stream is. Returns of each row 0, or 1: it names no user record, 2: it does not say which, 3:
        its sequence number is another shard's."""
        index = self.index
        found, other, behind = index.find(places)
        counts = np.where(found >= 0, index.starts[found + 1] - index.starts[found], 0)[record]
        lacking = (first == NO_SUB_SEQUENCE_NUMBER) | (last == NO_SUB_SEQUENCE_NUMBER)
        first, last = np.where(lacking, 0, first), np.where(lacking, 0, last)
        # AUD-28: "A row with the shard id of one shard and the sequence number of another MUST be reported,
        # MUST NOT count for the shard that it names, and MUST make the Kinesis record with that number
        # unknown."
        vague, stray = lacking & (counts > 1), other[record] >= 0
        valid = (first >= 0) & (last < MOST_USER_RECORDS) & (last >= first)
        use = np.flatnonzero(valid & ~vague & ~stray)
        self.bad += len(record) - len(use)
        counts, first, last, record = counts[use], first[use], last[use], record[use]
        if flag != ASIDE:
            self.rows += int((last - first + 1).sum())
        sure = np.broadcast_to(sure, use.shape) if np.ndim(sure) == 0 else sure[use]
        for some, past in ((sure, self.past), (~sure, self.past_by_name)):
            self._pass(places, found, behind, record[some], np.minimum(last + 1, counts)[some], past)
        lengths = np.clip(np.minimum(last + 1, counts) - first, 0, None)
        beyond = (last >= counts) & (flag != ASIDE)
        if beyond.any():
            self._not_claimed(places, record[beyond], np.maximum(first, counts)[beyond], last[beyond])
        claimed = lengths > 0
        self._count(index.starts[found[record[claimed]]] + first[claimed], lengths[claimed], flag)
        return np.select((stray, ~valid, vague), (3, 1, 2), 0)

    def _pass(
        self, places: Sequence[Place], found: Any, behind: Any, record: Any, stop: Any, past: Any
    ) -> None:
        """Move on the consumers of the shards that rows name: past the user records before ``stop`` of each
        record."""
        starts = self.index.starts
        ends = np.zeros(len(places), np.int64)
        np.maximum.at(ends, record, stop)
        for at in np.unique(record).tolist():
            shard_id = places[at][0]
            self.handled_shards.add(shard_id)
            if (code := self.index.codes.get(shard_id)) is not None:
                reached = starts[behind[at]] + (ends[at] if found[at] >= 0 else 0)
                past[code] = max(past[code], reached)

    def _count(self, starts: Any, lengths: Any, flag: int) -> None:
        """Count ``lengths`` user records from each of ``starts`` on."""
        # Between two edges all user records are named by as many rows.
        edges, at = np.unique(np.concatenate((starts, starts + lengths)), return_inverse=True)
        begins, ends = (np.bincount(some, minlength=len(edges)) for some in np.split(at.ravel(), 2))
        times = np.cumsum(begins - ends)[:-1]
        first, sizes, times = edges[:-1][times > 0], np.diff(edges)[times > 0], times[times > 0]
        cuts = np.searchsorted(np.cumsum(sizes), np.arange(SLICE, sizes.sum() + 1, SLICE))
        for some in np.split(np.arange(len(sizes)), cuts):
            size = sizes[some]
            inside = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
            self._mark(np.repeat(first[some], size) + inside, np.repeat(times[some], size), flag)

    def _mark(self, at: Any, times: Any, flag: int) -> None:
        old = self.times[at]
        if flag == TIMES:
            self.times[at] = (old & ~np.uint8(TIMES)) | np.minimum((old & TIMES) + times, TIMES).astype(
                np.uint8
            )
        else:
            self.times[at] = old | np.uint8(flag)

    def _not_claimed(self, places: Sequence[Place], record: Any, first: Any, last: Any) -> None:
        """Note handled user records that no producer's ledger has."""
        counts = last - first + 1
        self.unclaimed_rows += int(counts.sum())
        rows = np.bincount(record, counts, minlength=len(places)).astype(np.int64)
        low, high = np.full(len(rows), MOST_USER_RECORDS), np.zeros(len(rows), np.int64)
        np.minimum.at(low, record, first)
        np.maximum.at(high, record, last)
        indices: list[int] = np.flatnonzero(rows).tolist()
        for at in indices:
            self.note_unclaimed(Unclaimed(*places[at], int(low[at]), int(high[at]), int(rows[at])))

    def note_unclaimed(self, one: Unclaimed) -> None:
        place = one[:2]
        earlier = self.unclaimed.get(place, Unclaimed(*place, MOST_USER_RECORDS, 0, 0))
        if earlier.rows or len(self.unclaimed) < _MOST_UNCLAIMED:
            low, high = min(one.first, earlier.first), max(one.last, earlier.last)
            self.unclaimed[place] = Unclaimed(*place, low, high, one.rows + earlier.rows)
        else:
            self.not_kept = True

    def handled(self, start: int = 0, stop: int | None = None) -> Any:
        """Whether each user record from ``start`` to before ``stop`` was handled at least once."""
        return (self.times[start:stop] & (TIMES | BEFORE)) > 0
