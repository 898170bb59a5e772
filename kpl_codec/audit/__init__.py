"""Compares what producers put with what consumers handled: what is missing, and why?

`ledger_reader`, `table_files`     read the rows of ledgers (`kpl_codec.ledger`), and of tables
`audit_inputs`                     makes of both what was put, and what was handled
`user_record_index`, `judge`       count how often each user record was handled, and compare
`missing_causes`, `audit_run`      look at the stream for causes; put all of it together

Specification: spec/15-audit.md.
"""

from ..ledger.ledger import Ledger, Writer
from ..ledger.ledger_rows import Row, RowKind

__all__ = ["Ledger", "Row", "RowKind", "Writer"]
