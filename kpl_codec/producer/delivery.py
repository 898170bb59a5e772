"""How user records end: as a Delivery, or as a DeliveryError; and what a ledger notes of it."""

from __future__ import annotations

from ..compiled import prefer_compiled
from ..format.compression import decompress
from ..ledger.ledger_rows import Row, RowKind
from .config import ProducerConfig
from .outcomes import MAY_BE_STORED, NO_HISTORY, Attempt, Delivery, DeliveryError, Outcome, Put
from .pending import KEYLESS_PARTITION_KEY, Pending
from .record_builder import KinesisRecordBuilder


def deliver(records: list[Pending], attempt: Attempt) -> None:
    """``attempt`` has delivered the Kinesis record of these user records: give them their results."""
    shard_id, sequence_number = attempt.shard_id, attempt.sequence_number
    assert shard_id is not None
    assert sequence_number is not None
    _deliver(Delivery, records, shard_id, sequence_number, (attempt,))


def deliver_in_python(
    kind: type[Delivery], records: list[Pending], shard_id: str, number: str, last: tuple[Attempt]
) -> None:
    """`deliver` without the compiled extension."""
    for index, pending in enumerate(records):
        history = pending.history or NO_HISTORY
        attempts = (*history.attempts, *last) if history.attempts else last
        pending.result = kind(shard_id, number, index, attempts, history.left_out)


_deliver = prefer_compiled("deliver", deliver_in_python)


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


class StoredRows:
    """A row for each attempt that has stored a Kinesis record, or may have."""

    def __init__(self) -> None:
        self._rows: list[tuple[RowKind, str, str, int, float, bytes]] = []

    def note(self, outgoing: KinesisRecordBuilder, attempt: Attempt) -> None:
        """An attempt has ended; called before its user records leave it."""
        # AUD-1: "Of each attempt that has stored a Kinesis record, or may have, a producer's ledger MUST have
        # a row: where it is, how many user records it has, and its digest."
        if attempt.outcome not in MAY_BE_STORED:
            return
        number, records = attempt.sequence_number, outgoing.records
        delivered = attempt.outcome == "delivered"
        kind: RowKind = "delivered" if delivered else "unanswered" if number is None else "again"
        shard_id = attempt.shard_id or attempt.predicted_shard or ""
        self._rows.append(
            (kind, shard_id, number or "", len(records), records[0].accepted_at, outgoing.digest)
        )

    def take(self, offset: float) -> list[Row]:
        """Those since the last call. ``offset``: seconds from the producer's clock to 1970's."""
        rows, self._rows = self._rows, []
        return [
            Row(kind, shard_id, number, count, int((at + offset) * 1000), digest)
            for kind, shard_id, number, count, at, digest in rows
        ]
