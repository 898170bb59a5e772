"""Sequence numbers, decimal texts that order the records of a shard as numbers; and the hints in them.

AWS does not document their layout. Every number seen so far has 47 hex digits:

    2 | shard created (s) | n | sequence index | byte | time (s) | shard index | 2
    1 |         9         | 1 |       16       |  2   |    9     |      8      | 1      digits

(``n`` is the last digit of the shard index.) A hint may explain something, order a timeline or choose what to
read first. No record is refused, dropped or routed because of it. Specification: spec/08-live-shard-map.md.
"""

from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from ..errors import KplError
from ..format.hash_keys import is_canonical

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class SequenceNumberError(KplError, ValueError):
    """The text is not a sequence number. ``reason`` says why."""

    code = "sequence-number"
    requirement = "LIN-1"
    reason: str
    text = "not a sequence number: {reason}"
    todo = "Give the sequence number as the service wrote it, without leading zeros."


def is_sequence_number(text: object) -> bool:
    # LIN-1: "A sequence number MUST match ^(0|([1-9]\d{0,128}))$."
    return is_canonical(text, 129)


def parse_sequence_number(text: str) -> int:
    """The sequence number as an int. Raises SequenceNumberError."""
    if not is_sequence_number(text):
        raise SequenceNumberError(reason="not a canonical decimal number of at most 129 digits")
    return int(text)


class SequenceHint(NamedTuple):
    """The hints in a sequence number. Times are UTC, to the second."""

    shard_index: int
    shard_created: datetime
    time: datetime

    @property
    def shard_id(self) -> str:
        return f"shardId-{self.shard_index:012d}"


def sequence_hint(sequence_number: str | None) -> SequenceHint | None:
    """The hint in a sequence number; None where it has another layout, is no number, or is not known."""
    try:
        number = parse_sequence_number(sequence_number or "")
    except SequenceNumberError:
        return None
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
    )
