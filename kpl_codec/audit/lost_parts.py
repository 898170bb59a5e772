"""What of the input cannot be read, or is not there, and which Kinesis records it may have named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple


class LostPart(NamedTuple):
    """``source``: a file, or a writer of a ledger. ``row``: in which row or line (from 1) first. ``kind``:
    "rows" that name nothing or cannot be read, "bytes" of a file that are damaged, "members" of a writer that
    are not there. ``shard_id``, ``sequence_number``: what of it is legible."""

    source: str
    why: str
    row: int | None = None
    kind: Literal["rows", "bytes", "members"] = "rows"
    times: int = 1
    shard_id: str | None = None
    sequence_number: str | None = None


class LostParts:
    """The lost parts of all producers, or of all consumers: those with one cause and one source as one.

    ``may_name``: which Kinesis records they may have named, by shard id and sequence number: one of that
    number ("", "NUMBER"), those of one shard ("SHARD", ""), or all ("", ""); of each the lost part that may
    have named it, of several the least by its words: the order of files must not matter."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], LostPart] = {}
        self.may_name: dict[tuple[str, str], tuple[str, str]] = {}

    def add(self, part: LostPart) -> None:
        key = part.why, part.source
        first = self._parts.get(key, part._replace(times=0))
        row = min((row for row in (part.row, first.row) if row is not None), default=None)
        self._parts[key] = first._replace(times=first.times + part.times, row=row)
        named = "" if part.sequence_number else part.shard_id or "", part.sequence_number or ""
        self.may_name[named] = min(key, self.may_name.get(named, key))

    def naming(self, shard_id: str, sequence_number: str) -> LostPart | None:
        """The lost part that may have named this Kinesis record; of several the one that may have named
        fewest."""
        names = ("", sequence_number), (shard_id, ""), ("", "")
        return next((self._parts[self.may_name[name]] for name in names if name in self.may_name), None)

    def __iter__(self) -> Iterator[LostPart]:
        return iter(self._parts.values())

    def __len__(self) -> int:
        return len(self._parts)
