"""Decides about Kinesis records that the service stored: delivered, misplaced, or not known yet; and about
those that were not delivered: their user records end, or are sent again.

An aggregate is delivered as a whole or not at all, because a KCL consumer drops it if one of its user records
is out of the shard's range. This also holds for an aggregate with one hash key: it is in its shard's range
unless the stream has begun to distribute records AUTO, which only the map shows. Specification:
spec/05-producer.md, PRD-24, PRD-25, PRD-27 to PRD-32, PRD-44 and PRD-50; 5.7 has the verdicts as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..shards.live_shard_map import LiveShardMap
from .config import ProducerConfig
from .outcomes import ACTIONS, NO_HISTORY, Attempt, Entry
from .pending import Pending
from .record_builder import KinesisRecordBuilder

#: Seconds between refreshes while a shard is missing from the map.
PROBE_INTERVAL = 1.0
#: After so many misplacements a user record is sent alone: no consumer drops a bare record.
MISPLACEMENTS_BEFORE_ALONE = 2


class StoredRecord(NamedTuple):
    """A stored Kinesis record without a verdict. ``until``: the time at which its user records are sent
    again."""

    outgoing: KinesisRecordBuilder
    attempt: Attempt
    until: float


class RetryPlan(NamedTuple):
    """``ended``: user records that have failed. ``again``: user records to be placed again. ``unchanged``:
    Kinesis records to be sent again as they are. ``isolated``: the same, each list as a request of its own,
    in this order."""

    ended: Sequence[Pending] = ()
    again: Sequence[Pending] = ()
    unchanged: Sequence[KinesisRecordBuilder] = ()
    isolated: Sequence[list[KinesisRecordBuilder]] = ()


def add_to_histories(outgoing: KinesisRecordBuilder, attempt: Attempt) -> None:
    before, after = None, NO_HISTORY.with_attempt(attempt)  # nearly all of them share one history
    for pending in outgoing.records:
        if pending.history is not before:
            before = pending.history
            after = (before or NO_HISTORY).with_attempt(attempt)
        pending.history = after


class StoredOutcomes:
    """`judge` decides about a Kinesis record that was stored, `map_changed` and `take_due` about ``parked``
    ones (stored, without a verdict), `failed` and `invalid` about those that were not stored."""

    def __init__(
        self, config: ProducerConfig, live: LiveShardMap, undelivered: Callable[..., Pending]
    ) -> None:
        self._config, self._live, self._undelivered = config, live, undelivered
        self._aggregating = min(3.0, config.buffering_seconds / 2) - config.collecting_seconds
        self.parked: list[StoredRecord] = []
        self._probe_at: float | None = None

    def judge(self, outgoing: KinesisRecordBuilder, attempt: Attempt, now: float) -> Attempt:
        """The attempt with its outcome: DELIVERED, MISPLACED, or PLACEMENT_UNKNOWN for a Kinesis record that
        is parked."""
        assert attempt.shard_id is not None
        if outgoing.shard is not None and attempt.shard_id != outgoing.shard:
            # PRD-29: "When a record lands on another shard than predicted the shard map MUST be given a
            # report: the time of sending and the predicted shard."
            self._live.invalidate(attempt.started_at, outgoing.shard, now)
        self._live.stream_seen(now)
        result = self._with_verdict(outgoing, attempt)
        if result.outcome == "placement-unknown":
            # PRD-28: "While the range of the shard an aggregate landed on is not known, there MUST be no
            # verdict: it waits for a newer map, at most half its time to live and 5 s."
            until = min(now + min(5.0, self._config.ttl_seconds / 2), outgoing.expires_at)
            outgoing.becomes("stored")
            self.parked.append(StoredRecord(outgoing, result, until))
            if self._live.shard(attempt.shard_id) is not None:
                self._live.stream_gone(now)  # the known shard did not give out this number
            if self._probe_at is None:
                self._live.refresh(now)
                self._probe_at = now + PROBE_INTERVAL
        return result

    def _with_verdict(self, outgoing: KinesisRecordBuilder, attempt: Attempt) -> Attempt:
        # PRD-30: "A bare record is delivered wherever it landed: no consumer drops it."
        if not outgoing.aggregated:
            return attempt.replace(outcome="delivered")
        assert attempt.shard_id is not None
        assert attempt.sequence_number is not None
        shard = self._live.shard_of_record(
            attempt.shard_id,
            attempt.sequence_number,
            generation=outgoing.generation,
            answered_at=attempt.ended_at,
        )
        if shard == "unknown":
            return attempt.replace(outcome="placement-unknown")
        if shard == "gone":  # the stream was deleted since
            return attempt.replace(outcome="misplaced")
        # PRD-27: "An aggregate is delivered only if the effective hash key of every user record in it is
        # in the range of the shard it landed on; otherwise all of its user records MUST be sent again."
        # (The KPL finishes those in range as a success since 0.15.11. The KCL drops the mixed aggregate
        # whole, so these are lost.)
        if outgoing.lowest in shard.hash_key_range and outgoing.highest in shard.hash_key_range:
            return attempt.replace(outcome="delivered")
        return attempt.replace(outcome="misplaced")

    def map_changed(self) -> list[tuple[KinesisRecordBuilder, Attempt]]:
        """After a new shard map: take the parked Kinesis records that have a verdict now, with their
        attempts."""
        attempts = [(one, self._with_verdict(one.outgoing, one.attempt)) for one in self.parked]
        self.parked = [one for one, attempt in attempts if attempt.outcome == "placement-unknown"]
        if not self.parked:
            self._probe_at = None
        return [
            (one.outgoing, attempt) for one, attempt in attempts if attempt.outcome != "placement-unknown"
        ]

    def take_due(self, now: float) -> list[StoredRecord]:
        """Take the parked Kinesis records that no map has decided in time. Their user records are sent again,
        alone: a duplicate is better than a loss."""
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

    def failed(self, outgoing: KinesisRecordBuilder, attempt: Attempt, now: float) -> RetryPlan:
        add_to_histories(outgoing, attempt)
        outcome, action = attempt.outcome, ACTIONS[attempt.outcome]
        if action == "fail" or (outcome == "throttled" and self._config.fail_if_throttled):
            return RetryPlan([self._undelivered(one, outcome, attempt.code) for one in outgoing.records])
        ended = [self._undelivered(one, "expired") for one in outgoing.take_expired(now)]
        if action == "back-off" and self._stays(outgoing):
            # PRD-50: "A Kinesis record that was not stored MUST be sent again as it is, unless the map has
            # changed for it or PRT-9 frees it."
            return RetryPlan(ended, unchanged=[outgoing] if outgoing.records else ())
        # PRD-25: "A retry MUST wait for others at most half of record_max_buffered_time_ms and 3 s, and never
        # beyond its time to live."
        deadline = now + self._aggregating
        for pending in outgoing.records:
            pending.deadline = min(deadline, pending.expires_at)
            pending.map_deadline = min(now + self._config.map_wait, pending.expires_at)
            # PRD-31: "A user record that was misplaced twice MUST be sent alone."
            if pending.history and pending.history.misplaced >= MISPLACEMENTS_BEFORE_ALONE:
                pending.alone, pending.wrap = True, pending.must_wrap
        return RetryPlan(ended, outgoing.records)

    def _stays(self, outgoing: KinesisRecordBuilder) -> bool:
        """Whether a Kinesis record may be sent again as it is: the map predicts the same shard for it."""
        live = self._live
        if outgoing.shard is None:  # one user record
            return live.predict(outgoing.lowest) is None and not live.map_may_come
        return outgoing.generation == live.known.generation and outgoing.shard in live.routes

    def invalid(self, kinesis_records: list[KinesisRecordBuilder], code: str, now: float) -> RetryPlan:
        """The service refused a whole call as invalid: find the invalid record by halving, at last the user
        records of an aggregate one by one. One bad record must not fail 499 good ones."""
        first = kinesis_records[0]
        if len(kinesis_records) == 1 and len(first.records) == 1:
            return self.failed(first, first.attempt(Entry("refused", code=code), now), now)
        for outgoing in kinesis_records:
            add_to_histories(outgoing, outgoing.attempt(Entry("invalid", code=code), now))
        same_life = first.generation == self._live.known.generation
        open_shards = frozenset(self._live.known.routes.shard_ids if same_life else ())
        again: list[Pending] = []
        # PRD-32: user records for a shard that has closed since are placed anew; their next request is
        # halved.
        halved: list[KinesisRecordBuilder] = []
        for outgoing in kinesis_records:
            if outgoing.shard is None or outgoing.shard in open_shards:
                halved.append(outgoing)
            else:
                again += outgoing.records
        if len(kinesis_records) == 1 and halved:
            again = halved.pop().records
            for pending in again:
                pending.alone = True
        half = len(halved) // 2
        parts = [halved[:half], halved[half:]]
        return RetryPlan(again=again, isolated=[part for part in parts if part])
