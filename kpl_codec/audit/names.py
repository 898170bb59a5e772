"""The names of user records that ledgers know, sorted, so that a name is found by its place.

    Kinesis records, sorted by shard and sequence number     k = 0 1 2 ...
    their user records, one after the other                  starts[k] + sub-sequence number

Memory: about 100 bytes a Kinesis record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

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
        self.shards = sorted({shard for shard, _ in named})
        codes = {shard: code for code, shard in enumerate(self.shards)}
        self.width = max([len(number) for _, number in named], default=1)
        ordered = sorted(
            named.values(),
            key=lambda row: (codes[row.shard_id], len(row.sequence_number), row.sequence_number),
        )
        self.shard = np.array([codes[row.shard_id] for row in ordered], np.int32)
        self.numbers = np.array([row.sequence_number.encode() for row in ordered], f"S{self.width}")
        self.kinds = np.array([CODES[row.kind] for row in ordered], np.uint8)
        self.counts = np.array([row.user_records for row in ordered], np.int64)
        self.at = np.array([row.at for row in ordered], np.int64)
        self.digests = np.frombuffer(b"".join([row.digest for row in ordered]), ">u8")
        self.starts = np.concatenate(([0], np.cumsum(self.counts))).astype(np.int64)
        #: Of each shard the first of its Kinesis records, and one past the last.
        self.bounds = np.searchsorted(self.shard, np.arange(len(self.shards) + 1))
        self._keys = keys_of(self.shard, self.numbers, self.width)

    def __len__(self) -> int:
        return len(self.shard)

    @property
    def user_records(self) -> int:
        """How many names there are."""
        return int(self.starts[-1])

    def find(self, shards: Sequence[str], numbers: Any) -> tuple[Any, Any, Any]:
        """For each Kinesis record its place, -1 where no ledger has it; the place of the first known one of
        its shard that is not before it; and its shard, -1 for an unknown one.

        ``shards`` and ``numbers`` (an array of bytes) go together.
        """
        which, names = factorize(shards)
        known_shards = {shard: code for code, shard in enumerate(self.shards)}
        shard = np.array([known_shards.get(name, -1) for name in names], np.int64)[which]
        lengths = np.char.str_len(numbers)
        known, fits = shard >= 0, lengths <= self.width
        place = np.full(len(shard), -1, np.int64)
        # A number that is longer than all known ones is behind them.
        behind = np.where(known, self.bounds[np.maximum(shard, 0) + 1 if self.shards else 0], -1)
        ours = np.flatnonzero(known & fits)
        keys = keys_of(shard[ours], numbers[ours], self.width)
        left = np.searchsorted(self._keys, keys)
        behind[ours] = left
        equal = left < len(self)
        equal[equal] = self._keys[left[equal]] == keys[equal]
        place[ours[equal]] = left[equal]
        return place, behind, shard

    def user_record(self, name: Name) -> int | None:
        """The user record of that name; None if no ledger has it."""
        record = int(self.find([name[0]], np.array([name[1].encode()]))[0][0])
        known = record >= 0 and 0 <= name[2] < self.counts[record]
        return int(self.starts[record]) + name[2] if known else None

    def named(self, user_records: Any) -> tuple[Any, Any]:
        """The Kinesis record, and the sub-sequence number, of user records."""
        records = np.searchsorted(self.starts, user_records, side="right") - 1
        return records, user_records - self.starts[records]


def factorize(texts: Sequence[str]) -> tuple[Any, list[str]]:
    """The distinct texts, and of each text which of them it is."""
    codes: dict[str, int] = {}
    which = np.fromiter((codes.setdefault(text, len(codes)) for text in texts), np.int64, len(texts))
    return which, list(codes)


def keys_of(shard: Any, numbers: Any, width: int) -> Any:
    """Keys whose order as bytes is that of shard and sequence number."""
    keys = np.full((len(numbers), 8 + width), ord("0"), np.uint8)
    rest = np.asarray(shard, np.int64)
    for at in range(7, -1, -1):
        keys[:, at] = ord("0") + rest % 10
        rest = rest // 10
    flat = np.ascontiguousarray(numbers.astype(f"S{width}")).view(np.uint8).reshape(len(numbers), width)
    lengths = (flat != 0).sum(axis=1)
    for length in np.unique(lengths):
        rows = lengths == length
        keys[np.ix_(rows, range(8 + width - length, 8 + width))] = flat[rows, :length]
    return keys.reshape(-1).view(f"S{8 + width}") if len(numbers) else np.zeros(0, f"S{8 + width}")


class Run(NamedTuple):
    """User records ``first`` to ``last`` of one Kinesis record."""

    shard_id: str
    sequence_number: str
    first: int
    last: int

    @property
    def user_records(self) -> int:
        return self.last - self.first + 1


def runs_of(names: Names, user_records: Any) -> list[Run]:
    """Ascending user records as runs."""
    if not len(user_records):
        return []
    records, subs = names.named(user_records)
    breaks = np.flatnonzero((np.diff(user_records) != 1) | (np.diff(records) != 0)) + 1
    firsts, lasts = np.concatenate(([0], breaks)), np.concatenate((breaks, [len(subs)])) - 1
    return [
        Run(names.shards[names.shard[record]], names.numbers[record].decode(), int(first), int(last))
        for record, first, last in zip(records[firsts], subs[firsts], subs[lasts], strict=True)
    ]
