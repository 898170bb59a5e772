"""What a producer has to note in a ledger (`kpl_codec.ledger`)."""

from __future__ import annotations

from ..ledger import Kind, Row
from .kinesis_record import Outgoing
from .outcomes import MAY_BE_STORED, Attempt


class StoredRows:
    """A row for each attempt that has stored a Kinesis record, or may have."""

    def __init__(self) -> None:
        self._rows: list[tuple[Kind, str, str, int, float, bytes]] = []

    def note(self, outgoing: Outgoing, attempt: Attempt) -> None:
        """An attempt has ended; called before its user records leave it."""
        # AUD-1: "Of each attempt that has stored a Kinesis record, or may have, a producer's ledger MUST have
        # a row: where it is, how many user records it has, and its digest."
        if attempt.outcome not in MAY_BE_STORED:
            return
        number, records = attempt.sequence_number, outgoing.records
        delivered = attempt.outcome == "delivered"
        kind: Kind = "delivered" if delivered else "unanswered" if number is None else "again"
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
