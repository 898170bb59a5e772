"""Was everything that producers put handled? What was not, by name, and why.

`ledger_reader`           reads ledgers (`kpl_codec.ledger`)
`audit_inputs`, `table_cells`  tables of what was handled
`user_record_index`, `judge`   the difference of the two sides
`missing_causes`          why something is missing    `audit_run`   all of it
Specification: spec/15-audit.md.
"""

from ..ledger.ledger import Ledger, Writer
from ..ledger.ledger_rows import Row, RowKind

__all__ = ["Ledger", "Row", "RowKind", "Writer"]
