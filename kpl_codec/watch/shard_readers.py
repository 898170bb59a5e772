"""Decides how one shard is read, within limits of calls and bytes: spec/10-watch.md, 10.1. A sampled shard:
one slot of each period. A shard that is read whole (at a sampling rate of 1, and for a while after a
reshard): every record once. Times are seconds since 1970; names that end in ``_ms`` are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any, Final, Literal, NamedTuple

from ..format.records import KinesisRecord, record_from_response
from ..shards.sequence_numbers import sequence_hint
from ..shards.shard import Shard
from ..shards.shard_reading import ITERATOR_LIVES, MOST_RECORDS, ShardReading
from ..shards.starting_position import StartingPosition, at_time

#: The fewest records that a GetRecords call for a slot asks for; the most GetRecords calls of one poll.
_FEWEST_RECORDS: Final = 100
_MOST_CALLS: Final = 8
#: Seconds after the end of a slot before it is read: clocks differ, and records take a moment to be there.
_SETTLE: Final = 2.0
#: Seconds between two calls for a shard that is read whole and has no more records.
_POLL: Final = 1.0
#: Calls a second below which an iterator could expire before its GetRecords call may follow.
FEWEST_CALLS: Final = 0.01
#: Calls planned for one poll: GetShardIterator, and GetRecords until the slot is read. The part of all calls
#: that polls are planned to need; the other calls are for retries and new shards.
_CALLS_PER_POLL, _PLANNED = 3, 0.8


class Budget:
    """Calls or bytes that may be spent: ``per_second`` units; units of at most one second (at least 1) are
    saved. Spending more than is left makes a debt, and nothing is free until it is paid."""

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
        self._earn(now)
        self._units -= amount

    def shift(self, seconds: float) -> None:
        """Follow a clock that was set by ``seconds``."""
        self._since += seconds


class Limits(NamedTuple):
    """GetShardIterator and GetRecords calls, and bytes of data, a second: of one shard, and of all together.
    A shard allows 5 calls and 2 MiB a second to all its readers that poll."""

    shard_calls: float = 1.0
    calls: float = 20.0
    shard_bytes: float = 200_000.0
    bytes: float = 2_000_000.0

    def period(self, wanted: float, shards: int) -> float:
        """Seconds between two polls of a shard: ``wanted``, or more if ``shards`` shards need it."""
        # WCH-6: "A period too short for the calls allowed MUST be lengthened, and the length reported."
        return max(wanted, shards * _CALLS_PER_POLL / (self.calls * _PLANNED))

    def round(self, shards: int) -> float:
        """Seconds in which each of ``shards`` shards that are read whole gets a call."""
        seconds = max(1.0, 1 / self.shard_calls, shards / self.calls)
        return seconds if seconds <= ITERATOR_LIVES else 2 * seconds  # each call needs a new iterator


#: What is due first: GetRecords after GetShardIterator, because an iterator expires; then shards that are new
#: after a reshard; then all others.
Rank = Literal[0, 1, 2]
FOLLOWS: Final = 0
IS_NEW: Final = 1
ROUTINE: Final = 2


class Schedule:
    """When each shard's next call is due. A shard is in it once, or not at all."""

    def __init__(self) -> None:
        self._later: list[tuple[float, int, Rank, str]] = []
        self._ready: list[tuple[Rank, float, int, str]] = []
        self._tickets: dict[str, int] = {}
        self._last_ticket = 0

    def put(self, shard_id: str, due: float, rank: Rank = ROUTINE) -> None:
        self._last_ticket += 1
        self._tickets[shard_id] = self._last_ticket
        heappush(self._later, (due, self._last_ticket, rank, shard_id))

    def remove(self, shard_id: str) -> None:
        self._tickets.pop(shard_id, None)

    def next_due(self) -> float:
        """When `pop` returns a shard."""
        while self._ready and self._tickets.get(self._ready[0][3]) != self._ready[0][2]:
            heappop(self._ready)
        if self._ready:
            return float("-inf")
        while self._later and self._tickets.get(self._later[0][3]) != self._later[0][1]:
            heappop(self._later)
        return self._later[0][0] if self._later else float("inf")

    def pop(self, now: float) -> tuple[str, Rank] | None:
        """Take out the shard whose call comes first of those that are due; None if none is."""
        while self._later and self._later[0][0] <= now:
            due, ticket, rank, shard_id = heappop(self._later)
            heappush(self._ready, (rank, due, ticket, shard_id))
        while self._ready:
            rank, _, ticket, shard_id = heappop(self._ready)
            if self._tickets.get(shard_id) == ticket:
                del self._tickets[shard_id]
                return shard_id, rank
        return None

    def shift(self, seconds: float) -> None:
        """Follow a clock that was set by ``seconds``. (The order of each heap stays.)"""
        self._later = [(due + seconds, *rest) for due, *rest in self._later]  # type: ignore[misc]
        self._ready = [(rank, due + seconds, *rest) for rank, due, *rest in self._ready]  # type: ignore[misc]


class Window(NamedTuple):
    """A slot in milliseconds since 1970. ``end`` is not part of it; ``period_end``: of its period."""

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
        text = f"{self.seed}\0{shard_id}\0{number}".encode()
        slot = int.from_bytes(blake2b(text, digest_size=8).digest(), "big") % self.slots
        begin = number * self.period_ms
        return Window(
            begin + slot * self.period_ms // self.slots,
            begin + (slot + 1) * self.period_ms // self.slots,
            begin + self.period_ms,
        )

    def number(self, at_ms: float) -> int:
        return int(at_ms // self.period_ms)


class ShardCall(NamedTuple):
    """A call of GetShardIterator or GetRecords to make. Give it back to `Watch.receive` with the response."""

    operation: str
    shard_id: str
    arguments: Mapping[str, Any]
    number: int


class ReadTime(NamedTuple):
    """How much of a shard's time was read, and for a sample how much time it stands for, in milliseconds. (0,
    n): n milliseconds of periods were skipped."""

    read_ms: int
    represented_ms: int = 0


class RecordBatch(NamedTuple):
    """A GetRecords response. ``size``: bytes of data. ``time``: None while a slot was not read to its end.
    ``at_tip``: the shard has no more records now; ``ended``: it is closed and never has any. ``follows``: the
    next call is to follow at once."""

    records: Sequence[KinesisRecord]
    size: int
    time: ReadTime | None
    at_tip: bool
    ended: bool
    follows: bool

    @property
    def pause(self) -> float:
        """Seconds before the next call for a shard that is read whole."""
        return _POLL if self.at_tip else 0.0


@dataclass(slots=True)
class ShardReader:
    """One shard: its next call, and how far it was read.

    ``began``: when the watch began with it. ``polled_at``: when it was polled last; until it was, when its
    parents were, or ``began``. ``reading``: where it stands. ``covered_ms``: the time up to which it was read
    or skipped. ``under_way``: the number of the call that has no response yet. ``failures``: calls that have
    failed since the last GetRecords response. ``polls``: slots that were read, or how often its end was
    reached. ``record_size``: usual bytes of a record. ``calls_in_turn``: GetRecords calls for the slot, or
    one after the other without a record. Sampled: ``window`` is the slot to read; ``records_rate``: Kinesis
    records a second. Whole (``window`` is None): ``whole_until``: when sampling begins; ``lag``: seconds, of
    the last record read.
    """

    shard_id: str
    calls: Budget
    bytes: Budget
    began: float
    reading: ShardReading
    covered_ms: float
    polled_at: float
    closed: bool
    under_way: int | None = None
    failures: int = 0
    polls: int = 0
    record_size: float = 1_000.0
    window: Window | None = None
    calls_in_turn: int = 0
    records_rate: float = 0.0
    whole_until: float = float("inf")
    read_up_to_begin: bool = False
    lag: float = 0.0

    @property
    def was_polled(self) -> bool:
        return self.polled_at > self.began

    @property
    def slot_due(self) -> float:
        """When the slot can be read."""
        return self.window.end / 1000 + _SETTLE if self.window is not None else 0.0

    def call(self, limits: Limits, number: int, now: float) -> ShardCall:
        """The next call for this shard."""
        self.under_way = number
        operation, arguments = self.reading.call(self.limit(limits), now)
        if operation == "GetShardIterator":
            arguments["ShardId"] = self.shard_id
        else:
            self.calls_in_turn += 1
        return ShardCall(operation, self.shard_id, arguments, number)

    def limit(self, limits: Limits) -> int:
        """How many records to ask for: as many as the budget allows; for a slot, 1.3 times as many as it
        should hold."""
        most = min(limits.shard_bytes, limits.bytes) / max(1.0, self.record_size)
        if self.window is not None:
            seconds = (self.window.end - self.window.start) / 1000
            most = min(most, max(_FEWEST_RECORDS, self.records_rate * seconds * 1.3))
        return max(1, min(int(most), MOST_RECORDS))

    def next_slot(self, sampling: Sampling, now: float) -> int:
        """Go on to the next slot that can still be read; returns the milliseconds of the periods skipped."""
        # WCH-2: "Every open shard MUST be polled once in each period; a period whose slot was not read before
        # the next period is over MUST be counted as skipped, and the other periods stand for it."
        number = sampling.number(self.covered_ms)
        if number * sampling.period_ms < self.covered_ms:
            number += 1  # a slot that began before the shard was sampled
        current = max(number, sampling.number(now * 1000) - 1)
        self.window = sampling.window(self.shard_id, current)
        self.calls_in_turn = 0
        self.reading.begin_at(at_time(self.window.start))
        skipped_ms = max(0.0, current * sampling.period_ms - self.covered_ms)
        self.covered_ms += skipped_ms
        return round(skipped_ms)

    def receive(self, response: Mapping[str, Any], limit: int, now: float) -> RecordBatch:
        """Take a GetRecords response that was asked for ``limit`` records."""
        # A record that is gone makes no finding: after so long without a poll there is one, `not-watched`.
        page = self.reading.receive(response, limit, now)
        records = [record_from_response(record, self.shard_id) for record in page.records]
        size = sum(len(record["Data"]) for record in response["Records"])
        # The time up to which the service has read the shard, and the arrival of the last record.
        tip_ms = arrival_ms = now * 1000 - page.behind
        if records:
            self.record_size += 0.3 * (size / len(records) - self.record_size)
            arrival = records[-1].approximate_arrival_timestamp
            arrival_ms = arrival.timestamp() * 1000 if arrival else now * 1000
        # Sampling needs no more than the hint; a watch that ends by it needs to be certain (`_count_whole`).
        at_tip = page.near_tip
        if self.window is None:
            time = self._count_whole(now * 1000 if at_tip else min(arrival_ms, tip_ms), now)
        elif at_tip or arrival_ms >= self.window.end or self.calls_in_turn >= _MOST_CALLS:
            until_ms = self.window.end if at_tip else min(self.window.end, arrival_ms)
            time = self._count_slot(self.window, until_ms, now)
        else:
            time = None
        # A gap in time takes many responses without a record, and only an iterator is within it.
        in_gap = not at_tip and not records and self.calls_in_turn < _MOST_CALLS
        follows = time is None or (self.window is None and in_gap)
        if not follows:
            self.calls_in_turn = 0
        return RecordBatch(records, size, time, at_tip, page.ended, follows)

    def _count_slot(self, window: Window, until_ms: float, now: float) -> ReadTime:
        time = ReadTime(max(0, round(until_ms - window.start)), round(window.period_end - self.covered_ms))
        self.covered_ms = window.period_end
        if time.read_ms:
            self.polls += 1
            self.polled_at = now
        return time

    def _count_whole(self, until_ms: float, now: float) -> ReadTime:
        time = ReadTime(max(0, round(until_ms - self.covered_ms)))
        self.covered_ms = max(self.covered_ms, until_ms)
        self.polled_at = now
        self.lag = now - until_ms / 1000
        self.read_up_to_begin = self.read_up_to_begin or until_ms >= self.began * 1000
        self.polls += self.reading.at_tip
        return time

    def follow_clock(self, by: float, now: float, sampling: Sampling, position: StartingPosition) -> None:
        """The clock was set by ``by`` seconds. ``position``: where to begin if it was ahead so far."""
        self.under_way = None  # its response is not waited for: the call is made again
        self.began += by
        self.polled_at += by
        self.whole_until += by
        self.reading.iterator_since += by
        self.calls.shift(by)
        self.bytes.shift(by)
        if self.window is None:
            self.covered_ms += by * 1000
            begun_at = self.reading.position
            if begun_at.kind == "AT_TIMESTAMP" and begun_at.time_ms > now * 1000:
                self.reading.begin_at(position)
        elif self.covered_ms > now * 1000 + sampling.period_ms:
            # What was read until now was of no time that has come yet.
            self.covered_ms = (sampling.number(now * 1000) - 1) * sampling.period_ms
            self.next_slot(sampling, now)

    def up_to_date(self, sampling: Sampling, now: float) -> bool:
        """Whether it was polled, was read up to ``began``, or has no finished slot left to read."""
        if self.window is None:
            return bool(self.polls) or self.read_up_to_begin
        return bool(self.polls) or self.covered_ms >= sampling.number(now * 1000) * sampling.period_ms


def younger_than(shard: Shard, now: float, seconds: float) -> bool:
    """Whether a shard with parents seems younger than ``seconds``. Only decides what is read."""
    hint = sequence_hint(shard.starting_sequence_number) if shard.parent_shard_ids else None
    return hint is not None and now - hint.shard_created.timestamp() < seconds
