"""The nouns: user record, tag, Kinesis record, deaggregated record.

They are named tuples: immutable, cheap to make by the million, equal when their contents are.
``data`` is always ``bytes``.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..errors import DecodeError
    from ..shards.placement import Placement


class Tag(NamedTuple):
    """A tag of a user record. The KPL and the KCL define tags but never read or write them."""

    key: str
    value: str | None = None


class UserRecord(NamedTuple):
    """What an application puts: a partition key (1 to 256 characters), data, and rarely more.

    ``explicit_hash_key`` is the text on the wire, canonical decimal when we write it.
    """

    partition_key: str
    data: bytes
    explicit_hash_key: str | None = None
    tags: tuple[Tag, ...] = ()


class KinesisRecord(NamedTuple):
    """What a stream holds: one record as GetRecords gives it, aggregated or plain.

    ``partition_key`` is None where the service gives none (streams that distribute records AUTO).
    ``explicit_hash_key`` is known to producers only; no read call returns it.
    ``sub_sequence_number`` is known where someone deaggregated before us (the KCL, Firehose); above 0
    it says that this is a user record, whatever its data looks like.
    """

    partition_key: str | None
    data: bytes
    sequence_number: str | None = None
    shard_id: str | None = None
    approximate_arrival_timestamp: datetime | None = None
    explicit_hash_key: str | None = None
    sub_sequence_number: int | None = None


class DeaggregatedRecord(NamedTuple):
    """One user record out of a Kinesis record, with everything known about it.

    ``sub_sequence_number`` counts from 0 within its Kinesis record. ``aggregated`` is False for a
    plain record, which is its own only user record. ``defects`` is empty for a sound one; under the
    ``report`` policy it holds what is wrong, and ``partition_key`` is None where it cannot be known.
    ``placement`` is set when a shard map was given, ``kcl`` says what a KCL consumer gets:
    "delivered", "dropped", "altered" (delivered under another key) or "raw" (the frame, unopened).
    """

    partition_key: str | None
    data: bytes
    explicit_hash_key: str | None
    tags: tuple[Tag, ...]
    sequence_number: str | None
    sub_sequence_number: int
    aggregated: bool
    shard_id: str | None
    approximate_arrival_timestamp: datetime | None
    placement: Placement | None = None
    defects: tuple[DecodeError, ...] = ()
    kcl: str | None = None
