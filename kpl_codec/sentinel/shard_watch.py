"""The state of one watched shard, and the records of GetRecords."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, Literal, NamedTuple

from ..shards.sequence_numbers import SequenceNumberError, sequence_hint
from ..shards.shard import Shard
from .budget import Budget
from .costs import Limits
from .kept import KeptShard
from .sampling import Sampling, Window

#: Records that one call asks for.
_MOST_RECORDS, _FEWEST_RECORDS = 10_000, 100
#: Seconds after the end of a slot before it is read: clocks differ, and records take a moment to be there.
_SETTLE: Final = 2.0


Operation = Literal["GetShardIterator", "GetRecords", "SubscribeToShard", "NextEvent"]


class Call(NamedTuple):
    """A call to make. Hand it back with the answer; an answer to a call that was given up is ignored.

    Where records are pushed, SubscribeToShard and NextEvent stand for GetShardIterator and GetRecords, with
    the same arguments and answers: NextEvent waits for what Kinesis sends, which is no call.
    """

    operation: Operation
    shard_id: str
    arguments: Mapping[str, Any]
    number: int


@dataclass(slots=True)
class ShardWatch:
    """One shard that is watched. ``window``: the slot to read, None where it is read whole.

    ``place``: where GetShardIterator is to start. ``due``: when its next call is. ``covered``: until when
    (milliseconds) it was looked at or missed. ``whole_until``: when a new child is sampled like others.
    ``looks``: slots read, or how often its end was reached. ``began``: when the watch took it up (seconds);
    ``read_up_to_begin``: it was read up to then. ``caught_up``: its end was reached once.
    ``read_to``: the highest sequence number read.
    """

    shard_id: str
    calls: Budget
    bytes: Budget
    due: float
    covered: float
    place: dict[str, Any]
    window: Window | None = None
    whole_until: float = float("inf")
    iterator: str | None = None
    closed: bool = False
    look: int = 0
    look_calls: int = 0
    records_size: float = 1_000.0
    records_rate: float = 0.0
    looked_at: float = 0.0
    failures: int = 0
    under_way: int | None = None
    reserved: float = 0.0
    looks: int = 0
    missed: int = 0
    began: float = 0.0
    read_up_to_begin: bool = False
    caught_up: bool = False
    read_to: str | None = None

    def limit(self, limits: Limits) -> int:
        """Records to ask for: some more than the slot should hold, within the budget."""
        room = int(min(limits.shard_bytes, limits.bytes) / max(1.0, self.records_size))
        wanted = float(_MOST_RECORDS)
        if self.window is not None:
            wanted = self.records_rate * (self.window.end - self.window.start) / 1000 * 1.3
        return max(min(_FEWEST_RECORDS, max(1, room)), min(int(wanted), room, _MOST_RECORDS))

    def next_slot(self, sampling: Sampling, now: float) -> float:
        """Turn to the next slot that can still be read; gives the milliseconds skipped."""
        # SEN-2: "Every open shard MUST be looked at once in each period; a period whose slot was not read
        # before the next period is over MUST be counted as missed, and the other periods stand for it."
        number = sampling.number(self.covered)
        if number * sampling.period_ms < self.covered:
            number += 1  # begun before the shard was sampled
        current = max(number, sampling.number(now * 1000) - 1)
        self.window = window = sampling.window(self.shard_id, current)
        self.iterator = None
        self.place = at_time(window.start / 1000)
        self.due = window.end / 1000 + _SETTLE
        skipped_ms = max(0.0, current * sampling.period_ms - self.covered)
        self.covered += skipped_ms
        return skipped_ms

    def set_back(self, seconds: float) -> None:
        """The caller's clock was set back by so much."""
        self.calls.set_back(seconds)
        self.bytes.set_back(seconds)
        self.due -= seconds
        self.looked_at -= seconds
        self.whole_until -= seconds

    def keep(self, shard: Shard) -> KeptShard | None:
        """How far it was read; None where no record was read yet and reading begins with the first."""
        if self.place.get("ShardIteratorType") == "TRIM_HORIZON":
            return None
        whole = None
        if self.window is None:
            whole = 0.0 if self.whole_until == float("inf") else self.whole_until
        read = self.place.get("StartingSequenceNumber")
        known = shard.starting_sequence_number, self.covered, self.looked_at
        return KeptShard(*known, read, whole, self.read_to)

    def resume(self, kept: KeptShard, *, always_whole: bool) -> bool:
        """Go on where ``kept`` left off; gives whether the shard is read whole."""
        self.covered, self.looked_at, self.read_to = kept.covered, kept.looked_at, kept.read_to
        self.place = at_time(kept.covered / 1000)
        if kept.sequence_number is not None:
            self.place = behind(kept.sequence_number)
        if kept.whole_until and not always_whole:
            self.whole_until = kept.whole_until
        return always_whole or bool(kept.whole_until)


def behind(sequence_number: str) -> dict[str, Any]:
    return {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": sequence_number}


def at_time(seconds: float) -> dict[str, Any]:
    return {
        "ShardIteratorType": "AT_TIMESTAMP",
        "Timestamp": datetime.fromtimestamp(round(seconds, 3), timezone.utc),
    }


def made_within(shard: Shard, now: float, seconds: float) -> bool:
    """Whether a shard with parents seems younger than ``seconds``. Only decides what is read."""
    if not shard.parent_shard_ids or shard.starting_sequence_number is None:
        return False
    try:
        hint = sequence_hint(shard.starting_sequence_number)
    except SequenceNumberError:
        return False
    return hint is not None and now - hint.shard_created.timestamp() < seconds
