"""What becomes of Kinesis records that were not delivered: their user records end, or are sent again.

Specification: spec/05-producer.md, PRD-24, PRD-25, PRD-44 and PRD-50.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .answers import Malformed, NotStored
from .config import ProducerConfig
from .kinesis_record import Outgoing
from .ledger import Ended, undelivered
from .outcomes import ACTIONS, Action, Attempt, Outcome, outcome_of
from .pending import MOST_ATTEMPTS, Pending


class Flight(NamedTuple):
    """A PutRecords call under way. ``generation``: that of the map when it was sent."""

    kinesis_records: list[Outgoing]
    started_at: float
    generation: int

    def attempt(self, outgoing: Outgoing, outcome: Outcome, now: float, **facts: str | None) -> Attempt:
        """The attempt that this call was for one of its Kinesis records."""
        return Attempt(outcome, self.started_at, now, outgoing.shard, **facts)

    def not_stored(self, outgoing: Outgoing, entry: NotStored | Malformed, now: float) -> Attempt:
        """The attempt, for an entry of the answer that says that it was not stored."""
        outcome = outcome_of(entry.code) if isinstance(entry, NotStored) else Outcome.COUNT_MISMATCH
        if ACTIONS[outcome] is not Action.ISOLATE:
            return self.attempt(outgoing, outcome, now, code=entry.code, message=entry.message)
        # It was refused by itself; the message may repeat the record.
        return self.attempt(outgoing, Outcome.REFUSED, now, code=entry.code)


class Fate(NamedTuple):
    """``ended``: user records that have failed. ``again``: those to be placed again. ``unchanged``: Kinesis
    records to be sent as they are. ``isolated``: the same, each list as a request of its own, the first
    first."""

    ended: Sequence[Ended] = ()
    again: Sequence[Pending] = ()
    unchanged: Sequence[Outgoing] = ()
    isolated: Sequence[list[Outgoing]] = ()


def note(outgoing: Outgoing, attempt: Attempt) -> None:
    """Add a failed attempt to the history of its user records."""
    before: tuple[Attempt, ...] = ()
    after: tuple[Attempt, ...] = (attempt,)  # nearly all of them share one history
    for pending in outgoing.records:
        if pending.attempts is before and len(before) < MOST_ATTEMPTS:
            pending.attempts = after
        else:
            before = pending.attempts
            pending.note(attempt)
            after = pending.attempts


class Failures:
    """The rules, with the times of a configuration. No state."""

    def __init__(self, config: ProducerConfig) -> None:
        self._fail_if_throttled = config.fail_if_throttled
        self._ttl = config.ttl_seconds
        self._aggregating = config.buffering_seconds / 2 - config.collecting_seconds

    def failed(self, outgoing: Outgoing, attempt: Attempt, now: float, *, stays: bool = False) -> Fate:
        """One Kinesis record was not delivered. ``stays``: the map would send it as it is."""
        note(outgoing, attempt)
        action = ACTIONS[attempt.outcome]
        if action is Action.FAIL or (attempt.outcome is Outcome.THROTTLED and self._fail_if_throttled):
            return Fate([undelivered(pending, attempt.outcome, attempt.code) for pending in outgoing.records])
        expired = outgoing.take_expired(now) if outgoing.expires_at <= now else []
        ended = [undelivered(pending, Outcome.EXPIRED) for pending in expired]
        if action is Action.BACK_OFF and stays:
            # PRD-50: "A Kinesis record that was not stored MUST be sent again as it is, unless the map has
            # changed for it."
            return Fate(ended, unchanged=[outgoing] if outgoing.records else ())
        # PRD-25: "A retry MUST wait for company at most half of record_max_buffered_time, and never beyond
        # its time to live."
        deadline = now + self._aggregating
        for pending in outgoing.records:
            pending.deadline = min(deadline, pending.expires_at)
            pending.map_deadline = min(now + self._ttl / 10, pending.expires_at)
        return Fate(ended, outgoing.records)

    def invalid(self, flight: Flight, code: str, now: float) -> Fate:
        """The service refused a whole call as invalid: find the invalid record by halving.

        One bad record must not fail 499 good ones. First halves are sent, then single Kinesis records, then
        the user records of an aggregate one by one. A record that is refused alone fails.
        """
        kinesis_records = flight.kinesis_records
        if len(kinesis_records) == 1 and len(kinesis_records[0].records) == 1:
            only = kinesis_records[0]
            return self.failed(only, flight.attempt(only, Outcome.REFUSED, now, code=code), now)
        for outgoing in kinesis_records:
            note(outgoing, flight.attempt(outgoing, Outcome.INVALID, now, code=code))
        if len(kinesis_records) > 1:
            half = len(kinesis_records) // 2
            return Fate(isolated=[kinesis_records[:half], kinesis_records[half:]])
        for pending in kinesis_records[0].records:
            pending.alone = True
        return Fate(again=kinesis_records[0].records)
