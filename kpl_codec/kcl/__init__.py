"""Writes a ledger of what record processors of the KCL in Python have handled, for amazon_kclpy and kcl_rs.

This package imports neither library: their record processors, checkpointers and records have the same
members.
Specification: spec/15-audit.md, section 15.4.
"""

from .audited import audited

__all__ = ["audited"]
