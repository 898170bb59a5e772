"""What an answer means: what became of each Kinesis record of a call, and what is to be done about it.

An aggregate is delivered as a whole or not at all, because a KCL consumer drops it if one of its user records
is out of the shard's range. This also holds for an aggregate with one hash key: it is in its shard's range
unless the stream has begun to distribute records AUTO, which only the map shows. Specification:
spec/05-producer.md, PRD-23 to PRD-25, PRD-27 to PRD-32, PRD-36, PRD-50 and PRD-82; 5.5 has the outcomes, 5.7
the verdicts as tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from ..aws_errors import rule_of
from ..format.limits import DEFAULT_MAX_RECORD_SIZE, LARGEST_MAX_RECORD_SIZE
from ..shards.live_shard_map import Failure, LiveShardMap
from ..shards.sequence_numbers import is_sequence_number, sequence_hint
from .batch import Batch
from .config import ProducerConfig
from .record import Pending
from .results import ACTIONS, Attempt, Entry, Outcome

#: Seconds between refreshes while a shard is missing from the map.
PROBE_INTERVAL = 1.0
#: After so many misplacements a user record is sent alone: no consumer drops a bare record.
MISPLACEMENTS_BEFORE_ALONE = 2
#: PRD-82: how many answers are remembered.
_MOST_ANSWERS: Final = 100

Decision = Literal["deliver", "park", "fail", "keep", "alone", "place"]
"""What is done with a batch after an attempt. "keep": it is sent again as it is; "alone": the same, in a call
of its own; "place": its user records are placed anew."""


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
    if not code and isinstance(shard_id, str) and shard_id and is_sequence_number(number):
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


class Answers:
    """Decides about each batch once an attempt. ``parked``: batches that are stored, without a verdict."""

    def __init__(self, config: ProducerConfig, live: LiveShardMap) -> None:
        self._config, self._live = config, live
        self._aggregating = min(3.0, config.buffering_seconds / 2) - config.collecting_seconds
        self.parked: list[Batch] = []
        self._probe_at = 0.0  # when to refresh the map because of these
        # A sequence number of each of the last answers.
        self._given: dict[tuple[str | None, str], None] = {}

    def entries(self, answer: object, sent: int) -> list[Entry]:
        """What a PutRecords response says of each of ``sent`` Kinesis records."""
        # PRD-82: "An answer that gives a sequence number of an earlier answer says nothing about what was
        # sent; all MUST be sent again."
        entries = parse_put_records(answer, sent)
        first = next((entry for entry in entries if entry.sequence_number is not None), None)
        if first is None or first.sequence_number is None or sequence_hint(first.sequence_number) is None:
            return entries  # (test doubles give the same short number again and again)
        place = (first.shard_id, first.sequence_number)
        if place in self._given:
            return [Entry("count-mismatch", code="RepeatedAnswer")] * len(entries)
        self._given[place] = None
        if len(self._given) > _MOST_ANSWERS:
            del self._given[next(iter(self._given))]
        return entries

    def decide(
        self, batch: Batch, attempt: Attempt, now: float, *, by_itself: bool = False
    ) -> tuple[Attempt, Decision]:
        """The attempt with its outcome, and what is to be done. ``by_itself``: no other batch was in the
        call."""
        if attempt.outcome == "delivered":
            if batch.shard is not None and attempt.shard_id != batch.shard:
                # PRD-29: "When a record lands on another shard than predicted the shard map MUST be given a
                # report: the time of sending and the predicted shard."
                self._live.invalidate(attempt.started_at, batch.shard, now)
            self._live.stream_seen(now)
            attempt = self._with_verdict(batch, attempt)
        elif attempt.outcome == "invalid" and by_itself and len(batch.records) == 1:
            attempt = attempt.replace(outcome="refused")
        outcome, action = attempt.outcome, ACTIONS[attempt.outcome]
        if action == "succeed":
            return attempt, "deliver"
        if action == "await-map":
            return attempt, "park"
        if action == "fail" or (outcome == "throttled" and self._config.fail_if_throttled):
            return attempt, "fail"
        # PRD-50: "A Kinesis record that was not stored MUST be sent again as it is, unless the map has
        # changed for it or PRT-9 frees it."
        is_free = batch.shard is None and batch.keyless  # (another hash key may be drawn for it)
        if action == "back-off" and self._stays(batch) and not is_free:
            return attempt, "keep"
        if action == "isolate" and self._stays(batch) and not by_itself:
            return attempt, "alone"
        if action == "isolate" and by_itself:
            for pending in batch.records:
                pending.alone = True
        return attempt, "place"

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

    def _stays(self, batch: Batch) -> bool:
        """Whether a batch may be sent again as it is: the map predicts the same shard for it."""
        live = self._live
        if batch.shard is None:  # one user record
            return live.predict(batch.lowest) is None and not live.map_may_come
        return batch.generation == live.known.generation and batch.shard in live.routes

    def retry(self, records: Sequence[Pending], now: float) -> None:
        """Prepare user records for being placed anew."""
        # PRD-25: "A retry MUST wait for others at most half of record_max_buffered_time_ms and 3 s, and never
        # beyond its time to live."
        for pending in records:
            pending.deadline = min(now + self._aggregating, pending.expires_at)
            pending.map_deadline = min(now + self._config.map_wait, pending.expires_at)
            # PRD-31: "A user record that was misplaced twice MUST be sent alone."
            if pending.history and pending.history.misplaced >= MISPLACEMENTS_BEFORE_ALONE:
                pending.alone, pending.wrap = True, pending.must_wrap

    # -- without a verdict

    def park(self, batch: Batch, attempt: Attempt, now: float) -> None:
        """Keep a batch until the map knows the shard that it landed on."""
        # PRD-28: "While the range of the shard an aggregate landed on is not known, there MUST be no
        # verdict: it waits for a newer map, at most half its time to live and 5 s."
        batch.attempt = attempt
        batch.until = min(now + min(5.0, self._config.ttl_seconds / 2), batch.expires_at)
        if not self.parked:
            self._probe_at = now
        self.parked.append(batch)
        if self._live.shard(attempt.shard_id or "") is not None:
            self._live.stream_gone(now)  # the known shard did not give out this number

    def map_changed(self) -> list[tuple[Batch, Attempt]]:
        """After a new shard map: take the parked batches that have a verdict now, with their attempts."""
        attempts = [(batch, self._with_verdict(batch, batch.attempt)) for batch in self.parked]
        self.parked = [batch for batch, attempt in attempts if attempt.outcome == "placement-unknown"]
        return [(batch, attempt) for batch, attempt in attempts if attempt.outcome != "placement-unknown"]

    def take_due(self, now: float) -> list[Batch]:
        """Take the parked batches that no map has decided in time. Their user records are sent again, alone:
        a duplicate is better than a loss."""
        if self.parked and now >= self._probe_at:
            self._probe_at = now + PROBE_INTERVAL
            self._live.refresh(now)
        due = [batch for batch in self.parked if batch.until <= now]
        self.parked = [batch for batch in self.parked if batch.until > now]
        for batch in due:
            for pending in batch.records:
                pending.alone = True
        return due

    def timer(self) -> float | None:
        if not self.parked:
            return None
        return min(self._probe_at, min(batch.until for batch in self.parked))
