"""Which kind of writer made a Kinesis record, by its outer partition key and by the shape of its aggregate.

A kind is a word of `WRITERS`, and a word of `SHAPES` for each habit that shows: "kpl", "first-key+explicit".
Only habits count that a writer shows in each of its aggregates, whatever the load. So neither the fill nor
the number of user records is looked at. Two writers with the same habits are one kind.
Specification: spec/10-watch.md, WCH-12.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from ..deaggregation.records import DeaggregatedRecord
from ..errors import DecodeError
from ..format.codec import is_canonical
from ..format.records import KinesisRecord

#: What the outer key tells.
WRITERS: Final[dict[str, str]] = {
    "plain": "a writer that does not aggregate",
    "kpl": 'an aggregator with the outer key "a", as the KPL and kpl_codec use',
    "first-key": "an aggregator that puts under its first user record's key, as aws_kinesis_agg does",
    "other-key": "an aggregator that puts under a key of its own",
    "unknown": "an unknown writer",
}
#: What the aggregate tells. The KPL and aws_kinesis_agg show none of these unless they are asked to.
SHAPES: Final[dict[str, str]] = {
    "explicit": "every user record has an explicit hash key",
    "tags": "user records have tags",
    "own-bytes": "the KPL would write the same user records as other bytes",
}
_FIXED_OUTER_KEY = "a"
_TAGS = attrgetter("tags")


def writer_of(record: KinesisRecord, rows: Sequence[DeaggregatedRecord]) -> str:
    """The kind of writer of a Kinesis record with these user records."""
    if not rows or (rows[0].defects and not rows[0].aggregated):
        return "unknown"
    if not rows[0].aggregated:
        return "plain"
    if record.partition_key is None:
        return "unknown"
    first = next((row.partition_key for row in rows if row.sub_sequence_number == 0), None)
    name = "first-key" if record.partition_key == first else "other-key"
    if record.partition_key == _FIXED_OUTER_KEY:
        name = "kpl"
    return "+".join((name, *_shape(record.data, rows)))


def _shape(data: bytes, rows: Sequence[DeaggregatedRecord]) -> Iterator[str]:
    try:
        canonical = is_canonical(data)
    except DecodeError:  # what it shows may be the damage
        return
    if all(row.explicit_hash_key is not None for row in rows):
        yield "explicit"
    if any(map(_TAGS, rows)):
        yield "tags"
    if not canonical:
        yield "own-bytes"


def described(writer: str) -> str | None:
    """``writer`` in words; None where nothing is known of it."""
    name, *shape = writer.split("+")
    if name == "unknown" or name not in WRITERS:
        return None
    habits = "; ".join(SHAPES[habit] for habit in shape)
    return f"{WRITERS[name]} ({habits})" if habits else WRITERS[name]
