"""For record processors of the KCL in Python, amazon_kclpy's and kcl_rs's: what they handled, in a ledger.

Neither library is imported: their record processors, checkpointers and records have the same members.
Specification: spec/15-audit.md, section 15.4.
"""

from .audited import audited

__all__ = ["audited"]
