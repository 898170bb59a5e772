"""Decides how to read a stream within a budget of calls and bytes, without I/O: it returns calls to make, and
takes their responses and the time.

    StreamWatcher                     Watch
     | set_shard_map(map, now)  ──▶   which shards there are
     | ◀── next_call(now)             a GetShardIterator or GetRecords; `timer` says when to ask
     | receive(call, response, now) ▶ findings
     | fail(call, failure, now)  ──▶  findings; the call comes again, later

Times are seconds since 1970. Several calls may be under way, one of each shard at most. spec/10-watch.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from ..aws_errors import Backoff, error_kind, missing_member
from ..rendering.labels import plural
from ..shards.live_shard_map import Failure
from ..shards.shard import Shard
from ..shards.shard_map import ShardMap
from ..shards.starting_position import TRIM_HORIZON, at_time, iterator_arguments
from .record_checks import FindingGroup, SampleSlot
from .shard_readers import Budget, Limits, ReadTime, Sampling, ShardCall, ShardReader, younger_than
from .sliding_window import LastHour, WatchFinding

#: Seconds after which a run with ``once`` no longer waits for a shard whose calls all fail.
GIVE_UP: Final = 12.0
#: Seconds of the shortest slot: arrival times are whole milliseconds.
SHORTEST_SLOT: Final = 0.01
#: GetRecords calls a second that Kinesis allows on a shard.
_SHARD_CALLS: Final = 5
#: Seconds for which a shard that is new after a reshard is read whole.
_AFTER_RESHARD: Final = 30.0
#: Seconds of lag above which a shard that is read whole is a finding.
_ALLOWED_LAG: Final = 60.0
#: Seconds before now from which shards are read after the clock was set back. (Nothing is counted twice.)
_OVERLAP: Final = 30.0
_SHARD_WAIT, _STREAM_WAIT = Backoff(1.0, 60.0), Backoff(2.0, 60.0)


@dataclass(slots=True)
class CallCounts:
    """``calls`` to Kinesis by operation, failed ones too; ``failed`` ones by error code; ``polls`` of shards;
    ``skipped``: periods of a shard whose slot was not read."""

    calls: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    polls: int = 0
    skipped: int = 0


class Watch:
    """Decides which call is next, and what the responses mean. Not thread-safe. ``sampling_rate``: part of
    each shard's time that is read; 1.0 for everything. ``period``: seconds between two polls of a shard,
    lengthened where the limits are too tight. ``since``: seconds before now at which reading begins (with a
    sampling rate of 1.0). Raises ValueError for a slot that is too short."""

    def __init__(
        self,
        last_hour: LastHour,
        *,
        sampling_rate: float = 0.05,
        period: float = 20.0,
        limits: Limits | None = None,
        since: float = 0.0,
    ) -> None:
        if not 0 < sampling_rate <= 1:
            raise ValueError("sampling_rate must be above 0 and at most 1")
        if sampling_rate < 1 and sampling_rate * period < SHORTEST_SLOT:
            raise ValueError(f"sampling_rate * period must be at least {SHORTEST_SLOT} seconds: one slot")
        self.last_hour = last_hour
        self.limits = limits or Limits()
        self.call_counts = CallCounts()
        self._shortest_period, self._since = period, since
        #: Seconds between two polls of a shard.
        self.period = period
        slots = max(1, round(1 / sampling_rate))
        #: The part of each shard's time that is read.
        self.sampling_rate = 1 / slots
        self._sampling = Sampling(round(period * 1000), slots, last_hour.stream)
        self._last_number = self._stream_failures = self._restarts = 0
        #: True when a response says that the shard map is old: list the shards again, call `set_shard_map`.
        self.map_is_old = False
        self._forget_shards()
        self._forget_times()

    def _forget_shards(self) -> None:
        #: The shards that are watched now. Read only.
        self.shards: dict[str, ShardReader] = {}
        #: The ids of closed shards that were read to their end; the ids of all shards of the last map.
        self._ended: set[str] = set()
        self._listed: set[str] = set()

    def _forget_times(self) -> None:
        self._calls, self._bytes = Budget(self.limits.calls), Budget(self.limits.bytes)
        self._not_before = 0.0
        #: When `tick` should be called.
        self.next_tick = float("-inf")

    # -- shards ---------------------------------------------------------------------------------

    @property
    def open_shards(self) -> int:
        """How many of the shards that are watched were open in the last map."""
        return sum(not one.closed for one in self.shards.values())

    def cost(self) -> str:
        """A sentence on what is read of the shards, and how many calls that takes."""
        count = self.open_shards
        what, period, each = f"sampling {100 * self.sampling_rate:.3g}%", self.period, 2 / self.period
        if self.sampling_rate == 1:
            each = min(1.0, self.limits.shard_calls, self.limits.calls / max(1, count))
            what, period = "reading everything", 1 / each
        calls = f"{each:.2f} calls a second on each shard, {each / _SHARD_CALLS:.1%} of its quota"
        return f"{what} of {plural(count, 'open shard')}, every {period:.0f} s: {calls}"

    def set_shard_map(
        self, shard_map: ShardMap, now: float, *, recreated: bool = False
    ) -> list[WatchFinding]:
        """Watch these shards (closed ones are for lineage). ``recreated``: they are of a new stream."""
        self.map_is_old = False
        findings = self.last_hour.set_shard_map(shard_map, now, recreated=recreated)
        first = not self._listed and not recreated
        # WCH-40: "A watch that begins in the past MUST read the closed shards, too."
        begins_before_now = first and (self._since > 0 or self._restarts > 0)
        if recreated:
            self._forget_shards()
        self.period = self.limits.period(self._shortest_period, len(shard_map.open_shards))
        self._sampling = self._sampling._replace(period_ms=round(self.period * 1000))
        self.shards = {shard_id: one for shard_id, one in self.shards.items() if shard_id in shard_map}
        self._ended = {shard_id for shard_id in self._ended if shard_id in shard_map}
        for shard_id, shard in shard_map.items():
            # A shard that began and was closed between two maps holds records that nobody read.
            short_lived = bool(self._listed) and shard_id not in self._listed
            if shard_id in self.shards:
                self.shards[shard_id].closed = not shard.open
            elif shard_id not in self._ended and (shard.open or short_lived or begins_before_now):
                self._add(shard, now, first=first)
        self._listed = set(shard_map)
        return findings

    def _add(self, shard: Shard, now: float, *, first: bool) -> None:
        reader = self.shards[shard.shard_id] = ShardReader(
            shard.shard_id,
            Budget(self.limits.shard_calls),
            Budget(self.limits.shard_bytes),
            began=now,
            position=at_time(round((now - self._since) * 1000)),
            covered_ms=now * 1000,
            due=now,
            polled_at=now,
            closed=not shard.open,
        )
        if not first or younger_than(shard, now, max(_AFTER_RESHARD, self.period)):
            # WCH-5: "A shard that is new after a reshard MUST be polled before all others, from its first
            # record on, and read whole for 30 seconds."
            reader.begin_at(TRIM_HORIZON, float("-inf"))
            reader.whole_until = now + _AFTER_RESHARD
        elif self.sampling_rate < 1:
            # The first poll reads the slot of the last period, which is over, so it comes at once.
            reader.covered_ms = (self._sampling.number(now * 1000) - 1) * self._sampling.period_ms
            self._next_slot(reader, now)

    def _next_slot(self, reader: ShardReader, now: float) -> None:
        if skipped_ms := reader.next_slot(self._sampling, now):
            self._count(reader, ReadTime(0, skipped_ms), now)

    def _behind(self, now: float) -> list[ShardReader]:
        return [one for one in self.shards.values() if not one.up_to_date(self._sampling, now)]

    def up_to_date(self, now: float) -> bool:
        """Whether every shard was polled, or has no finished slot left to read."""
        return bool(self.shards or self._ended) and not self._behind(now)

    def failing_shards(self, now: float) -> list[str]:
        """The shards for which all calls have failed for `GIVE_UP` seconds: a run to the end waits no longer
        for them. Empty while another shard is not up to date."""
        behind = self._behind(now)
        failing = [one.shard_id for one in behind if one.failures and now - one.polled_at > GIVE_UP]
        return failing if len(failing) == len(behind) else []

    def restart(self, now: float) -> list[WatchFinding]:
        """Forget all times and what was read, because the caller's clock was set back to ``now``."""
        # WCH-35: "When the clock is set back, watching MUST go on at once."
        resolved, shard_map = self.last_hour.forget(), self.last_hour.shard_map
        self._forget_shards()
        self._forget_times()
        self._restarts += 1
        return resolved if shard_map is None else resolved + self.set_shard_map(shard_map, now - _OVERLAP)

    # -- calls ----------------------------------------------------------------------------------

    def timer(self) -> float:
        """When `next_call` or `tick` should be called again."""
        due = min((reader.due for reader in self._idle()), default=float("inf"))
        return min(max(due, self._not_before), self.next_tick)

    def _idle(self) -> Iterator[ShardReader]:
        return (one for one in self.shards.values() if one.under_way is None)

    def next_call(self, now: float) -> ShardCall | None:
        """A call to make now, None if there is none yet (see `timer`)."""
        if now < self._not_before:
            return None
        # WCH-3: "In any span of time the calls for one shard, and for all, MUST NOT be more than their rate
        # times the span, plus those of one second; calls that fail and calls again count like any other."
        # WCH-4: "No call MUST begin while bytes that were read are more than the rates have allowed so far."
        free = max(self._calls.free_at(now, 1), self._bytes.free_at(now))
        if free > now:
            self._not_before = free
            return None
        while True:
            reader = min(self._idle(), key=attrgetter("due"), default=None)
            if reader is None or reader.due > now:
                return None
            reader.due = max(reader.calls.free_at(now, 1), reader.bytes.free_at(now))
            if reader.due <= now:
                break
        reader.under_way = self._last_number = self._last_number + 1
        if reader.iterator is None:
            operation = "GetShardIterator"
            arguments = {"ShardId": reader.shard_id, **iterator_arguments(reader.position)}
        else:
            operation = "GetRecords"
            arguments = {"ShardIterator": reader.iterator, "Limit": reader.limit(self.limits)}
            reader.slot_calls += 1
        reader.calls.spend(1, now)
        self._calls.spend(1, now)
        self.call_counts.calls[operation] += 1
        return ShardCall(operation, reader.shard_id, arguments, self._last_number)

    # -- responses ------------------------------------------------------------------------------

    def receive(self, call: ShardCall, response: Mapping[str, Any], now: float) -> list[WatchFinding]:
        """Take the response to ``call``; returns the findings to report."""
        reader = self.shards.get(call.shard_id)
        if reader is None or reader.under_way != call.number:
            return []
        # WCH-8: "A response without an iterator or records where they belong MUST be taken for a call that
        # failed, not for the end of the shard."
        begins = call.operation == "GetShardIterator"
        missing = missing_member(response, "ShardIterator" if begins else "Records")
        if missing is not None:
            return self.fail(call, Failure("IncompleteAnswer", f"no {missing}"), now)
        reader.under_way = None
        reader.failures = self._stream_failures = 0
        if begins:
            reader.iterator, reader.due = str(response["ShardIterator"]), now
            return []
        window = reader.window
        batch = reader.receive(response, int(call.arguments["Limit"]), now)
        reader.bytes.spend(batch.size, now)
        self._bytes.spend(batch.size, now)
        slot = SampleSlot(reader.shard_id, self._restarts)
        if window is not None:
            number = window.start + self._restarts
            slot = SampleSlot(reader.shard_id, number, self._sampling.slots, window.end)
        findings = self.last_hour.observe(slot, batch.records, now)
        if batch.time is not None:
            findings += self._count(reader, batch.time, now)
        if window is None:
            # WCH-32: "A shard that is read whole MUST be a finding when its lag is above a minute. For a
            # watch that begins in the past, the limit is larger by that time until it reaches the end."
            allowed = _ALLOWED_LAG + (0.0 if reader.polls else self._since)
            where = f"this watch reads {reader.lag:.0f} s behind the end of the shard"
            detail = f"{where}; its budget is too small"
            findings += self.last_hour.lag(reader.shard_id, reader.lag, now, allowed=allowed, detail=detail)
        if batch.ended:  # a closed shard
            del self.shards[reader.shard_id]
            self._ended.add(reader.shard_id)
            self.map_is_old = self.map_is_old or not reader.closed
        elif window is not None and batch.time is not None:
            reader.records_rate = self.last_hour.load(reader.shard_id).kinesis_records
            self._next_slot(reader, now)
        elif self.sampling_rate < 1 and now >= reader.whole_until and batch.at_tip:
            self._next_slot(reader, now)
        return findings

    def _count(self, reader: ShardReader, time: ReadTime, now: float) -> list[WatchFinding]:
        self.last_hour.add_time(reader.shard_id, time.read_ms, time.represented_ms, now)
        if time.represented_ms and not time.read_ms:
            self.call_counts.skipped += time.represented_ms // self._sampling.period_ms
            return []
        self.call_counts.polls += 1
        return self.last_hour.resolve(FindingGroup("not-watched"), reader.shard_id)

    def fail(self, call: ShardCall, failure: Failure, now: float) -> list[WatchFinding]:
        """Note that ``call`` failed; returns the findings to report."""
        self.call_counts.failed[failure.code] += 1
        reader = self.shards.get(call.shard_id)
        if reader is None or reader.under_way != call.number:
            return []
        reader.under_way = None
        if failure.code == "ExpiredIteratorException":
            # WCH-9: "An iterator that has expired MUST be made again behind the last record read."
            reader.begin_at(reader.position, now)
            return []
        # WCH-7: "A call that failed MUST be tried again only after a wait that grows with each failure, one
        # for the whole stream where the failure is not of one shard."
        kind = error_kind(*failure)
        if kind in ("invalid", "refused"):
            reader.iterator = None  # it may be what is refused
        if kind in ("refused", "unconfigured", "not-sent"):
            self._not_before = now + _STREAM_WAIT.seconds(self._stream_failures)
            self._stream_failures += 1
            self.map_is_old = True
        window = reader.window
        if window is not None and window.period_end + self._sampling.period_ms < now * 1000:
            self._next_slot(reader, now)
        reader.due = max(reader.due, now + _SHARD_WAIT.seconds(reader.failures))
        reader.failures += 1
        if kind == "throttled":
            return self.last_hour.report(FindingGroup("throttled"), reader.shard_id, now, failure.code)
        return []

    def tick(self, now: float) -> list[WatchFinding]:
        """Call when `timer` says so: returns findings that are resolved, skew, hot keys, unpolled shards."""
        self.next_tick = now + 5.0
        findings = self.last_hour.tick(now)
        # WCH-22: "A shard that was not polled for three periods, and a minute at least, MUST be a finding."
        longest = max(60.0, 3 * self.period)
        for reader in self.shards.values():
            if now - reader.polled_at > longest:
                codes = self.call_counts.failed.most_common(1) if reader.failures else []
                why = f"most calls fail with {codes[0][0]}" if codes else "the budget is too small"
                detail = f"for {now - reader.polled_at:.0f} s; {why}"
                findings += self.last_hour.report(FindingGroup("not-watched"), reader.shard_id, now, detail)
        return findings
