"""Which kind of writer made a Kinesis record: a word of `WRITERS`, by its fingerprint or its outer key.

Two writers that cannot be told apart are one kind. Specification: spec/10-watch.md, WCH-12.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..deaggregation.fingerprints import SIGNS, Sign
from ..deaggregation.records import DeaggregatedRecord
from ..format.records import KinesisRecord

_FIXED_OUTER_KEY = "a"
#: Writers that their sign makes at least likely. The KPL is known by its outer key.
_BY_SIGN = {
    sign.name: f"{' or '.join(sign.writers)} ({sign.certainty}: {sign.said})"
    for sign in SIGNS
    if sign.certainty != "unknown" and sign.name != "outer-a"
}
WRITERS: Final[dict[str, str]] = {
    "plain": "a writer that does not aggregate",
    "kpl": 'an aggregator with the outer key "a", as the KPL and kpl_codec use',
    "first-key": "an aggregator that puts under its first user record's key, as aws_kinesis_agg does",
    "other-key": "an aggregator that puts under a key of its own",
    "unknown": "an unknown writer",
    **_BY_SIGN,
}


def writer_of(record: KinesisRecord, rows: Sequence[DeaggregatedRecord], sign: Sign | None) -> str:
    """The kind of writer of a Kinesis record with these user records, and this sign of its writer."""
    opened = bool(rows) and rows[0].aggregated
    if rows and not opened and not rows[0].defects:
        return "plain"
    if sign is not None and sign.name in _BY_SIGN:
        return sign.name
    if not opened or record.partition_key is None:
        return "unknown"
    if record.partition_key == _FIXED_OUTER_KEY:
        return "kpl"
    first = next((row.partition_key for row in rows if row.sub_sequence_number == 0), None)
    return "first-key" if record.partition_key == first else "other-key"
