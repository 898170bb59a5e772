"""The names of user records that ledgers know, sorted, so that a name is found by its place.

Kinesis records, sorted by shard and sequence number     k = 0 1 2 ...
their user records, one after the other                  starts[k] + sub-sequence number
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..findings import Finding
from ..ledger import CODES, Row

#: Rows that have a sequence number, and so a name.
NAMED = frozenset({"delivered", "again", "repaired"})
#: (shard id, sequence number, sub-sequence number)
Name = tuple[str, str, int]


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
