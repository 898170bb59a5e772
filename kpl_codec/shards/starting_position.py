"""A position in a shard, between two records: where reading begins, continues or ends."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Final, Literal, NamedTuple

StartingPositionType = Literal[
    "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP", "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"
]


class StartingPosition(NamedTuple):
    """``kind``: as GetShardIterator names it. ``value``: a sequence number, as text, for AT_SEQUENCE_NUMBER
    (right before that record) and AFTER_SEQUENCE_NUMBER (right after it); milliseconds since 1970 for
    AT_TIMESTAMP (before the first record that arrived then or later); else None."""

    kind: StartingPositionType
    value: str | int | None = None

    @property
    def names_record(self) -> bool:
        """Whether the position has a sequence number: it never moves, as times and TRIM_HORIZON do."""
        return self.kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER")

    @property
    def sequence_number(self) -> str:
        """Raises ValueError if the position has none."""
        if not isinstance(self.value, str):
            raise ValueError(f"{self.kind} names no record")
        return self.value

    @property
    def time_ms(self) -> int:
        """Raises ValueError if the position is no time."""
        if not isinstance(self.value, int):
            raise ValueError(f"{self.kind} is no time")
        return self.value

    @property
    def lowest(self) -> int:
        """The lowest sequence number that can follow this position; 0 if it has none."""
        if not self.names_record:
            return 0
        return int(self.sequence_number) + (self.kind == "AFTER_SEQUENCE_NUMBER")


def at_record(sequence_number: str) -> StartingPosition:
    return StartingPosition("AT_SEQUENCE_NUMBER", sequence_number)


def after_record(sequence_number: str) -> StartingPosition:
    return StartingPosition("AFTER_SEQUENCE_NUMBER", sequence_number)


def at_time(milliseconds: int) -> StartingPosition:
    return StartingPosition("AT_TIMESTAMP", milliseconds)


def iterator_arguments(position: StartingPosition) -> dict[str, Any]:
    """The arguments of GetShardIterator for a position."""
    arguments: dict[str, Any] = {"ShardIteratorType": position.kind}
    if position.kind == "AT_TIMESTAMP":
        # Computed without a float, which would sometimes lose a millisecond.
        time = datetime.fromtimestamp(position.time_ms // 1000, timezone.utc)
        arguments["Timestamp"] = time.replace(microsecond=position.time_ms % 1000 * 1000)
    elif position.value is not None:
        arguments["StartingSequenceNumber"] = position.value
    return arguments


TRIM_HORIZON: Final = StartingPosition("TRIM_HORIZON")
LATEST: Final = StartingPosition("LATEST")
