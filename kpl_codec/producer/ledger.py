"""The producer's outstanding user records: counts, bytes, ages; and the results to hand out.

Specification: spec/05-producer.md, PRD-7 and PRD-10.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..compiled import speedups
from .config import ProducerConfig
from .outcomes import NO_HISTORY, Attempt, Delivery, DeliveryError, Outcome
from .pending import Pending, ProducerFull, put_of


def deliver(records: list[Pending], attempt: Attempt) -> None:
    """``attempt`` has delivered the Kinesis record of these user records: give them their results."""
    shard_id, sequence_number = attempt.shard_id, attempt.sequence_number
    assert shard_id is not None
    assert sequence_number is not None
    last = (attempt,)
    if speedups is not None:
        speedups.deliver(Delivery, records, shard_id, sequence_number, last)
        return
    for index, pending in enumerate(records):
        history = pending.history or NO_HISTORY
        attempts = (*history.attempts, attempt) if history.attempts else last
        pending.result = Delivery(shard_id, sequence_number, index, attempts, history.left_out)


def undelivered(
    config: ProducerConfig, pending: Pending, outcome: Outcome, code: str | None = None
) -> Pending:
    """A user record that was not delivered, with its error. ``code``: that of the service, if it ended it."""
    # PRD-10: "Every accepted user record MUST end exactly once: as a Delivery, or as a DeliveryError with
    # the reason and all attempts."
    history = pending.history or NO_HISTORY
    pending.result = DeliveryError(
        user_record=put_of(config, pending),
        outcome=outcome,
        code=code or outcome,
        attempts=history.attempts,
        attempts_left_out=history.left_out,
        left_out_may_be_stored=history.may_be_stored,
    )
    return pending


class Ledger:
    """``outstanding``: accepted user records that have not ended. ``accepted``: all so far.

    ``ages``: keep what `oldest_put_at` needs.
    """

    def __init__(self, config: ProducerConfig, *, ages: bool) -> None:
        self.accepted = 0
        self.outstanding = 0
        self.outstanding_bytes = 0
        self._most_records = config.max_outstanding_records
        self._most_bytes = config.max_outstanding_bytes
        self._ages = ages
        self._put_in: dict[int, int] = {}  # how many are outstanding, by the tenth of a second of their put
        self._results: list[Pending] = []

    def accept(self, pending: Pending, put_at: float, *, dropped: bool = False) -> None:
        """Count a user record that was put then, and give it a number. Raises ProducerFull, but for one that
        is dropped."""
        records, size = self.outstanding, self.outstanding_bytes + pending.size
        # PRD-7: "At no time MUST more than max_outstanding_records user records, or more than
        # max_outstanding_bytes of data and partition keys, be held."
        if (records >= self._most_records or size > self._most_bytes) and not dropped:
            raise ProducerFull(records=records, bytes=self.outstanding_bytes)
        pending.accepted_at = put_at
        pending.number = self.accepted = self.accepted + 1
        self.outstanding, self.outstanding_bytes = records + 1, size
        if self._ages:
            tenth = int(put_at * 10)
            self._put_in[tenth] = self._put_in.get(tenth, 0) + 1

    def end(self, ended: Sequence[Pending]) -> None:
        """User records have come to their end."""
        self.outstanding -= len(ended)
        self.outstanding_bytes -= sum([pending.size for pending in ended])
        if self._ages:
            for pending in ended:
                tenth = int(pending.accepted_at * 10)
                self._put_in[tenth] -= 1
                if not self._put_in[tenth]:
                    del self._put_in[tenth]
        self._results += ended

    def take_results(self) -> list[Pending]:
        """The user records that have ended since the last call."""
        results, self._results = self._results, []
        return results

    @property
    def oldest_put_at(self) -> float | None:
        """When the oldest outstanding user record was put, to a tenth of a second; None without any."""
        return min(self._put_in) / 10 if self._put_in else None
