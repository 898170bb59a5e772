"""What planning has read of a shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ...aws.cursor import ShardCursor
from ...shards.starting_position import StartingPosition

Records = list[dict[str, Any]]

#: What a record takes besides its data, about: its key, number and time.
OVERHEAD: Final = 256


class Arrival(NamedTuple):
    """The sequence number of a record, and when it arrived (ms since 1970)."""

    sequence_number: str
    time: int

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Arrival:
        return cls(record["SequenceNumber"], round(record["ApproximateArrivalTimestamp"].timestamp() * 1000))

    def after(self, other: Arrival) -> bool:
        return int(self.sequence_number) > int(other.sequence_number)


def size_of(records: Records) -> int:
    """Bytes that records take, about."""
    return sum([len(record["Data"]) for record in records]) + OVERHEAD * len(records)


@dataclass(slots=True)
class Probe:
    """The ``count`` first records after a place; ``cursor`` is after them. ``arrivals``: of the first and the
    last; ``records``: as boto3 gives them, while they are wanted. ``now``: the shard's tip in ms since 1970,
    by the service's clock; ``asked_at``: the time of the call, by this machine's. ``at_tip``: none follows.
    ``start_gone``: the record of the place is past retention; ``lost``: records after it may be, too."""

    records: Records
    now: int
    asked_at: int
    at_tip: bool
    cursor: ShardCursor
    start_gone: bool = False
    lost: bool = False
    count: int = field(init=False)
    arrivals: list[Arrival] = field(init=False)

    def __post_init__(self) -> None:
        self.skip(0)

    def skip(self, count: int) -> None:
        """Leave out the first ``count`` records."""
        self.records = self.records[count:]
        self.count = len(self.records)
        self.arrivals = [Arrival.of(self.records[at]) for at in (0, -1)] if self.records else []

    def extend(self, more: Probe) -> None:
        self.now = more.now if more.records else self.now
        self.asked_at, self.at_tip = more.asked_at, more.at_tip
        self.records = self.records + more.records
        self.skip(0)


class CachedPosition(NamedTuple):
    """A cursor that stands at ``place``, where a batch ends. ``last``: the record right before it;
    ``at_tip``: nothing lay behind it at ``seen`` (ms since 1970). ``used``: when, by the clock that paces.
    ``empty``: looks in a row that found nothing."""

    place: StartingPosition
    cursor: ShardCursor
    last: Arrival | None
    at_tip: bool
    seen: int
    used: float
    empty: int = 0
