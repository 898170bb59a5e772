"""The producer's outstanding user records: counts, bytes, ages; and the results to hand out.

Specification: spec/05-producer.md, PRD-7 and PRD-10.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..compiled import speedups
from .config import ProducerConfig
from .outcomes import NO_HISTORY, Attempt, Delivery, DeliveryError, Outcome
from .pending import Pending, put_of

#: A user record, and what it has ended as.
Ended = tuple[Pending, Delivery | DeliveryError]


def deliveries(records: list[Pending], attempt: Attempt) -> list[Ended]:
    """The user records of a Kinesis record that ``attempt`` has delivered, and their Deliveries."""
    shard_id, sequence_number = attempt.shard_id, attempt.sequence_number
    assert shard_id is not None
    assert sequence_number is not None
    last = (attempt,)
    if speedups is not None:
        return speedups.deliveries(Delivery, records, shard_id, sequence_number, last)  # type: ignore[no-any-return]
    ended: list[Ended] = []
    for index, pending in enumerate(records):
        history = pending.history or NO_HISTORY
        attempts = (*history.attempts, attempt) if history.attempts else last
        delivery = Delivery(shard_id, sequence_number, index, attempts, history.left_out)
        ended.append((pending, delivery))
    return ended


def undelivered(
    config: ProducerConfig, pending: Pending, outcome: Outcome, code: str | None = None
) -> tuple[Pending, DeliveryError]:
    """A user record that was not delivered, and its error. ``code``: that of the service, if it ended it."""
    # PRD-10: "Every accepted user record MUST end exactly once: as a Delivery, or as a DeliveryError with
    # the reason and all attempts."
    history = pending.history or NO_HISTORY
    error = DeliveryError(
        user_record=put_of(config, pending),
        outcome=outcome,
        code=code or outcome,
        attempts=history.attempts,
        attempts_left_out=history.left_out,
        left_out_may_be_stored=history.may_be_stored,
    )
    return pending, error


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
        self._results: list[Ended] = []

    def has_room(self, size: int) -> bool:
        """Whether a user record of ``size`` bytes would be accepted now."""
        # PRD-7: "At no time MUST more than max_outstanding_records user records, or more than
        # max_outstanding_bytes of data and partition keys, be held."
        return self.outstanding < self._most_records and self.outstanding_bytes + size <= self._most_bytes

    def accept(self, pending: Pending, put_at: float) -> None:
        """Count a user record that was put then, and give it a number."""
        pending.accepted_at = put_at
        self.accepted += 1
        pending.number = self.accepted
        self.outstanding += 1
        self.outstanding_bytes += pending.size
        if self._ages:
            tenth = int(put_at * 10)
            self._put_in[tenth] = self._put_in.get(tenth, 0) + 1

    def end(self, ended: Sequence[Ended]) -> None:
        """User records have come to their end."""
        self.outstanding -= len(ended)
        self.outstanding_bytes -= sum([pending.size for pending, _ in ended])
        if self._ages:
            for pending, _ in ended:
                tenth = int(pending.accepted_at * 10)
                self._put_in[tenth] -= 1
                if not self._put_in[tenth]:
                    del self._put_in[tenth]
        self._results += ended

    def take_results(self) -> list[Ended]:
        """The user records that have ended since the last call."""
        results, self._results = self._results, []
        return results

    @property
    def oldest_put_at(self) -> float | None:
        """When the oldest outstanding user record was put, to a tenth of a second; None without any."""
        return min(self._put_in) / 10 if self._put_in else None
