"""What was opened, and what the KCL dropped of it."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from .kcl import DropReason


class Drop(NamedTuple):
    """The user records of one Kinesis record that the KCL drops, because of which one, and why (see
    `kcl.Outcome`)."""

    sequence_number: str | None
    shard_id: str | None
    user_records: int
    reason: DropReason
    record_index: int | None


class Counts:
    """Counts of what was opened so far. ``dropped``: user records by reason (policy ``kcl``).
    ``empty_records``: aggregated records in which the KCL finds no user record, so that nothing comes of them
    (policy ``kcl``). ``defects``: rows by the code of their first defect (policy ``report``; of the
    Schema Registry's frames that stay, ``kcl``, too)."""

    __slots__ = (
        *("aggregated_records", "defects", "dropped", "empty_records", "kinesis_records"),
        "user_records",
    )

    def __init__(self, kinesis_records: int = 0, aggregated_records: int = 0, user_records: int = 0) -> None:
        self.kinesis_records = kinesis_records
        self.aggregated_records = aggregated_records
        self.user_records = user_records
        self.empty_records = 0
        self.dropped: Counter[str] = Counter()
        self.defects: Counter[str] = Counter()

    def add(self, other: Counts) -> None:
        """Count what ``other`` has counted, too."""
        for name in self.__slots__:
            count = getattr(self, name)
            count += getattr(other, name)
            setattr(self, name, count)

    def _values(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counts) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Counts({', '.join(f'{name}={value!r}' for name, value in self._values().items())})"
