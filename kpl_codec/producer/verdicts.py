"""The verdict on Kinesis records that the service stored: delivered, misplaced, or not known yet.

An aggregate is delivered as a whole or not at all, because a KCL consumer drops it if one of its user records
is out of the shard's range. This also holds for an aggregate with one hash key: it is in its shard's range
unless the stream has begun to distribute records AUTO, which only the map shows.
Specification: spec/05-producer.md, PRD-27 to PRD-31; the table of verdicts is in 5.7.
"""

from __future__ import annotations

from typing import NamedTuple

from ..shards.live_shard_map import LiveShardMap
from .config import ProducerConfig
from .kinesis_record import Outgoing
from .outcomes import Attempt

#: Seconds between refreshes while a shard is missing from the map.
PROBE_INTERVAL = 1.0


class Parked(NamedTuple):
    """A stored Kinesis record without a verdict. ``until``: then its user records are sent again."""

    outgoing: Outgoing
    attempt: Attempt
    until: float


class Verdicts:
    """See the module. `judge` is for an answer, `map_changed` and `take_due` for the ``parked``."""

    def __init__(self, config: ProducerConfig, live: LiveShardMap) -> None:
        self._live = live
        self._patience = config.ttl_seconds / 2
        self.parked: list[Parked] = []
        self._probe_at: float | None = None

    def judge(self, outgoing: Outgoing, attempt: Attempt, now: float) -> Attempt:
        """The attempt with its outcome: DELIVERED, MISPLACED, or PLACEMENT_UNKNOWN for one parked here."""
        assert attempt.shard_id is not None
        if outgoing.shard is not None and attempt.shard_id != outgoing.shard:
            # PRD-29: "When a record lands on another shard than predicted the shard map MUST be told: the
            # time of sending and the predicted shard."
            self._live.invalidate(attempt.started_at, outgoing.shard, now)
        self._live.stream_seen(now)
        judged = self._with_verdict(outgoing, attempt)
        if judged.outcome == "placement-unknown":
            # PRD-28: "While the range of the shard an aggregate landed on is not known, there MUST be no
            # verdict: it waits for a newer map, at most half its time to live."
            until = min(now + self._patience, outgoing.expires_at)
            self.parked.append(Parked(outgoing, judged, until))
            if self._live.shard(attempt.shard_id) is not None:
                self._live.stream_gone(now)  # the known shard did not give out this number
            if self._probe_at is None:
                self._live.refresh(now)
                self._probe_at = now + PROBE_INTERVAL
        return judged

    def _with_verdict(self, outgoing: Outgoing, attempt: Attempt) -> Attempt:
        # PRD-30: "A bare record is delivered wherever it landed: no consumer drops it."
        if not outgoing.aggregated:
            return attempt._replace(outcome="delivered")
        assert attempt.shard_id is not None
        assert attempt.sequence_number is not None
        known = self._live.shard_of_record(
            attempt.shard_id,
            attempt.sequence_number,
            generation=outgoing.generation,
            answered_at=attempt.ended_at,
        )
        if known == "unknown":
            return attempt._replace(outcome="placement-unknown")
        if known == "gone":  # the stream was deleted since
            return attempt._replace(outcome="misplaced")
        # PRD-27: "An aggregate is delivered only if the effective hash key of every user record in it is
        # in the range of the shard it landed on; otherwise all of its user records MUST be sent again."
        # (The KPL finishes those in range as a success since 0.15.11. The KCL drops the mixed aggregate
        # whole, so these are lost.)
        if outgoing.lowest in known.hash_key_range and outgoing.highest in known.hash_key_range:
            return attempt._replace(outcome="delivered")
        return attempt._replace(outcome="misplaced")

    def map_changed(self) -> list[tuple[Outgoing, Attempt]]:
        """After a new map: take what has a verdict now, in its attempt."""
        judged = [(one, self._with_verdict(one.outgoing, one.attempt)) for one in self.parked]
        self.parked = [one for one, attempt in judged if attempt.outcome == "placement-unknown"]
        if not self.parked:
            self._probe_at = None
        return [(one.outgoing, attempt) for one, attempt in judged if attempt.outcome != "placement-unknown"]

    def take_due(self, now: float) -> list[Parked]:
        """Take what no map has decided in time, to be sent again, alone: twice is better than lost."""
        if self._probe_at is not None and now >= self._probe_at:
            self._probe_at = now + PROBE_INTERVAL if self.parked else None
            if self.parked:
                self._live.refresh(now)
        due = [one for one in self.parked if one.until <= now]
        self.parked = [one for one in self.parked if one.until > now]
        for one in due:
            for pending in one.outgoing.records:
                pending.alone = True
        return due

    def timer(self) -> float | None:
        times = [one.until for one in self.parked]
        if self._probe_at is not None:
            times.append(self._probe_at)
        return min(times, default=None)
