"""What the KCL does with an aggregated record: which user records it delivers, which it drops, and why.

The KCL (3.5.1, observed) reads with Java's protobuf, which accepts more than this library. It delivers the
user records before a broken one. If one hash key is outside the range of the shard, it drops the whole
aggregate without a log line. Specification: spec/03-deaggregation.md, KCL.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Literal

from ..base.values import Value
from ..errors import MalformedMessage
from ..format import wire
from ..format.codec import is_aggregated
from ..format.hash_keys import ALL_HASH_KEYS, HashKeyRange, java_integer, partition_key_hash
from ..shards.placement import AggregateKind, PlacementChecker, ShardPlacementChecker

#: What a KCL consumer gets of a user record: delivered, dropped, altered (delivered with another key or other
#: data than the bytes have), raw (the whole frame is delivered unopened), or unknown (it was opened before,
#: and user records of its aggregated record are missing).
KclResult = Literal["delivered", "dropped", "altered", "raw", "unknown"]
#: Why user records are dropped: the rules of the KCL.
DropReason = Literal["out-of-range", "index-out-of-table", "hash-key", "no-user-records"]


class KclOutcome(Value):
    """What the KCL does with one Kinesis record: ``raw``: delivers it unopened, as a plain record; else the
    first ``delivered`` of ``total`` user records. It drops the other ones for ``reason``, because of user
    record ``record_index``."""

    raw: bool
    delivered: int
    total: int
    reason: DropReason | None = None
    record_index: int | None = None


RAW: KclOutcome = KclOutcome(True, 1, 1)


def result_of_sound(kind: AggregateKind | None) -> KclResult:
    """What a KCL consumer gets of each user record of a sound aggregate; ``kind``: None if no hash key range
    is known."""
    # KCL-4: "At a user record whose hash key is outside the shard's range, both ends inclusive, the
    # whole aggregate is dropped; the user records after it are not looked at."
    return "dropped" if kind in ("mixed", "foreign") else "delivered"


def outcome(data: bytes, hash_key_range: HashKeyRange | None = None) -> KclOutcome:
    """What the KCL does with ``data`` from a shard with this range (None: all hash keys)."""
    # KCL-1: "Data that is no frame, whose digest is wrong, or whose message Java's protobuf refuses, is
    # delivered unopened."
    if not is_aggregated(data):
        return RAW
    try:
        message = wire.Message(data, strict=False)
    except MalformedMessage:
        return RAW
    if any(map(_unreadable, message.records())):
        return RAW
    total = message.record_count
    # KCL-2: "An aggregate without user records delivers nothing."
    if not total:
        return KclOutcome(False, 0, 0, "no-user-records")
    # KCL-5: "Without a range of its own the range is 0 to 2^128 - 1."
    checker = PlacementChecker(None, hash_key_range or ALL_HASH_KEYS).on(None)
    refusals: dict[tuple[int | None, int | None], DropReason | None] = {}
    for record, pk, ehk in _with_keys(message):
        pair = record.partition_key_index, record.explicit_hash_key_index
        if pair not in refusals:  # each key is hashed once: many user records may have it
            refusals[pair] = _refusal(pk, ehk, checker)
        reason = refusals[pair]
        if reason is not None:
            delivered = 0 if reason == "out-of-range" else record.record_index
            return KclOutcome(False, delivered, total, reason, record.record_index)
    return KclOutcome(False, total, total)


def _refusal(pk: str | None, ehk: str | None, checker: ShardPlacementChecker) -> DropReason | None:
    """Why the KCL refuses a user record with these keys."""
    # KCL-3: "At a user record whose index is outside its table, or whose explicit hash key is no
    # number, the user records before it are delivered and the rest dropped. Indices are cast to 32
    # bits."
    if pk is None:
        return "index-out-of-table"
    hash_key = java_integer(ehk) if ehk is not None else partition_key_hash(pk)
    if hash_key is None:
        return "hash-key"
    return None if checker.in_range(hash_key) else "out-of-range"


def user_records(data: bytes, count: int) -> Iterator[tuple[str, bytes, str | None]]:
    """The first ``count`` user records as the KCL delivers them: partition key, data, explicit hash key."""
    # KCL-7: "User records are numbered from 0 within their Kinesis record; their tags are discarded."
    for record, pk, ehk in islice(_with_keys(wire.Message(data, strict=False)), count):
        yield pk or "", record.data or b"", ehk


def _unreadable(record: wire.WireRecord) -> bool:
    """Whether Java's protobuf misses a required field. (It skips a field with a wrong wire type as
    unknown.)"""
    return (
        record.partition_key_index is None
        or record.data is None
        or any(defect.code == "missing-field" for defect in record.defects)
    )


def _with_keys(message: wire.Message) -> Iterator[tuple[wire.WireRecord, str | None, str | None]]:
    """Every user record with its keys as Java looks them up; no partition key: Java throws."""
    pks, ehks = message.partition_keys, message.explicit_hash_keys
    for record in message.records():
        # Java reads indices from 2^31 on as negative, so they are outside the table.
        pk, ehk = (
            None if index is None else index & 0xFFFFFFFF
            for index in (record.partition_key_index, record.explicit_hash_key_index)
        )
        in_tables = (pk is None or pk < len(pks)) and (ehk is None or ehk < len(ehks))
        pk_text = pks[pk] if in_tables and pk is not None else None
        yield record, pk_text, ehks[ehk] if in_tables and ehk is not None else None
