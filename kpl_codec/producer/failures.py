"""What is done about Kinesis records that were not delivered: their user records fail, or are sent again.

Specification: spec/05-producer.md, PRD-24, PRD-25 and PRD-44.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from .config import ProducerConfig
from .kinesis_record import Outgoing
from .metrics import Meter
from .outcomes import ACTIONS, Action, Attempt, Outcome
from .pending import MOST_ATTEMPTS, Pending
from .send_queue import SendQueue


class Flight(NamedTuple):
    """A PutRecords call under way. ``generation``: that of the map when it was sent."""

    kinesis_records: list[Outgoing]
    started_at: float
    generation: int

    def attempt(self, outgoing: Outgoing, outcome: Outcome, now: float, **facts: str | None) -> Attempt:
        """The attempt that this call was for one of its Kinesis records."""
        return Attempt(outcome, self.started_at, now, outgoing.shard, **facts)


class Fail(Protocol):
    """Ends a user record as not delivered."""

    def __call__(self, pending: Pending, outcome: Outcome, code: str | None = None, /) -> None: ...


class Failures:
    """See the module. Its methods return the user records that are to be placed again.

    ``fail``: called for each user record that fails. ``meter``: counts failed attempts, if there is one.
    """

    def __init__(self, config: ProducerConfig, queue: SendQueue, meter: Meter | None, fail: Fail) -> None:
        self._queue = queue
        self._meter = meter
        self._fail = fail
        self._fail_if_throttled = config.fail_if_throttled
        self._ttl = config.ttl_seconds
        self._aggregating = config.buffering_seconds / 2 - config.collecting_seconds

    def note(self, outgoing: Outgoing, attempt: Attempt) -> None:
        """Add a failed attempt to the history of its user records."""
        if self._meter is not None:
            self._meter.failed(attempt.code or attempt.outcome.value)
        before: tuple[Attempt, ...] = ()
        after: tuple[Attempt, ...] = (attempt,)  # nearly all of them share one history
        for pending in outgoing.records:
            if pending.attempts is before and len(before) < MOST_ATTEMPTS:
                pending.attempts = after
            else:
                before = pending.attempts
                pending.note(attempt)
                after = pending.attempts

    def failed(
        self, outgoing: Outgoing, attempt: Attempt, now: float, *, stays: bool = False
    ) -> list[Pending]:
        """One Kinesis record was not delivered. ``stays``: the map would send it as it is."""
        self.note(outgoing, attempt)
        action = ACTIONS[attempt.outcome]
        throttled = attempt.outcome is Outcome.THROTTLED
        if action is Action.BACK_OFF:
            self._queue.failed(outgoing.shard, throttled=throttled)
        if action is Action.FAIL or (throttled and self._fail_if_throttled):
            for pending in outgoing.records:
                self._fail(pending, attempt.outcome, attempt.code)
            return []
        if outgoing.expires_at <= now:
            for pending in outgoing.take_expired(now):
                self._fail(pending, Outcome.EXPIRED)
        if action is Action.BACK_OFF and stays:
            # PRD-50: "A Kinesis record that was not stored MUST be sent again as it is, unless the map has
            # changed for it."
            if outgoing.records:
                self._queue.add(outgoing)
            return []
        # PRD-25: "A retry MUST wait for company at most half of record_max_buffered_time, and never beyond
        # its time to live."
        deadline = now + self._aggregating
        for pending in outgoing.records:
            pending.deadline = min(deadline, pending.expires_at)
            pending.map_deadline = min(now + self._ttl / 10, pending.expires_at)
        return outgoing.records

    def invalid(self, flight: Flight, code: str, now: float) -> list[Pending]:
        """The service refused a whole call as invalid: find the invalid record by halving.

        One bad record must not fail 499 good ones. First halves are sent, then single Kinesis records, then
        the user records of an aggregate one by one. A record that is refused alone fails.
        """
        kinesis_records = flight.kinesis_records
        self._queue.refused_as_invalid(now)
        if len(kinesis_records) == 1 and len(kinesis_records[0].records) == 1:
            only = kinesis_records[0]
            return self.failed(only, flight.attempt(only, Outcome.REFUSED, now, code=code), now)
        for outgoing in kinesis_records:
            self.note(outgoing, flight.attempt(outgoing, Outcome.INVALID, now, code=code))
        if len(kinesis_records) > 1:
            half = len(kinesis_records) // 2
            self._queue.isolate(kinesis_records[half:])
            self._queue.isolate(kinesis_records[:half])
            return []
        for pending in kinesis_records[0].records:
            pending.alone = True
        return kinesis_records[0].records
