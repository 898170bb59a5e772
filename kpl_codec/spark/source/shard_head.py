"""The first unread records of a shard that the planner has read, and the cursor after them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ...aws.cursor import ShardCursor
from ...shards.starting_position import StartingPosition

Records = list[dict[str, Any]]

#: About how many bytes a record has besides its data: its key, sequence number and time.
OVERHEAD: Final = 256


class Arrival(NamedTuple):
    """A record's sequence number and arrival time (ms since 1970)."""

    sequence_number: str
    time: int

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Arrival:
        return cls(record["SequenceNumber"], round(record["ApproximateArrivalTimestamp"].timestamp() * 1000))

    def after(self, other: Arrival) -> bool:
        return int(self.sequence_number) > int(other.sequence_number)


def size_of(records: Records) -> int:
    """About how many bytes the records take."""
    return sum([len(record["Data"]) for record in records]) + OVERHEAD * len(records)


@dataclass(slots=True)
class ShardHead:
    """The first ``count`` unread records of a shard. ``cursor`` stands behind them; ``at_tip``: nothing
    follows. ``records``: as boto3 gives them; empty once they take too much memory. ``arrivals``: of the
    first and the last record. ``now``: the time of the shard's tip by the service's clock, ``request_time``:
    of the call by this machine's (both ms since 1970). ``start_gone``: the record where reading begins is
    past retention; ``records_lost``: records behind it may be, too."""

    records: Records
    now: int
    request_time: int
    at_tip: bool
    cursor: ShardCursor
    start_gone: bool = False
    records_lost: bool = False
    count: int = field(init=False)
    arrivals: list[Arrival] = field(init=False)

    def __post_init__(self) -> None:
        self.skip(0)

    def skip(self, count: int) -> None:
        """Leave out the first ``count`` records."""
        self.records = self.records[count:]
        self.count = len(self.records)
        self.arrivals = [Arrival.of(self.records[at]) for at in (0, -1)] if self.records else []

    def extend(self, more: ShardHead) -> None:
        self.now = more.now if more.records else self.now
        self.request_time, self.at_tip = more.request_time, more.at_tip
        self.records = self.records + more.records
        self.skip(0)


class CachedPosition(NamedTuple):
    """A cursor at ``place``, where the last batch ended, behind the record ``last``. ``at_tip``: nothing was
    behind it at ``read_at`` (ms since 1970). ``clock``: when it was used, by the clock that paces.
    ``empty_polls``: how many calls in a row found nothing."""

    place: StartingPosition
    cursor: ShardCursor
    last: Arrival | None
    at_tip: bool
    read_at: int
    clock: float
    empty_polls: int = 0
