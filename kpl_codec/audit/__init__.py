"""Compares the user records that producers put with those that consumers handled: which are missing, and why?

`ledger_reader`, `table_files`     read the rows of ledgers (`kpl_codec.ledger`), and of tables
`audit_inputs`                     makes the rows of both sides of them: put, and handled
`user_record_index`, `judge`       count how often each user record was handled, and compare
`missing_causes`, `audit_run`      look on the stream for causes; run the whole audit

Specification: spec/15-audit.md.
"""

from ..ledger.ledger import Ledger, Writer
from ..ledger.ledger_rows import Row, RowKind

__all__ = ["Ledger", "Row", "RowKind", "Writer"]
