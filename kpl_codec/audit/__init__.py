"""Compares the user records that producers put with those that consumers handled: which are missing, and why?

`sources`                       reads files to their last byte: lines, and gaps
`ledger_lines`, `tables`        find the rows in them; `inputs` knows which form a file has
`index`, `judge`                count how often each user record was handled, and decide
`missing_causes`, `audit_run`   look on the stream for causes; run the whole audit

Specification: spec/15-audit.md.
"""

from ..base.lazy import public_names
from ..ledger.ledger import Ledger, Writer
from ..ledger.ledger_rows import Row, RowKind

__all__ = ["Ledger", "Row", "RowKind", "Writer"]
__dir__ = public_names(__name__)
