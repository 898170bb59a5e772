"""The fields of findings that the page shows, by kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..findings import Finding
from .model import Report


class Column(NamedTuple):
    """A column of the findings' tables: its heading, its class, and the field of `Finding` in it."""

    name: str
    css: str
    field: str


COLUMNS = (
    Column("Shard", "id", "shard_id"),
    Column("Sequence number", "", "sequence_number"),
    Column("Captured in", "file", "file"),
    Column("What", "wide", "detail"),
    Column("Belongs to", "id", "expected_shard_id"),
    Column("Aggregates", "number", "aggregates"),
    Column("User records", "number", "user_records"),
    Column("Cause", "id", "cause"),
    Column("At byte", "number", "offset"),
    Column("User record", "number", "record_index"),
    Column("KCL", "", "kcl"),
    Column("KCL loses", "number", "dropped"),
    Column("Arrived (UTC)", "", "approximate_arrival_timestamp"),
    Column("Rule", "id", "requirement"),
)


def columns_of(findings: Sequence[Finding]) -> list[Column]:
    """The columns that are not empty for all of ``findings``."""
    return [
        column
        for column in COLUMNS
        if any(getattr(finding, column.field) not in (None, 0) for finding in findings)
    ]


def of_kind(report: Report, kind: str) -> list[Finding]:
    """The findings of one kind that the page shows."""
    return [finding for finding in report.findings if finding.kind == kind]


def shards_of(report: Report) -> list[str]:
    """The shards that the shown findings name."""
    return sorted({finding.shard_id for finding in report.findings if finding.shard_id})
