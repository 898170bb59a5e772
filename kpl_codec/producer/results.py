"""How user records end: as a Delivery, or as a DeliveryError."""

from __future__ import annotations

from ..compiled import speedups
from ..format.compression import decompress
from .config import ProducerConfig
from .outcomes import NO_HISTORY, Attempt, Delivery, DeliveryError, Outcome, Put
from .pending import KEYLESS_PARTITION_KEY, Pending


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
    # PRD-63: "A DeliveryError MUST hold the user record as it was put."
    key, data, explicit_hash_key, tags = pending.record
    keyless = pending.keyless and key == KEYLESS_PARTITION_KEY
    if config.compression != "none":
        data = decompress(data, 2**62)  # as large as the caller's was
    # PRD-10: "Every accepted user record MUST end exactly once: as a Delivery, or as a DeliveryError with
    # the reason and all attempts."
    history = pending.history or NO_HISTORY
    pending.result = DeliveryError(
        user_record=Put(
            None if keyless else key, data, explicit_hash_key if pending.own_hash_key else None, tags
        ),
        outcome=outcome,
        code=code or outcome,
        attempts=history.attempts,
        attempts_left_out=history.left_out,
        left_out_may_be_stored=history.may_be_stored,
    )
    return pending
