"""Compares what producers put with what consumers handled: what is missing, and why?

Modules:

`ledger_reader`               reads ledgers (`kpl_codec.ledger`)
`audit_inputs`                read tables, and find out which files are ledgers
`user_record_index`, `judge`       count how often each user record was handled, and compare
`missing_causes`, `audit_run`      look at the stream for causes; put all of it together
Specification: spec/15-audit.md.
"""

from ..ledger.ledger import Ledger, Writer
from ..ledger.ledger_rows import Row, RowKind

__all__ = ["Ledger", "Row", "RowKind", "Writer"]
