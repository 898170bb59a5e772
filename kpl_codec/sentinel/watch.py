"""Watching a stream within a budget. Sans-I/O: calls out, answers in, `now` as an argument.

    skin                              Watch
     | use(shard_map, now)      ──▶   which shards there are
     | ◀── next_call(now)             a GetShardIterator or GetRecords, None if there is nothing to do yet
     | receive(call, answer, now) ─▶  findings
     | fail(call, failure, now)  ──▶  findings; the call comes again, later
     | timer()                        when to ask again

Each open shard is in one of two modes:

    sampled    one slot of each period is read by its time (see `sampling`), a little after it is over
    whole      every record is read once: with ``share`` 1, and for a while after a reshard

Times are seconds since 1970. Several calls may be under way, one of each shard at most.
Specification: spec/10-sentinel.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..aws_errors import error_kind, missing_member
from ..backoff import Backoff
from ..format.records import answered_record
from ..shards.live_shard_map import Failure
from ..shards.shard_map import ShardMap
from .call_queue import CallQueue
from .costs import Cost, Limits, Measured
from .findings import Finding
from .judging import Wrong
from .kept import Kept
from .sampling import Window, planned_period
from .sentinel import Look, Sentinel
from .shard_watch import Call, ShardWatch, behind
from .watched_shards import WatchedShards

#: GetRecords calls of one look at most.
_MOST_CALLS: Final = 8
#: Seconds between two calls for a shard that is read whole and has nothing more.
_POLL: Final = 1.0
#: Seconds after which a subscription is renewed; seconds for which Kinesis refuses another one.
_RENEWED, _RESUBSCRIBE = 270.0, 5.0
#: A shard counts as not watched after so many periods, and seconds, without a look.
_BLIND_PERIODS, _BLIND_SECONDS = 3, 60.0
#: Seconds after which a run to the end of each shard gives up shards whose calls all fail.
GIVE_UP: Final = 12.0
#: Seconds of the shortest slot: arrival times are whole milliseconds.
SHORTEST_SLOT: Final = 0.01
_SHARD_WAIT, _STREAM_WAIT = Backoff(1.0, 60.0), Backoff(2.0, 60.0)


class Watch:
    """See the module. ``share``: of each shard's time, 1.0 for everything. ``period``: seconds in which
    every shard is looked at, lengthened where the limits are too tight for it. ``since``: so many
    seconds ago reading begins (share 1.0). ``after_reshard``: seconds for which a new child is read whole.
    ``late``: seconds that reading a shard whole may lie behind its end before that is a finding.
    ``pushed``: records come by subscription (share 1.0), see `Call`."""

    def __init__(
        self,
        sentinel: Sentinel,
        *,
        share: float = 0.05,
        period: float = 20.0,
        limits: Limits | None = None,
        after_reshard: float = 30.0,
        since: float = 0.0,
        late: float = 60.0,
        pushed: bool = False,
        seed: str = "",
    ) -> None:
        if not 0 < share <= 1:
            raise ValueError("share must be above 0 and at most 1")
        if pushed and share < 1:
            raise ValueError("a subscription gives everything: share must be 1")
        if share < 1 and share * period < SHORTEST_SLOT:
            raise ValueError(f"share * period must be at least {SHORTEST_SLOT} seconds: the time of one look")
        self.sentinel = sentinel
        self._pushed = pushed
        self.limits = limits or (Limits.of_a_consumer() if pushed else Limits())
        self.measured = Measured()
        self._queue = CallQueue(self.limits, self.measured, pushed=pushed)
        self._slots = max(1, round(1 / share))
        self._wanted, self._since, self._late = period, since, late
        self._watched = WatchedShards(
            sentinel,
            self.limits,
            self.measured,
            period=period,
            slots=self._slots,
            after_reshard=after_reshard,
            since=since,
            seed=f"{sentinel.stream}\0{seed}",
        )
        self._stream_failures = 0
        self._ticked = float("-inf")
        #: True when an answer says that the shard map is old: fetch it anew and call `use`.
        self.map_is_old = False

    # -- what is known --------------------------------------------------------------------------

    def cost(self, shards: int | None = None) -> Cost:
        """What watching costs with so many open shards (default: those there are)."""
        count = len(self.shards) if shards is None else shards
        period = planned_period(self._wanted, count, self.limits.calls)
        if self._pushed:
            return Cost(count, _RENEWED, count / _RENEWED, 1 / _RENEWED, 1.0, True)
        if self._slots == 1:
            each = min(self.limits.shard_calls, 1 / _POLL, self.limits.calls / max(1, count))
            return Cost(count, max(_POLL, 1 / each), count * each, each, 1.0)
        return Cost(count, period, count * 2 / period, 2 / period, 1 / self._slots)

    @property
    def period(self) -> float:
        """Seconds in which every shard is looked at."""
        return self._watched.sampling.period_ms / 1000

    @property
    def shards(self) -> Mapping[str, ShardWatch]:
        """The shards that are watched now. Read only."""
        return self._watched.shards

    def use(self, shard_map: ShardMap, now: float, *, recreated: bool = False) -> list[Finding]:
        """The stream has these shards now (closed ones too, for lineage). ``recreated``: it is a new one."""
        self.map_is_old = False
        recreated = recreated or self._watched.of_another_life(shard_map)
        told = self.sentinel.use(shard_map, now, recreated=recreated)
        if recreated:
            self._queue.clear()
        for state in self._watched.use(shard_map, now, recreated=recreated):
            self._queue.push(state)
        return told

    # -- from run to run ------------------------------------------------------------------------

    def keep(self, now: float) -> Kept:
        """What the next run needs to go on from here; see `kept`."""
        minutes = {shard_id: self.sentinel.minutes(shard_id) for shard_id in self.sentinel.shard_ids}
        shards = self._watched.keep(self.sentinel.shard_map)
        return Kept(now, shards, frozenset(self._watched.ended), minutes, self.sentinel.open_findings)

    def resume(self, kept: Kept) -> None:
        """Go on where ``kept`` left off. Call it before the first `use`."""
        # SEN-29: "A watch that resumes MUST go on where the one before left off: no period is looked at
        # twice, with a share of 1 no record is left out or read twice, and no finding is told anew."
        self._watched.resume(kept)
        self.sentinel.resume(kept)

    def up_to_date(self, now: float) -> bool:
        """Whether every shard was looked at in this run, or has no finished slot left to look at."""
        return self._watched.up_to_date(now)

    def given_up(self, now: float) -> list[str]:
        """The shards for which a run to their end does not wait any longer: all calls for them have failed
        for `GIVE_UP` seconds. Empty while any other is under way."""
        left = self._watched.behind(now)
        failing = [one.shard_id for one in left if one.failures and now - one.looked_at > GIVE_UP]
        return failing if len(failing) == len(left) else []

    def set_back(self, seconds: float, now: float) -> None:
        """The caller's clock was set back by so much, and is ``now``."""
        # SEN-35: "When the clock is set back, watching MUST go on at once."
        self._ticked -= seconds
        self.sentinel.set_back(seconds)
        self._queue.set_back(seconds)
        for state in self._watched.set_back(seconds, now):
            self._queue.settle(state, 0, now)
            self._queue.push(state)

    # -- calls ----------------------------------------------------------------------------------

    @property
    def next_tick(self) -> float:
        """When `tick` should be called."""
        return self._ticked + 5.0

    def timer(self) -> float:
        """When `next_call` or `tick` should be asked again."""
        return min(self._queue.timer(), self.next_tick)

    def next_call(self, now: float) -> Call | None:
        """A call to make now, None if there is none yet (see `timer`)."""
        return self._queue.next_call(self.shards, now)

    # -- answers --------------------------------------------------------------------------------

    def receive(self, call: Call, answer: Mapping[str, Any], now: float) -> list[Finding]:
        """What the service answered to ``call``; gives the findings to tell of."""
        state = self.shards.get(call.shard_id)
        if state is None or state.under_way != call.number:
            return []
        # SEN-8: "An answer without an iterator or records where they belong MUST be taken for a call that
        # failed, not for the end of the shard."
        begins = call.operation in ("GetShardIterator", "SubscribeToShard")
        missing = missing_member(answer, "ShardIterator" if begins else "Records")
        if missing is not None:
            return self.fail(call, Failure("IncompleteAnswer", f"no {missing}"), now)
        state.under_way = None
        if not (begins and self._pushed):  # nothing was called yet
            state.failures = self._stream_failures = 0
        if begins:
            state.iterator = str(answer["ShardIterator"])
            self._again(state, now)
            return []
        return self._records(state, answer, int(call.arguments["Limit"]), now)

    def _records(self, state: ShardWatch, answer: Mapping[str, Any], limit: int, now: float) -> list[Finding]:
        records = [answered_record(record, state.shard_id) for record in answer["Records"]]
        size = sum(len(record.data) for record in records)
        self._queue.settle(state, size, now)
        if records:
            state.records_size += 0.3 * (size / len(records) - state.records_size)
            last = str(records[-1].sequence_number)
            state.place = behind(last)
            state.read_to = max(state.read_to or last, last, key=int)
        state.iterator = answer.get("NextShardIterator")
        behind_ms = answer.get("MillisBehindLatest") or 0
        position = now * 1000 - behind_ms
        if records:
            arrival = records[-1].approximate_arrival_timestamp
            position = arrival.timestamp() * 1000 if arrival else now * 1000
        # More records may follow a full answer.
        at_tip = state.iterator is None or (behind_ms == 0 and len(records) < limit)
        window = state.window
        scale = self._slots if window is not None else 1.0
        end = window.end if window is not None else float("inf")
        told = self.sentinel.observe(Look(state.shard_id, state.look, scale, end, True), records, now)
        if window is None:
            until = now * 1000 if at_tip else min(position, now * 1000 - behind_ms)
            return told + self._read_whole(state, until, now, at_tip=at_tip)
        if at_tip or position >= end or state.look_calls >= _MOST_CALLS:
            until = end if at_tip else min(end, position)
            told += self._look_over(state, window, until, now)
        else:
            self._again(state, now)
        return told

    def _look_over(self, state: ShardWatch, window: Window, until: float, now: float) -> list[Finding]:
        """The slot was read up to ``until``: its end, or as far as one look may go."""
        looked = max(0, round(until - window.start))
        self.sentinel.looked(state.shard_id, looked, round(window.period_end - state.covered), now)
        if looked:
            seen = sum(minute.slot_records for minute in self.sentinel.minutes(state.shard_id).values())
            read = sum(minute.read_ms for minute in self.sentinel.minutes(state.shard_id).values())
            state.records_rate = seen / read * 1000 if read else 0.0
            state.looks += 1
            told = self._looked(state, now)
        else:
            self._watched.missed(state, 1)
            told = []
        state.covered = window.period_end
        state.look_calls = 0
        if state.iterator is None:  # the end of a closed shard: later slots are empty
            self._end(state)
            return told
        self._watched.next_slot(state, now)
        self._queue.push(state)
        return told

    def _read_whole(self, state: ShardWatch, until: float, now: float, *, at_tip: bool) -> list[Finding]:
        """The shard was read up to ``until`` (milliseconds)."""
        self.sentinel.read_whole(state.shard_id, max(0, round(until - state.covered)), now)
        state.covered = max(state.covered, until)
        told = self._looked(state, now) + self._lag(state, now - until / 1000, now)
        state.read_up_to_begin = state.read_up_to_begin or until >= state.began * 1000
        if not at_tip:
            self._again(state, now)
            return told
        state.caught_up = True
        state.looks += 1
        state.look_calls = 0
        if state.iterator is None:
            self._end(state)
            return told
        state.due = now if self._pushed else now + _POLL
        if now >= state.whole_until:
            state.whole_until = float("inf")
            self._watched.next_slot(state, now)
        self._queue.push(state)
        return told

    def _lag(self, state: ShardWatch, seconds: float, now: float) -> list[Finding]:
        # SEN-32: "A shard that is read whole MUST be a finding when its lag is above the limit. For a watch
        # that begins in the past, the limit is larger by that time until it reaches the end."
        allowed = self._late + (0.0 if state.caught_up else self._since)
        detail = f"this watch reads {seconds:.0f} s behind the end of the shard; its budget is too small"
        return self.sentinel.lag(state.shard_id, seconds, now, allowed=allowed, detail=detail)

    def _end(self, state: ShardWatch) -> None:
        self._watched.end(state)
        self.map_is_old = self.map_is_old or not state.closed

    def _looked(self, state: ShardWatch, now: float) -> list[Finding]:
        state.looked_at = now
        self.measured.looks += 1
        return self.sentinel.settle(Wrong("not-watched", "unknown", None), state.shard_id, now)

    def _again(self, state: ShardWatch, now: float) -> None:
        state.due = now
        self._queue.push(state)

    def fail(self, call: Call, failure: Failure, now: float) -> list[Finding]:
        """``call`` failed; gives the findings to tell of."""
        self.measured.failed[failure.code] += 1
        state = self.shards.get(call.shard_id)
        if state is None or state.under_way != call.number:
            return []
        state.under_way = None
        self._queue.settle(state, 0, now)
        told: list[Finding] = []
        kind = error_kind(failure.code)
        if failure.code == "ExpiredIteratorException" and not self._pushed:
            # SEN-9: "An iterator that has expired MUST be made again behind the last record read."
            state.iterator = None
            self._again(state, now)
            return told
        # SEN-7: "A call that failed MUST be tried again only after a wait that grows with each failure, one
        # for the whole stream where the failure is not of one shard."
        if kind == "throttled":
            told += self.sentinel.report(
                Wrong("throttled", "unknown", None), state.shard_id, now, failure.code
            )
        if kind in ("invalid", "refused"):
            state.iterator = None  # it may be what is refused
        if kind in ("refused", "unconfigured", "not-sent"):
            self._queue.pause(now + _STREAM_WAIT.seconds(self._stream_failures))
            self._stream_failures += 1
            self.map_is_old = True
        # SEN-34: "A watch that subscribes MUST read each record once, and MUST NOT subscribe to a shard again
        # within 5 seconds of a failure."
        wait = max(_SHARD_WAIT.seconds(state.failures), _RESUBSCRIBE if self._pushed else 0.0)
        state.failures += 1
        if (
            state.window is not None
            and now * 1000 > state.window.period_end + self._watched.sampling.period_ms
        ):
            state.look_calls = 0
            self._watched.next_slot(state, now)
        state.due = max(state.due, now + wait)
        self._queue.push(state)
        return told

    def tick(self, now: float) -> list[Finding]:
        """Call when `timer` says so: findings that are over, skew, hot keys, shards that nobody looks at."""
        self._ticked = now
        told = self.sentinel.tick(now)
        # SEN-22: "A shard that was not looked at for three periods, and a minute at least, MUST be a
        # finding."
        blind = max(_BLIND_SECONDS, _BLIND_PERIODS * self.period)
        for state in self.shards.values():
            if now - state.looked_at > blind:
                why = max(self.measured.failed, key=lambda code: self.measured.failed[code], default="")
                detail = f"for {now - state.looked_at:.0f} s; "
                detail += f"most calls fail with {why}" if state.failures else "the budget is too small"
                wrong = Wrong("not-watched", "unknown", None)
                told += self.sentinel.report(wrong, state.shard_id, now, detail)
        return told
