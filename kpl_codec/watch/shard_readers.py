"""How one shard is read, and how many calls and bytes that may take. Specification: spec/10-watch.md, 10.1.

Sampled    one slot of each period is read by its time (AT_TIMESTAMP), two seconds after it is over
Full       every record is read once: with a sampling rate of 1, and for a while after a reshard
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from ..format.records import KinesisRecord, record_from_response
from ..shards.sequence_numbers import sequence_hint
from ..shards.shard import Shard
from ..shards.starting_position import StartingPosition, after_record, at_time

#: Records that one GetRecords call asks for; GetRecords calls of one poll at most.
_MOST_RECORDS, _FEWEST_RECORDS = 10_000, 100
_MOST_CALLS: Final = 8
#: Seconds after the end of a slot before it is read: clocks differ, and records take a moment to be there.
_SETTLE: Final = 2.0
NEVER: Final = float("inf")
#: Seconds between two calls for a shard that is read whole and has nothing more.
_POLL = 1.0
#: Calls planned for one poll: GetShardIterator, and GetRecords until the slot is read.
CALLS_PER_POLL = 3
#: The part of all calls that polls are planned to need; the rest is for retries and new shards.
_PLANNED = 0.8


class Budget:
    """``per_second`` units; at most those of one second, and at least 1, are saved up.

    Spending more than is left makes a debt, and nothing is free until it is paid. So the spending in a span
    of time is at most its length times the rate, plus what was saved, plus the last amount."""

    __slots__ = ("_burst", "_rate", "_since", "_units")

    def __init__(self, per_second: float) -> None:
        self._rate = per_second
        self._units = self._burst = max(1.0, per_second)
        self._since = float("-inf")

    def _earn(self, now: float) -> None:
        if now > self._since:
            self._units = min(self._burst, self._units + (now - self._since) * self._rate)
            self._since = now

    def free_at(self, now: float, amount: float = 0.0) -> float:
        """When ``amount`` can be spent, at the soonest ``now``; one of 0 as soon as there is no debt."""
        self._earn(now)
        lacking = min(amount, self._burst) - self._units
        return now if lacking <= 1e-9 else now + lacking / self._rate

    def spend(self, amount: float, now: float) -> None:
        """Take ``amount``; a negative amount gives back."""
        self._earn(now)
        self._units = min(self._burst, self._units - amount)


class Limits(NamedTuple):
    """What may be spent: GetShardIterator and GetRecords calls and bytes of data a second, of one shard
    and in all. A shard allows 5 calls and 2 MiB a second to all its readers that poll together."""

    shard_calls: float = 1.0
    calls: float = 20.0
    shard_bytes: float = 200_000.0
    bytes: float = 2_000_000.0

    def period(self, wanted: float, shards: int) -> float:
        """Seconds between two polls of a shard: ``wanted``, or more if ``shards`` shards need it."""
        # WCH-6: "A period too short for the calls allowed MUST be lengthened, and the length reported."
        return max(wanted, shards * CALLS_PER_POLL / (self.calls * _PLANNED))


class Window(NamedTuple):
    """From ``start`` up to, not including, ``end``; ``period_end``: where its period ends."""

    start: int
    end: int
    period_end: int


class Sampling(NamedTuple):
    """One slot of ``slots`` in every period of ``period_ms`` milliseconds. ``seed``: any text."""

    period_ms: int
    slots: int
    seed: str = ""

    def window(self, shard_id: str, number: int) -> Window:
        """The slot of period ``number`` (counted from 1970) of a shard."""
        # WCH-1: "A period MUST be cut into slots of equal length, one of which is read; a hash of seed,
        # shard and period draws it, so that each slot is as likely as any other and a restart draws the
        # same."
        place = f"{self.seed}\0{shard_id}\0{number}".encode()
        slot = int.from_bytes(blake2b(place, digest_size=8).digest(), "big") % self.slots
        begin = number * self.period_ms
        return Window(
            begin + slot * self.period_ms // self.slots,
            begin + (slot + 1) * self.period_ms // self.slots,
            begin + self.period_ms,
        )

    def number(self, at_ms: float) -> int:
        return int(at_ms // self.period_ms)


_NO_SLOT: Final = Window(0, 0, 0)


class ShardCall(NamedTuple):
    """A call of GetShardIterator or GetRecords to make. Give it back to `Watch.receive` with the response."""

    operation: str
    shard_id: str
    arguments: Mapping[str, Any]
    number: int


class RecordBatch(NamedTuple):
    """A GetRecords response. ``size``: bytes of data. ``position``: arrival of the last record; ``tip``: up
    to which arrival the service has read the shard; both in milliseconds since 1970. ``at_tip``: the shard
    has no more records now; ``ended``: it is closed and never has any."""

    records: Sequence[KinesisRecord]
    size: int
    position: float
    tip: float
    at_tip: bool
    ended: bool


class ReadTime(NamedTuple):
    """Milliseconds of a shard's time that were read, and of a sample how many milliseconds they stand for:
    the period. (0, n): n milliseconds of periods were skipped."""

    read_ms: int
    represented_ms: int = 0


@dataclass(slots=True)
class ShardReader:
    """The calls for one shard. ``place``: where the next iterator is to start. ``due``: when the next call
    is, in seconds since 1970. ``under_way``: the number of the call that was made and not answered.
    ``records_size``: the usual size of a record, in bytes."""

    shard_id: str
    calls: Budget
    bytes: Budget
    place: StartingPosition
    due: float
    iterator: str | None = None
    under_way: int | None = None
    failures: int = 0
    records_size: float = 1_000.0

    def take(self, response: Mapping[str, Any], limit: int, now: float) -> RecordBatch:
        """The batch in a GetRecords response that was asked for ``limit`` records."""
        records = [record_from_response(record, self.shard_id) for record in response["Records"]]
        size = sum(len(record.data) for record in records)
        self.iterator = response.get("NextShardIterator")
        behind_ms = response.get("MillisBehindLatest") or 0
        tip = position = now * 1000 - behind_ms
        if records:
            self.records_size += 0.3 * (size / len(records) - self.records_size)
            self.place = after_record(str(records[-1].sequence_number))
            arrival = records[-1].approximate_arrival_timestamp
            position = arrival.timestamp() * 1000 if arrival else now * 1000
        # More records may follow a full response.
        ended = self.iterator is None
        at_tip = ended or (behind_ms == 0 and len(records) < limit)
        return RecordBatch(records, size, position, tip, at_tip, ended)

    def room(self, limits: Limits) -> int:
        """Records that one call may bring."""
        most = int(min(limits.shard_bytes, limits.bytes) / max(1.0, self.records_size))
        return max(1, min(most, _MOST_RECORDS))

    def begin_at(self, place: StartingPosition, due: float) -> None:
        self.iterator, self.place, self.due = None, place, due


@dataclass(slots=True)
class WatchedShard:
    """``covered``: up to which time (milliseconds since 1970) the shard was read or skipped. ``polled_at``:
    the last poll (seconds since 1970). ``polls``: slots read, or how often its end was reached. ``closed``:
    the shard is closed."""

    reader: ShardReader
    covered: float
    polled_at: float
    polls: int = 0
    closed: bool = False

    @property
    def shard_id(self) -> str:
        return self.reader.shard_id


@dataclass(slots=True)
class SampledShardReader(WatchedShard):
    """``window``: the slot to read. ``slot_calls``: GetRecords calls for it so far. ``records_rate``: Kinesis
    records that arrive each second."""

    window: Window = _NO_SLOT
    slot_calls: int = 0
    records_rate: float = 0.0

    def limit(self, limits: Limits) -> int:
        """Records to ask for: some more than the slot should hold, within the budget."""
        expected = int(self.records_rate * (self.window.end - self.window.start) / 1000 * 1.3)
        return min(max(_FEWEST_RECORDS, expected), self.reader.room(limits))

    def next_slot(self, sampling: Sampling, now: float) -> ReadTime:
        """Go on to the next slot that can still be read; returns the time of the periods skipped before."""
        # WCH-2: "Every open shard MUST be polled once in each period; a period whose slot was not read before
        # the next period is over MUST be counted as skipped, and the other periods stand for it."
        number = sampling.number(self.covered)
        if number * sampling.period_ms < self.covered:
            number += 1  # begun before the shard was sampled
        current = max(number, sampling.number(now * 1000) - 1)
        self.window = sampling.window(self.shard_id, current)
        self.slot_calls = 0
        self.reader.begin_at(at_time(self.window.start), self.window.end / 1000 + _SETTLE)
        skipped_ms = max(0.0, current * sampling.period_ms - self.covered)
        self.covered += skipped_ms
        return ReadTime(0, round(skipped_ms))

    def read(self, batch: RecordBatch, now: float) -> ReadTime | None:
        """Count a batch of the slot; returns the time that was read once the slot is, None before."""
        window = self.window
        if not (batch.at_tip or batch.position >= window.end or self.slot_calls >= _MOST_CALLS):
            self.reader.due = now
            return None
        until = window.end if batch.at_tip else min(window.end, batch.position)
        time = ReadTime(max(0, round(until - window.start)), round(window.period_end - self.covered))
        self.covered = window.period_end
        if time.read_ms:
            self.polls += 1
            self.polled_at = now
        return time

    def up_to_date(self, sampling: Sampling, now: float) -> bool:
        """Whether it was polled, or has no finished slot left to read."""
        return bool(self.polls) or self.covered >= sampling.number(now * 1000) * sampling.period_ms


@dataclass(slots=True)
class FullShardReader(WatchedShard):
    """``until``: time from which on it is sampled like the others. ``began``: when the watch began with it;
    ``read_up_to_begin``: whether it was read up to then. ``lag``: how old the last record read is, in
    seconds."""

    until: float = NEVER
    began: float = 0.0
    read_up_to_begin: bool = False
    lag: float = 0.0

    def limit(self, limits: Limits) -> int:
        return self.reader.room(limits)

    def read(self, batch: RecordBatch, now: float) -> ReadTime:
        """Count a batch; returns the time that was read."""
        until = now * 1000 if batch.at_tip else min(batch.position, batch.tip)
        time = ReadTime(max(0, round(until - self.covered)))
        self.covered = max(self.covered, until)
        self.polled_at = now
        self.lag = now - until / 1000
        self.read_up_to_begin = self.read_up_to_begin or until >= self.began * 1000
        self.reader.due = now
        if batch.at_tip:
            self.polls += 1
            self.reader.due = now + _POLL
        return time

    def up_to_date(self, sampling: Sampling, now: float) -> bool:
        """Whether it was read up to its end, or up to the time when the watch began with it."""
        return bool(self.polls) or self.read_up_to_begin

    def sampled(self) -> SampledShardReader:
        return SampledShardReader(self.reader, self.covered, self.polled_at, self.polls, self.closed)


def made_within(shard: Shard, now: float, seconds: float) -> bool:
    """Whether a shard with parents seems younger than ``seconds``. Only decides what is read."""
    if not shard.parent_shard_ids:
        return False
    hint = sequence_hint(shard.starting_sequence_number)
    return hint is not None and now - hint.shard_created.timestamp() < seconds
