"""What becomes of Kinesis records that were not delivered: their user records end, or are sent again.

Specification: spec/05-producer.md, PRD-24, PRD-25, PRD-44 and PRD-50.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..shards.live_shard_map import LiveShardMap
from .config import ProducerConfig
from .kinesis_record import Outgoing
from .outcomes import ACTIONS, NO_HISTORY, Attempt, Entry
from .pending import Pending
from .results import undelivered

#: After so many misplacements a user record is sent alone: no consumer drops a bare record.
MISPLACEMENTS_BEFORE_ALONE = 2


class Fate(NamedTuple):
    """``ended``: user records that have failed. ``again``: those to be placed again. ``unchanged``: Kinesis
    records to be sent as they are. ``isolated``: the same, each list as a request of its own, the first
    first."""

    ended: Sequence[Pending] = ()
    again: Sequence[Pending] = ()
    unchanged: Sequence[Outgoing] = ()
    isolated: Sequence[list[Outgoing]] = ()


def note(outgoing: Outgoing, attempt: Attempt) -> None:
    """Add a failed attempt to the history of its user records."""
    before, after = None, NO_HISTORY.with_attempt(attempt)  # nearly all of them share one history
    for pending in outgoing.records:
        if pending.history is not before:
            before = pending.history
            after = (before or NO_HISTORY).with_attempt(attempt)
        pending.history = after


class Failures:
    """The rules, with the times of a configuration and the map. No state."""

    def __init__(self, config: ProducerConfig, live: LiveShardMap) -> None:
        self._config, self._live = config, live
        self._aggregating = config.buffering_seconds / 2 - config.collecting_seconds

    def failed(self, outgoing: Outgoing, attempt: Attempt, now: float) -> Fate:
        note(outgoing, attempt)
        outcome, action = attempt.outcome, ACTIONS[attempt.outcome]
        if action == "fail" or (outcome == "throttled" and self._config.fail_if_throttled):
            return Fate([undelivered(self._config, one, outcome, attempt.code) for one in outgoing.records])
        ended = [undelivered(self._config, one, "expired") for one in outgoing.take_expired(now)]
        if action == "back-off" and self._stays(outgoing):
            # PRD-50: "A Kinesis record that was not stored MUST be sent again as it is, unless the map has
            # changed for it."
            return Fate(ended, unchanged=[outgoing] if outgoing.records else ())
        # PRD-25: "A retry MUST wait for company at most half of record_max_buffered_time_ms, and never beyond
        # its time to live."
        deadline = now + self._aggregating
        for pending in outgoing.records:
            pending.deadline = min(deadline, pending.expires_at)
            pending.map_deadline = min(now + self._config.ttl_seconds / 10, pending.expires_at)
            # PRD-31: "A user record that was misplaced twice MUST be sent alone."
            if pending.history and pending.history.misplaced >= MISPLACEMENTS_BEFORE_ALONE:
                pending.alone, pending.wrap = True, pending.must_wrap
        return Fate(ended, outgoing.records)

    def _stays(self, outgoing: Outgoing) -> bool:
        """Whether the map would send a Kinesis record as it was sent before."""
        live = self._live
        if outgoing.shard is None:  # one user record
            return live.predict(outgoing.lowest) is None and not live.map_may_come
        return outgoing.generation == live.known.generation and live.trusts(outgoing.shard)

    def invalid(self, kinesis_records: list[Outgoing], code: str, now: float) -> Fate:
        """The service refused a whole call as invalid: find the invalid record by halving.

        One bad record must not fail 499 good ones. First halves are sent, then single Kinesis records, then
        the user records of an aggregate one by one. A record that is refused alone fails.
        """
        first = kinesis_records[0]
        if len(kinesis_records) == 1 and len(first.records) == 1:
            return self.failed(first, first.attempt(Entry("refused", code=code), now), now)
        for outgoing in kinesis_records:
            note(outgoing, outgoing.attempt(Entry("invalid", code=code), now))
        same_life = first.generation == self._live.known.generation
        open_shards = frozenset(self._live.known.routes.shard_ids if same_life else ())
        again: list[Pending] = []
        # PRD-32: what was meant for a shard that has closed since is placed anew; its next request is halved.
        halved: list[Outgoing] = []
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
        return Fate(again=again, isolated=[part for part in parts if part])
