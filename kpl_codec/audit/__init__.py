"""Compares what producers put with what consumers handled: what is missing, and why?

`ledger_reader`, `audit_inputs`    read ledgers (`kpl_codec.ledger`) and tables
`user_record_index`, `judge`       count how often each user record was handled, and compare
`missing_causes`, `audit_run`      look at the stream for causes; put all of it together

Specification: spec/15-audit.md.
"""

from ..ledger.ledger import Ledger, Writer
from ..ledger.ledger_rows import Row, RowKind

__all__ = ["Ledger", "Row", "RowKind", "Writer"]
