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
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..aws_errors import Backoff, error_kind, missing_member
from ..rendering.labels import plural
from ..shards.live_shard_map import Failure
from ..shards.shard import Shard
from ..shards.shard_map import ShardMap
from ..shards.shard_reading import ITERATOR_LIVES, ShardReading
from ..shards.starting_position import TRIM_HORIZON, at_time
from .record_checks import FindingGroup, SampleSlot
from .shard_readers import (
    FEWEST_CALLS,
    FOLLOWS,
    IS_NEW,
    ROUTINE,
    Budget,
    Limits,
    ReadTime,
    Sampling,
    Schedule,
    ShardCall,
    ShardReader,
    younger_than,
)
from .sliding_window import LastHour, WatchFinding

#: Seconds after which a run with ``once`` no longer waits for a shard whose calls all fail.
GIVE_UP: Final = 12.0
#: Seconds of the shortest slot: arrival times are whole milliseconds.
SHORTEST_SLOT: Final = 0.01
#: Seconds between two polls of a shard.
PERIOD: Final = 20.0
#: GetRecords calls a second that Kinesis allows on a shard.
_SHARD_CALLS: Final = 5
#: Seconds for which a shard that is new after a reshard is read whole.
_AFTER_RESHARD: Final = 30.0
#: Seconds of lag above which a shard that is read whole is a finding.
_ALLOWED_LAG: Final = 60.0
#: Seconds for which a loss waits for a listing of the shards.
_LISTING_WAIT: Final = 15.0
#: Seconds before now from which a shard is read whose first position was ahead of the clock.
_OVERLAP: Final = 30.0
#: Seconds after which a shard that is not watched is a finding, if three periods are less.
_NOT_WATCHED: Final = 60.0
_SHARD_WAIT, _STREAM_WAIT = Backoff(1.0, 20.0), Backoff(2.0, 60.0)


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
    sampling rate of 1.0). Raises ValueError for a slot that is too short, and for limits below
    `FEWEST_CALLS` a second."""

    def __init__(
        self,
        last_hour: LastHour,
        *,
        sampling_rate: float = 0.05,
        period: float = PERIOD,
        limits: Limits | None = None,
        since: float = 0.0,
    ) -> None:
        if not 0 < sampling_rate <= 1:
            raise ValueError("sampling_rate must be above 0 and at most 1")
        if sampling_rate < 1 and sampling_rate * period < SHORTEST_SLOT:
            raise ValueError(f"sampling_rate * period must be at least {SHORTEST_SLOT} seconds: one slot")
        self.last_hour = last_hour
        last_hour.sampled = sampling_rate < 1
        last_hour.waits_for_listing = True
        self.limits = limits or Limits()
        if min(self.limits.calls, self.limits.shard_calls) < FEWEST_CALLS:
            raise ValueError(f"limits of calls must be at least {FEWEST_CALLS} a second: an iterator expires")
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
        #: Why the last listing of the shards failed; empty if it did not.
        self.listing_error = ""
        self._began: float | None = None
        self._now = self._checked_at = float("-inf")
        self._calls, self._bytes = Budget(self.limits.calls), Budget(self.limits.bytes)
        self._not_before = 0.0
        #: When `tick` should be called.
        self.next_tick = float("-inf")
        self._forget_shards()

    def _forget_shards(self) -> None:
        #: The shards that are watched now. Read only.
        self.shards: dict[str, ShardReader] = {}
        self._schedule = Schedule()
        #: The shards that were not polled yet.
        self._unread: set[str] = set()
        #: The closed shards that were read to their end, and when they were polled last before it; in the
        #: last map, the children of each shard, and the ids of all shards.
        self._ended: dict[str, float] = {}
        self._children: dict[str, list[str]] = {}
        self._listed: set[str] = set()

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
            what, period = "reading everything", self.limits.round(count)
            each = (2 if period > ITERATOR_LIVES else 1) / period
        often = f"{each:.2f}" if each >= 0.01 else f"{each:.2g}"
        calls = f"calls a second on each shard: {often}, {each / _SHARD_CALLS:.1%} of its quota"
        return f"{what} of {plural(count, 'open shard')}, every {period:.0f} s: {calls}"

    def set_shard_map(
        self, shard_map: ShardMap, now: float, *, recreated: bool = False, listed_at: float | None = None
    ) -> list[WatchFinding]:
        """Watch these shards (closed ones are for lineage). ``recreated``: they are of a new stream.
        ``listed_at``: when their listing began (None: now)."""
        findings = self.last_hour.set_shard_map(shard_map, now, recreated=recreated, listed_at=listed_at)
        self.map_is_old, self.listing_error = self.last_hour.has_new_loss, ""
        first = not self._listed and not recreated
        # WCH-40: "A watch that begins in the past MUST read the closed shards, too."
        begins_before_now = first and self._since > 0
        if recreated:
            self._forget_shards()
        self.period = self.limits.period(self._shortest_period, len(shard_map.open_shards))
        self._sampling = self._sampling._replace(period_ms=round(self.period * 1000))
        for shard_id in self.shards.keys() - shard_map.keys():
            self._drop(shard_id)
        self._ended = {shard_id: at for shard_id, at in self._ended.items() if shard_id in shard_map}
        self._children.clear()
        for shard in shard_map.values():
            for parent in shard.parent_shard_ids:
                self._children.setdefault(parent, []).append(shard.shard_id)
        for shard_id, shard in shard_map.items():
            # A shard that began and was closed between two maps holds records that nobody read. So does each
            # closed one of a stream that was created again.
            short_lived = (recreated or bool(self._listed)) and shard_id not in self._listed
            if shard_id in self.shards:
                self.shards[shard_id].closed = not shard.open
            elif shard_id not in self._ended and (shard.open or short_lived or begins_before_now):
                self._add(shard, now, first=first)
        self._listed = set(shard_map)
        self._note_gaps()
        return findings

    def _add(self, shard: Shard, now: float, *, first: bool) -> None:
        # Nobody has read a shard that became known late since its parents were read last.
        parents = shard.parent_shard_ids
        polled_at = [self.shards[one].polled_at for one in parents if one in self.shards]
        polled_at += [self._ended[one] for one in parents if one in self._ended]
        reader = self.shards[shard.shard_id] = ShardReader(
            shard.shard_id,
            Budget(self.limits.shard_calls),
            Budget(self.limits.shard_bytes),
            began=now,
            reading=ShardReading(at_time(round((now - self._since) * 1000))),
            covered_ms=now * 1000,
            polled_at=min(polled_at, default=now),
            closed=not shard.open,
        )
        self._unread.add(shard.shard_id)
        if not first or younger_than(shard, now, max(_AFTER_RESHARD, self.period)):
            # WCH-5: "A shard that is new after a reshard MUST be polled before all others, from its first
            # record on, and read whole for 30 seconds."
            reader.reading.begin_at(TRIM_HORIZON)
            reader.whole_until = now + _AFTER_RESHARD
            self._schedule.put(shard.shard_id, now, IS_NEW)
        elif self.sampling_rate < 1:
            # The first poll reads the slot of the last period, which is over, so it comes at once.
            reader.covered_ms = (self._sampling.number(now * 1000) - 1) * self._sampling.period_ms
            self._next_slot(reader, now)
        else:
            self._schedule.put(shard.shard_id, now)

    def _drop(self, shard_id: str) -> None:
        del self.shards[shard_id]
        self._unread.discard(shard_id)
        self._schedule.remove(shard_id)

    def _next_slot(self, reader: ShardReader, now: float) -> None:
        if skipped_ms := reader.next_slot(self._sampling, now):
            self._count(reader, ReadTime(0, skipped_ms), now)
        self._schedule.put(reader.shard_id, reader.slot_due)

    def up_to_date(self, now: float) -> bool:
        """Whether every shard was polled, or has no finished slot left to read."""
        return (
            bool(self.shards or self._ended)
            and self.last_hour.waiting_since > now
            and all(self.shards[shard_id].up_to_date(self._sampling, now) for shard_id in self._unread)
        )

    def failing_shards(self, now: float) -> list[str]:
        """The shards for which all calls have failed for `GIVE_UP` seconds: a run to the end waits no longer
        for them. Empty while another shard is not up to date."""
        failing = []
        for reader in map(self.shards.__getitem__, self._unread):
            if not reader.up_to_date(self._sampling, now):
                if not reader.failures or now - max(reader.polled_at, reader.began) <= GIVE_UP:
                    return []
                failing.append(reader.shard_id)
        return sorted(failing)

    def restart(self, now: float) -> list[WatchFinding]:
        """Follow the caller's clock, which was set to ``now``. Returns the findings to report."""
        # WCH-35: "When the clock is set, watching MUST go on at once, and what was counted MUST keep its age:
        # no finding opens or ends because of it."
        by = now - self._now
        self._now = now
        self._restarts += 1
        self.last_hour.shift(by)
        self._not_before += by
        self._began = None if self._began is None else self._began + by
        self._ended = {shard_id: at + by for shard_id, at in self._ended.items()}
        for budget in (self._calls, self._bytes):
            budget.shift(by)
        begin = at_time(round((now - self._since - _OVERLAP) * 1000))
        for reader in self.shards.values():
            reader.follow_clock(by, now, self._sampling, begin)
            self._schedule.put(reader.shard_id, reader.slot_due if reader.reading.iterator is None else now)
        return self.tick(now)

    # -- calls ----------------------------------------------------------------------------------

    def timer(self) -> float:
        """When `next_call` or `tick` should be called again."""
        return min(max(self._schedule.next_due(), self._not_before), self.next_tick)

    def next_call(self, now: float) -> ShardCall | None:
        """A call to make now, None if there is none yet (see `timer`)."""
        self._now = now
        if now < self._not_before:
            return None
        # WCH-3: "In any span of time the calls for one shard, and for all, MUST NOT be more than their rate
        # times the span, plus those of one second; calls that fail and calls again count like any other."
        # WCH-4: "No call MUST begin while bytes that were read are more than the rates have allowed so far."
        free = max(self._calls.free_at(now, 1), self._bytes.free_at(now))
        if free > now:
            self._not_before = free
            return None
        while (due := self._schedule.pop(now)) is not None:
            shard_id, rank = due
            reader = self.shards[shard_id]
            free = max(reader.calls.free_at(now, 1), reader.bytes.free_at(now))
            if free > now:
                self._schedule.put(shard_id, free, rank)
                continue
            self._last_number += 1
            call = reader.call(self.limits, self._last_number, now)
            reader.calls.spend(1, now)
            self._calls.spend(1, now)
            self.call_counts.calls[call.operation] += 1
            return call
        return None

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
        if begins:
            reader.reading.receive_iterator(response, now, now)
            # WCH-42: "A GetRecords call MUST follow its GetShardIterator before any other poll begins."
            self._schedule.put(reader.shard_id, now, FOLLOWS)
            return []
        reader.failures = self._stream_failures = 0
        window, last_polled = reader.window, reader.polled_at
        batch = reader.receive(response, int(call.arguments["Limit"]), now)
        reader.bytes.spend(batch.size, now)
        self._bytes.spend(batch.size, now)
        slot = SampleSlot(reader.shard_id, self._restarts)
        if window is not None:
            number = window.start + self._restarts
            slot = SampleSlot(reader.shard_id, number, self._sampling.slots, window.end)
        findings = self.last_hour.observe(slot, batch.records, now)
        self.map_is_old = self.map_is_old or self.last_hour.has_new_loss
        if batch.time is not None:
            self._count(reader, batch.time, now)
        if window is None:
            # WCH-32: "A shard that is read whole MUST be a finding when its lag is above a minute. For a
            # watch that begins in the past, the limit is larger by that time until it reaches the end."
            allowed = _ALLOWED_LAG + (0.0 if reader.polls else self._since)
            where = f"this watch reads {reader.lag:.0f} s behind the end of the shard"
            detail = f"{where}; its budget is too small"
            findings += self.last_hour.lag(reader.shard_id, reader.lag, now, allowed=allowed, detail=detail)
        if reader.polls or reader.read_up_to_begin:
            self._unread.discard(reader.shard_id)
        if self.last_hour.has_gaps:  # this may have been the last one
            self._note_gaps()
        if batch.ended:  # a closed shard
            self._drop(reader.shard_id)
            self._ended[reader.shard_id] = last_polled
            self._note_gaps()
            self.map_is_old = self.map_is_old or not reader.closed
        elif window is not None and batch.time is not None:
            reader.records_rate = self.last_hour.load(reader.shard_id).kinesis_records
            self._next_slot(reader, now)
        elif self.sampling_rate < 1 and now >= reader.whole_until and batch.at_tip:
            self._next_slot(reader, now)
        else:
            self._schedule.put(reader.shard_id, now + batch.pause, FOLLOWS if batch.follows else ROUTINE)
        return findings

    def _count(self, reader: ShardReader, time: ReadTime, now: float) -> None:
        self.last_hour.add_time(reader.shard_id, time.read_ms, time.represented_ms, now)
        if time.represented_ms and not time.read_ms:
            self.call_counts.skipped += time.represented_ms // self._sampling.period_ms
        else:
            self.call_counts.polls += 1

    def fail(self, call: ShardCall, failure: Failure, now: float) -> list[WatchFinding]:
        """Note that ``call`` failed; returns the findings to report."""
        self.call_counts.failed[failure.code] += 1
        reader = self.shards.get(call.shard_id)
        if reader is None or reader.under_way != call.number:
            return []
        reader.under_way = None
        # WCH-7: "A call that failed MUST be tried again only after a wait that grows with each failure, one
        # for the whole stream where the failure is not of one shard."
        wait = _SHARD_WAIT.seconds(reader.failures)
        kind = error_kind(*failure)
        if reader.reading.fail(failure.code) and not reader.failures:
            wait = 0.0
        if kind in ("invalid", "refused"):
            reader.reading.iterator = None  # it may be what is refused
        if kind in ("refused", "unconfigured", "not-sent"):
            self._not_before = now + _STREAM_WAIT.seconds(self._stream_failures)
            self._stream_failures += 1
            self.map_is_old = True
        reader.failures += 1
        window = reader.window
        if window is not None and window.period_end + self._sampling.period_ms < now * 1000:
            self._next_slot(reader, now)
        due = max(reader.slot_due, now + wait)
        self._schedule.put(reader.shard_id, due, ROUTINE if reader.reading.iterator is None else FOLLOWS)
        if kind == "throttled":
            return self.last_hour.report(FindingGroup("throttled"), reader.shard_id, now, failure.code)
        return []

    def tick(self, now: float) -> list[WatchFinding]:
        """Call when `timer` says so: returns findings that are resolved, skew, hot keys, unpolled shards."""
        self._now = now
        self.next_tick = now + 5.0
        findings = self.last_hour.tick(now)
        if now - self.last_hour.waiting_since > _LISTING_WAIT:
            findings += self.last_hour.count_waiting(self.listing_error or "no answer yet")
        if not 0 <= now - self._checked_at < 1.0:  # it asks every shard
            self._checked_at = now
            findings += self.last_hour.report_only(FindingGroup("not-watched"), self._not_watched(now), now)
            self._note_gaps()
        return findings

    def _note_gaps(self) -> None:
        unwatched = any(group.kind == "not-watched" for _, group in self.last_hour.open_findings)
        self.last_hour.has_gaps = unwatched or bool(self._not_followed())

    def _not_followed(self) -> list[str]:
        """The closed shards that were read to their end, whose children are not known, or not read yet."""
        if not self._ended:
            return []
        unread = {shard_id for shard_id in self._unread if not self.shards[shard_id].was_polled}
        return [one for one in self._ended if not self._children.get(one) or unread & {*self._children[one]}]

    def _not_watched(self, now: float) -> dict[str | None, str]:
        """What should be watched and is not: the shard, and since when and why. None: the whole stream."""
        self._began = now if self._began is None else self._began
        # WCH-22: "A shard that was not polled for three periods, and a minute at least, MUST be a finding; so
        # MUST be a closed shard whose children are not known, and a stream whose shards are not."
        longest = max(_NOT_WATCHED, 3 * self.period)
        listing = self.listing_error or "the shards were not listed since"
        found: dict[str | None, str] = {}
        if not self._listed and now - self._began > _NOT_WATCHED:
            found[None] = f"for {now - self._began:.0f} s: its shards are not known; {listing}"
        for shard_id in self._not_followed():
            if (seconds := now - self._ended[shard_id]) > longest:
                why = "read yet" if shard_id in self._children else f"known; {listing}"
                found[shard_id] = f"for {seconds:.0f} s: it was closed, and its children are not {why}"
        # A shard that has just become known is named by the closed shard from which it came.
        named, left = set[str](), [*found]
        while left:
            children = set(self._children.get(left.pop() or "", ())) - named
            named |= children
            left += children
        codes = self.call_counts.failed.most_common(1)
        for reader in self.shards.values():
            if (seconds := now - reader.polled_at) > longest:
                if now - reader.began <= longest and reader.shard_id in named:
                    continue
                if reader.failures and codes:
                    why = f"most calls fail with {codes[0][0]}"
                elif now - reader.began > longest:
                    why = "the budget is too small"
                else:
                    why = "it became known late, and its first call has no answer yet"
                found[reader.shard_id] = f"for {seconds:.0f} s; {why}"
        return found
