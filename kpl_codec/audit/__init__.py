"""Compares the user records that producers put with those that consumers handled: which are missing, and why?

`files`                              lists the files, and reads each once: members, rows, and what is lost
`ledger_reader`, `parquet_reader`    the two forms that a file may have
`lost_parts`, `writers`              what cannot be read, and which members are not there
`index`, `handled_rows`, `judge`     count how often each user record was handled, and decide
`missing_causes`, `audit_run`        look on the stream for causes; run the whole audit

Specification: spec/15-audit.md.

    >>> import json
    >>> import kpl_codec as kpl
    >>> from kpl_codec.audit import Ledger, Row
    >>> lines: list[str] = []
    >>> ledger = Ledger(lines.append)  # or a folder, or "s3://bucket/ledger"
    >>> frame = kpl.encode([kpl.UserRecord("customer-1", b"one"), kpl.UserRecord("customer-2", b"two")])
    >>> records = [kpl.KinesisRecord("a", frame, "4957", "shardId-000000000000")]
    >>> ledger.handled("orders", kpl.deaggregate(records))
    >>> print([(line["kind"], line.get("user_records")) for line in map(json.loads, lines)])
    [('header', None), ('header', None), ('handled', 2)]

For a producer that is not of this library, by the answers that it got:

    >>> writer = ledger.writer("orders")
    >>> writer.put("shardId-000000000000", "4957", partition_key="a", data=frame)
    >>> shard_id, now = "shardId-000000000000", 1_700_000_000_000
    >>> row = Row("delivered", shard_id, sequence_number="4958", user_records=2, at=now)
    >>> writer.note([row])
    >>> writer.close()
"""

from ..base.lazy import public_names
from ..ledger.ledger import Ledger, Writer
from ..ledger.ledger_rows import Row, RowKind

__all__ = ["Ledger", "Row", "RowKind", "Writer"]
__dir__ = public_names(__name__)
