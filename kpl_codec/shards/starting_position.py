"""A place in a shard: where reading begins, continues or ends."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Final, Literal, NamedTuple

StartingPositionType = Literal[
    "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP", "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"
]


class StartingPosition(NamedTuple):
    """A place lies between two records. ``kind`` is named as GetShardIterator names it.

    ``value``: the sequence number of a record, as text, for AT_SEQUENCE_NUMBER (right before that record)
    and AFTER_SEQUENCE_NUMBER (right after it); milliseconds since 1970 for AT_TIMESTAMP (before the first
    record that arrived then or later); else None. Make one with `at_record`, `after_record`, `at_time`.
    """

    kind: StartingPositionType
    value: str | int | None = None

    @property
    def names_record(self) -> bool:
        """Whether the place never moves: times and TRIM_HORIZON do."""
        return self.kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER")

    @property
    def sequence_number(self) -> str:
        """The sequence number of the record. Raises ValueError if the place names none."""
        if not isinstance(self.value, str):
            raise ValueError(f"{self.kind} names no record")
        return self.value

    @property
    def time_ms(self) -> int:
        """The time of AT_TIMESTAMP. Raises ValueError for other places."""
        if not isinstance(self.value, int):
            raise ValueError(f"{self.kind} is no time")
        return self.value

    @property
    def lowest(self) -> int:
        """The lowest sequence number that can follow this place, 0 if it names no record."""
        if not self.names_record:
            return 0
        return int(self.sequence_number) + (self.kind == "AFTER_SEQUENCE_NUMBER")


def at_record(sequence_number: str) -> StartingPosition:
    """Right before a record."""
    return StartingPosition("AT_SEQUENCE_NUMBER", sequence_number)


def after_record(sequence_number: str) -> StartingPosition:
    """Right after a record."""
    return StartingPosition("AFTER_SEQUENCE_NUMBER", sequence_number)


def at_time(milliseconds: int) -> StartingPosition:
    """Before the first record that arrived at or after a time, in ms since 1970."""
    return StartingPosition("AT_TIMESTAMP", milliseconds)


def iterator_arguments(place: StartingPosition) -> dict[str, Any]:
    """The arguments of GetShardIterator for a place."""
    if place.kind == "AT_TIMESTAMP":
        when = datetime.fromtimestamp(place.time_ms // 1000, timezone.utc)
        # Computed without a float, which would sometimes lose a millisecond.
        when = when.replace(microsecond=place.time_ms % 1000 * 1000)
        return {"ShardIteratorType": place.kind, "Timestamp": when}
    if place.value is None:
        return {"ShardIteratorType": place.kind}
    return {"ShardIteratorType": place.kind, "StartingSequenceNumber": place.value}


TRIM_HORIZON: Final = StartingPosition("TRIM_HORIZON")
LATEST: Final = StartingPosition("LATEST")
