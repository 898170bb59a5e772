"""What an answer means: how each Kinesis record of a call ended, and what is to be done about it.

Also decides about Kinesis records that the service stored: delivered, misplaced, or not known yet; and about
those that were not delivered: their user records end, or are sent again.

An aggregate is delivered as a whole or not at all, because a KCL consumer drops it if one of its user records
is out of the shard's range. This also holds for an aggregate with one hash key: it is in its shard's range
unless the stream has begun to distribute records AUTO, which only the map shows. Specification:
spec/05-producer.md, PRD-24, PRD-25, PRD-27 to PRD-32, PRD-44 and PRD-50; 5.7 has the verdicts as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ..aws_errors import rule_of
from ..format.limits import DEFAULT_MAX_RECORD_SIZE, LARGEST_MAX_RECORD_SIZE
from ..shards.live_shard_map import Failure, LiveShardMap
from .batch import Batch
from .config import ProducerConfig
from .record import Pending
from .results import ACTIONS, NO_HISTORY, Attempt, Entry, Outcome

#: Seconds between refreshes while a shard is missing from the map.
PROBE_INTERVAL = 1.0
#: After so many misplacements a user record is sent alone: no consumer drops a bare record.
MISPLACEMENTS_BEFORE_ALONE = 2


def outcome_of(code: str, reason: str = "", *, answered: bool = True) -> Outcome:
    """The outcome for an error code of AWS or of the client, with its text. ``answered`` False: no
    response came."""
    return rule_of(code, reason).producer if answered else "no-answer"


def failure_of_call(error: BaseException, operation: str) -> tuple[Failure, bool]:
    """The failure of a call of boto3 or aiobotocore, and whether the service answered, or nothing was
    sent."""
    from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, SSLError

    from ..aws.calls import failure_of

    if not isinstance(error, (ClientError, BotoCoreError, OSError)):
        return Failure(type(error).__name__), False
    failure = failure_of(error, operation)
    # PRD-36: "A failed call MUST count as one that may have stored its records unless it is known that
    # nothing was sent, or that it was refused."
    answered = isinstance(error, ClientError) or rule_of(failure.code).producer in ("not-sent", "invalid")
    if isinstance(error, EndpointConnectionError):
        # aiobotocore raises it where an existing connection broke, too.
        causes = {kind.__name__ for kind in type(error.kwargs.get("error")).__mro__}
        answered = not causes.isdisjoint(("NewConnectionError", "ClientConnectorError", "gaierror"))
    elif isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Failure("SSLCertVerificationError", failure.reason), True  # (no request was sent)
    return failure, answered


MALFORMED: Final = Entry("count-mismatch", code="MalformedAnswer")


def parse_put_records(answer: object, sent: int) -> list[Entry]:
    """The entries of a PutRecords response, one for each of ``sent`` Kinesis records."""
    entries = answer.get("Records") if isinstance(answer, Mapping) else None
    # PRD-23: "An answer that does not have one entry for each record sent says nothing about any of them; all
    # MUST be sent again."
    if not isinstance(entries, list) or len(entries) != sent:
        return [Entry("count-mismatch", code="CountMismatch")] * sent
    return [_parse_entry(entry) for entry in entries]


def _parse_entry(entry: object) -> Entry:
    if not isinstance(entry, Mapping):
        return MALFORMED
    code, message = entry.get("ErrorCode"), entry.get("ErrorMessage")
    if isinstance(code, str) and code:
        outcome = outcome_of(code)
        if ACTIONS[outcome] == "isolate":  # the record was refused; the message may repeat its data
            return Entry("refused", code=code)
        return Entry(outcome, code=code, message=message if isinstance(message, str) else None)
    shard_id, number = entry.get("ShardId"), entry.get("SequenceNumber")
    if not code and isinstance(shard_id, str) and isinstance(number, str) and shard_id and number:
        return Entry("delivered", shard_id, number)
    return MALFORMED


def parse_max_record_size(answer: object) -> int | None:
    """Bytes of the largest Kinesis record that a stream takes, from a response of DescribeStreamSummary; None
    if that does not say."""
    summary = answer.get("StreamDescriptionSummary") if isinstance(answer, Mapping) else None
    kib = summary.get("MaxRecordSizeInKiB") if isinstance(summary, Mapping) else None
    if type(kib) is not int:
        return None
    return min(max(kib * 1024, DEFAULT_MAX_RECORD_SIZE), LARGEST_MAX_RECORD_SIZE)


class StoredRecord(NamedTuple):
    """A stored Kinesis record without a verdict. ``until``: the time at which its user records are sent
    again."""

    batch: Batch
    attempt: Attempt
    until: float


class RetryPlan(NamedTuple):
    """``ended``: user records that have failed. ``again``: user records to be placed again. ``unchanged``:
    Kinesis records to be sent again as they are. ``isolated``: the same, each list as a request of its own,
    in this order."""

    ended: Sequence[Pending] = ()
    again: Sequence[Pending] = ()
    unchanged: Sequence[Batch] = ()
    isolated: Sequence[list[Batch]] = ()


def add_to_histories(batch: Batch, attempt: Attempt) -> None:
    before, after = None, NO_HISTORY.with_attempt(attempt)  # nearly all of them share one history
    for pending in batch.records:
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

    def judge(self, batch: Batch, attempt: Attempt, now: float) -> Attempt:
        """The attempt with its outcome: DELIVERED, MISPLACED, or PLACEMENT_UNKNOWN for a Kinesis record that
        is parked."""
        assert attempt.shard_id is not None
        if batch.shard is not None and attempt.shard_id != batch.shard:
            # PRD-29: "When a record lands on another shard than predicted the shard map MUST be given a
            # report: the time of sending and the predicted shard."
            self._live.invalidate(attempt.started_at, batch.shard, now)
        self._live.stream_seen(now)
        result = self._with_verdict(batch, attempt)
        if result.outcome == "placement-unknown":
            # PRD-28: "While the range of the shard an aggregate landed on is not known, there MUST be no
            # verdict: it waits for a newer map, at most half its time to live and 5 s."
            until = min(now + min(5.0, self._config.ttl_seconds / 2), batch.expires_at)
            batch.becomes("stored")
            self.parked.append(StoredRecord(batch, result, until))
            if self._live.shard(attempt.shard_id) is not None:
                self._live.stream_gone(now)  # the known shard did not give out this number
            if self._probe_at is None:
                self._live.refresh(now)
                self._probe_at = now + PROBE_INTERVAL
        return result

    def _with_verdict(self, batch: Batch, attempt: Attempt) -> Attempt:
        # PRD-30: "A bare record is delivered wherever it landed: no consumer drops it."
        if not batch.aggregated:
            return attempt.replace(outcome="delivered")
        assert attempt.shard_id is not None
        assert attempt.sequence_number is not None
        shard = self._live.shard_of_record(
            attempt.shard_id,
            attempt.sequence_number,
            generation=batch.generation,
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
        if batch.lowest in shard.hash_key_range and batch.highest in shard.hash_key_range:
            return attempt.replace(outcome="delivered")
        return attempt.replace(outcome="misplaced")

    def map_changed(self) -> list[tuple[Batch, Attempt]]:
        """After a new shard map: take the parked Kinesis records that have a verdict now, with their
        attempts."""
        attempts = [(one, self._with_verdict(one.batch, one.attempt)) for one in self.parked]
        self.parked = [one for one, attempt in attempts if attempt.outcome == "placement-unknown"]
        if not self.parked:
            self._probe_at = None
        return [(one.batch, attempt) for one, attempt in attempts if attempt.outcome != "placement-unknown"]

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
            for pending in one.batch.records:
                pending.alone = True
        return due

    def timer(self) -> float | None:
        times = [one.until for one in self.parked]
        if self._probe_at is not None:
            times.append(self._probe_at)
        return min(times, default=None)

    def failed(self, batch: Batch, attempt: Attempt, now: float) -> RetryPlan:
        add_to_histories(batch, attempt)
        outcome, action = attempt.outcome, ACTIONS[attempt.outcome]
        if action == "fail" or (outcome == "throttled" and self._config.fail_if_throttled):
            return RetryPlan([self._undelivered(one, outcome, attempt.code) for one in batch.records])
        ended = [self._undelivered(one, "expired") for one in batch.take_expired(now)]
        if action == "back-off" and self._stays(batch):
            # PRD-50: "A Kinesis record that was not stored MUST be sent again as it is, unless the map has
            # changed for it or PRT-9 frees it."
            return RetryPlan(ended, unchanged=[batch] if batch.records else ())
        # PRD-25: "A retry MUST wait for others at most half of record_max_buffered_time_ms and 3 s, and never
        # beyond its time to live."
        deadline = now + self._aggregating
        for pending in batch.records:
            pending.deadline = min(deadline, pending.expires_at)
            pending.map_deadline = min(now + self._config.map_wait, pending.expires_at)
            # PRD-31: "A user record that was misplaced twice MUST be sent alone."
            if pending.history and pending.history.misplaced >= MISPLACEMENTS_BEFORE_ALONE:
                pending.alone, pending.wrap = True, pending.must_wrap
        return RetryPlan(ended, batch.records)

    def _stays(self, batch: Batch) -> bool:
        """Whether a Kinesis record may be sent again as it is: the map predicts the same shard for it."""
        live = self._live
        if batch.shard is None:  # one user record
            return live.predict(batch.lowest) is None and not live.map_may_come
        return batch.generation == live.known.generation and batch.shard in live.routes

    def invalid(self, batches: list[Batch], code: str, now: float) -> RetryPlan:
        """The service refused a whole call as invalid: find the invalid record by halving, at last the user
        records of an aggregate one by one. One bad record must not fail 499 good ones."""
        first = batches[0]
        if len(batches) == 1 and len(first.records) == 1:
            return self.failed(first, first.attempt(Entry("refused", code=code), now), now)
        for batch in batches:
            add_to_histories(batch, batch.attempt(Entry("invalid", code=code), now))
        same_life = first.generation == self._live.known.generation
        open_shards = frozenset(self._live.known.routes.shard_ids if same_life else ())
        again: list[Pending] = []
        # PRD-32: user records for a shard that has closed since are placed anew; their next request is
        # halved.
        halved: list[Batch] = []
        for batch in batches:
            if batch.shard is None or batch.shard in open_shards:
                halved.append(batch)
            else:
                again += batch.records
        if len(batches) == 1 and halved:
            again = halved.pop().records
            for pending in again:
                pending.alone = True
        half = len(halved) // 2
        parts = [halved[:half], halved[half:]]
        return RetryPlan(again=again, isolated=[part for part in parts if part])
