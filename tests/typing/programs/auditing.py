"""A consumer with a ledger, and a producer of its own."""

from __future__ import annotations

from collections.abc import Iterable

import kpl_codec as kpl
from kpl_codec.audit import Ledger, Row, RowKind, Writer

ledger = Ledger("ledger/handled")


def handled(records: Iterable[kpl.DeaggregatedRecord]) -> None:
    ledger.handled("orders", list(records))


def put_by_hand(shard_id: str, number: str, data: bytes, *, refused: bool) -> None:
    writer: Writer = Ledger("ledger/produced").writer("orders", "produced")
    writer.put(shard_id, number, partition_key="customer-1", data=data)
    kind: RowKind = "refused" if refused else "delivered"
    writer.note([Row(kind, shard_id, sequence_number=number, user_records=1, at=1_700_000_000_000)])
    writer.close()
