"""Sequence numbers: their order, and the hints inside them.

A sequence number is a decimal string. Two records of one shard compare by number; user records of one
aggregated record share its number and compare by sub-sequence number.

AWS calls the inside opaque. What every number seen so far looks like, as 47 hex digits:

    2 | shard created (s) | n | sequence index | byte | time (s) | shard index | 2
    1 |         9         | 1 |       16       |  2   |    9     |      8      | 1      digits

(``n`` is the last digit of the shard index.) `sequence_hint` reads it, or gives None where a number
looks otherwise. A hint may explain, order a timeline or pick what to look at first; nothing here or
elsewhere refuses, drops or routes a record because of one.
Specification: spec/08-live-shard-map.md, LIN-1 to LIN-3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import total_ordering
from typing import Final, NamedTuple

from ..errors import KplError

_CANONICAL = re.compile(r"(?:0|[1-9][0-9]{0,128})\Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

#: Positions in a shard that are no numbers, lowest first; all but the last lie before every number.
AT_TIMESTAMP: Final = "AT_TIMESTAMP"
TRIM_HORIZON: Final = "TRIM_HORIZON"
LATEST: Final = "LATEST"
SHARD_END: Final = "SHARD_END"
_SENTINELS: Final = {AT_TIMESTAMP: -3, TRIM_HORIZON: -2, LATEST: -1}


class SequenceNumberError(KplError, ValueError):
    """A text that is no sequence number. ``reason`` says why."""

    code = "sequence-number"
    requirement = "LIN-1"
    reason: str
    text = "no sequence number: {reason}"


def parse_sequence_number(text: str) -> int:
    """The number. Raises SequenceNumberError for anything but canonical decimal of at most 129 digits."""
    # LIN-1: "A sequence number MUST match ^(0|([1-9]\d{0,128}))$."
    if not isinstance(text, str) or not _CANONICAL.match(text):
        raise SequenceNumberError(reason="not a canonical decimal number of at most 129 digits")
    return int(text)


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class ExtendedSequenceNumber:
    """Where a user record lies in its shard; ordered, and equal when neither comes first.

    ``sequence_number`` is decimal, or AT_TIMESTAMP, TRIM_HORIZON, LATEST, SHARD_END.
    Raises SequenceNumberError for anything else and for a negative sub-sequence number.
    """

    sequence_number: str
    sub_sequence_number: int = 0

    def __post_init__(self) -> None:
        if self.sequence_number not in _SENTINELS and self.sequence_number != SHARD_END:
            parse_sequence_number(self.sequence_number)
        if self.sub_sequence_number < 0:
            raise SequenceNumberError(reason="a negative sub-sequence number")

    @property
    def order(self) -> tuple[int, int, int]:
        """A plain tuple that sorts the same way (for keys of a sort, or a column)."""
        # LIN-2: "User records of a shard are ordered by sequence number as integers, then by
        # sub-sequence number; AT_TIMESTAMP, TRIM_HORIZON and LATEST come before every number in this
        # order, SHARD_END after."
        if self.sequence_number == SHARD_END:
            return 1, 0, 0
        if self.sequence_number in _SENTINELS:
            return 0, _SENTINELS[self.sequence_number], 0
        return 0, int(self.sequence_number), self.sub_sequence_number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExtendedSequenceNumber) and self.order == other.order

    def __lt__(self, other: ExtendedSequenceNumber) -> bool:
        if not isinstance(other, ExtendedSequenceNumber):
            return NotImplemented
        return self.order < other.order

    def __hash__(self) -> int:
        return hash(self.order)


class SequenceHint(NamedTuple):
    """What a sequence number seems to say. Times are UTC, to the second."""

    shard_index: int
    shard_created: datetime
    time: datetime
    sequence_index: int

    @property
    def shard_id(self) -> str:
        """The id of the shard that the number was made on."""
        return f"shardId-{self.shard_index:012d}"


def sequence_hint(sequence_number: str | int) -> SequenceHint | None:
    """Read the hint, or None where the number is not laid out as the ones known so far.

    Raises SequenceNumberError for a text that is no sequence number.
    """
    number = sequence_number if isinstance(sequence_number, int) else parse_sequence_number(sequence_number)
    # LIN-3: "A sequence number carries a hint only if it has 186 bits, of which the highest four and
    # the lowest four are 2; any other number MUST be taken as one without a hint, not as an error."
    if number.bit_length() != 186 or number >> 184 != 2 or number & 0xF != 2:
        return None
    shard_index = number >> 4 & 0xFFFF_FFFF
    if number >> 144 & 0xF != shard_index & 0xF:
        return None
    return SequenceHint(
        shard_index=shard_index,
        shard_created=_EPOCH + timedelta(seconds=number >> 148 & 0xF_FFFF_FFFF),
        time=_EPOCH + timedelta(seconds=number >> 36 & 0xF_FFFF_FFFF),
        sequence_index=number >> 80 & 0xFFFF_FFFF_FFFF_FFFF,
    )
