"""User record, tag, Kinesis record.

They are named tuples: immutable, cheap to make, equal when their contents are equal. ``data`` is always
``bytes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple


class Tag(NamedTuple):
    """A tag of a user record. The KPL and the KCL define tags but never read or write them."""

    key: str
    value: str | None = None


class UserRecord(NamedTuple):
    """What an application puts: a partition key (1 to 256 characters), data, rarely an explicit hash key or
    tags.

    ``explicit_hash_key`` is the text in the bytes; this library writes it as canonical decimal.
    """

    partition_key: str
    data: bytes
    explicit_hash_key: str | None = None
    tags: tuple[Tag, ...] = ()


class KinesisRecord(NamedTuple):
    """One record of a stream as GetRecords gives it, aggregated or plain.

    ``partition_key`` is None where the service gives none (streams that distribute records AUTO).
    ``explicit_hash_key`` is known to producers only; no read call returns it.
    ``sub_sequence_number`` is known where the record was deaggregated before (by the KCL, by Firehose);
    if it is above 0 this is a user record, whatever its data looks like.
    ``record_id`` is what a queue gives: it names no shard and no sequence number.
    """

    partition_key: str | None
    data: bytes
    sequence_number: str | None = None
    shard_id: str | None = None
    approximate_arrival_timestamp: datetime | None = None
    explicit_hash_key: str | None = None
    sub_sequence_number: int | None = None
    record_id: str | None = None


def answered_record(record: Mapping[str, Any], shard_id: str) -> KinesisRecord:
    """A record of boto3's own GetRecords answer, which does not name its shard. It is not checked again."""
    return KinesisRecord(
        record.get("PartitionKey"),
        bytes(record["Data"]),
        record["SequenceNumber"],
        shard_id,
        record.get("ApproximateArrivalTimestamp"),
    )
