"""Which kind of writer made a Kinesis record: a word of `WRITERS`, by the outer partition key.

Two writers that choose it in the same way are one kind. Specification: spec/10-watch.md, WCH-12.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..deaggregation.records import DeaggregatedRecord
from ..format.records import KinesisRecord

WRITERS: Final[dict[str, str]] = {
    "plain": "a writer that does not aggregate",
    "kpl": 'an aggregator with the outer key "a", as the KPL and kpl_codec use',
    "first-key": "an aggregator that puts under its first user record's key, as aws_kinesis_agg does",
    "other-key": "an aggregator that puts under a key of its own",
    "unknown": "an unknown writer",
}
_FIXED_OUTER_KEY = "a"


def writer_of(record: KinesisRecord, rows: Sequence[DeaggregatedRecord]) -> str:
    """The kind of writer of a Kinesis record with these user records."""
    if not rows or (rows[0].defects and not rows[0].aggregated):
        return "unknown"
    if not rows[0].aggregated:
        return "plain"
    if record.partition_key is None:
        return "unknown"
    if record.partition_key == _FIXED_OUTER_KEY:
        return "kpl"
    first = next((row.partition_key for row in rows if row.sub_sequence_number == 0), None)
    return "first-key" if record.partition_key == first else "other-key"
