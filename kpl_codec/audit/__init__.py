"""Was everything that producers put handled? What was not, by name, and why.

`ledger` what producers and consumers note, and where it is kept    `book` reading it    `handled` tables
`cells` their cells    `names`, `judge` the difference of the two sides    `why` causes    `running` all of it
Specification: spec/15-audit.md.
"""

from ..ledger.ledger import Ledger, Writer
from ..ledger.ledger_rows import Row, RowKind

__all__ = ["RowKind", "Ledger", "Row", "Writer"]
