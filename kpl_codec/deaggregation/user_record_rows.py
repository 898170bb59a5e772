"""Makes DeaggregatedRecords from an opened aggregate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, repeat

from ..errors import DecodeError, HashKeyError, MalformedMessage
from ..format import wire
from ..format.hash_keys import effective_hash_key, partition_key_hash
from ..format.message import AggregatedRecord
from ..format.records import KinesisRecord, Tag
from ..shards.placement import AggregateKind, Placement, ShardPlacementChecker
from ..values import each
from . import kcl
from .deaggregated_record import DeaggregatedRecord
from .kcl import KclResult

_NONE, _EMPTY = repeat(None), repeat(())
_each = each(
    DeaggregatedRecord,
    *("partition_key", "data", "explicit_hash_key", "tags", "sub_sequence_number", "placement"),
)


def _row(
    record: KinesisRecord,
    keys_and_data: tuple[str | None, bytes, str | None, tuple[Tag, ...]],
    sub_sequence_number: int,
    aggregated: bool,
    placement: Placement | None,
    defects: tuple[DecodeError, ...] = (),
    fate: KclResult | None = None,
) -> DeaggregatedRecord:
    return DeaggregatedRecord(
        *keys_and_data,
        record.sequence_number,
        sub_sequence_number,
        aggregated,
        record.shard_id,
        record.approximate_arrival_timestamp,
        placement,
        defects,
        fate,
        record_id=record.record_id,
    )


def unopened(
    record: KinesisRecord,
    placement: Placement | None,
    fate: KclResult | None,
    defects: tuple[DecodeError, ...] = (),
    sub_sequence_number: int = 0,
) -> DeaggregatedRecord:
    """The Kinesis record itself as a user record."""
    keys_and_data = record.partition_key, record.data, record.explicit_hash_key, ()
    sub = sub_sequence_number or record.sub_sequence_number or 0
    return _row(record, keys_and_data, sub, False, placement, defects, fate)


def hash_key_or_none(partition_key: str | None, explicit_hash_key: str | None) -> int | None:
    """The effective hash key; None where no key is known, and for keys without one, which the KCL may still
    deliver."""
    if explicit_hash_key is None and partition_key is None:
        return None
    try:
        return effective_hash_key(partition_key or "", explicit_hash_key)
    except HashKeyError:
        return None


def place_sound(
    parsed: AggregatedRecord, checker: ShardPlacementChecker
) -> tuple[AggregateKind | None, list[Placement]]:
    """The kind of a sound aggregate and the placements of its user records; each key is hashed once."""
    used, ehks = parsed.partition_key_indices, parsed.explicit_hash_key_indices
    hash_keys = list(map(partition_key_hash, parsed.partition_key_table))
    if ehks is not None:
        first = len(hash_keys)
        # For every text that a decoder accepts (KEY-3), int gives the same number. The text of an entry that
        # is none (KEY-8) is empty, and not used.
        hash_keys += [int(text or 0) for text in parsed.explicit_hash_key_table]
        used = [pk if ehk < 0 else first + ehk for pk, ehk in zip(used, ehks, strict=True)]
    return checker.check_aggregate(hash_keys, used)


def sound_rows(
    record: KinesisRecord,
    parsed: AggregatedRecord,
    placements: Sequence[Placement] | None,
    fate: KclResult | None,
    *,
    tags: bool,
) -> Iterable[DeaggregatedRecord]:
    """The user records of a sound aggregate. If ``tags`` is False they carry no tags."""
    # DAG-3: "Sub-sequence numbers count the user records of a Kinesis record from 0, in the order of
    # the bytes."
    return _each(
        DeaggregatedRecord,
        parsed.partition_keys(),
        parsed.data,
        parsed.explicit_hash_keys() or _NONE,
        _EMPTY if parsed.tags is None or not tags else parsed.tags,
        count(),
        _NONE if placements is None else placements,
        sequence_number=record.sequence_number,
        aggregated=True,
        shard_id=record.shard_id,
        approximate_arrival_timestamp=record.approximate_arrival_timestamp,
        defects=(),
        kcl=fate,
        schema_version_id=None,
        record_id=record.record_id,
    )


def _place(
    keys: Iterable[tuple[str | None, str | None, bool]], checker: ShardPlacementChecker | None
) -> Iterable[Placement | None]:
    """The placements of a defective aggregate's user records. ``keys``: of each the partition key, the
    explicit hash key, and whether they give a hash key."""
    if checker is None:
        return _NONE
    numbers: dict[tuple[str | None, str | None, bool], int] = {}
    used = [numbers.setdefault(pair, len(numbers)) for pair in keys]
    hash_keys = (hash_key_or_none(pk or "", ehk) if known else None for pk, ehk, known in numbers)
    return checker.check_aggregate(hash_keys, used)[1]


def kcl_rows(
    record: KinesisRecord, delivered: int, checker: ShardPlacementChecker | None
) -> Iterator[DeaggregatedRecord]:
    """What the KCL delivers of a defective aggregate: its first ``delivered`` user records, as Java reads
    them."""
    placements = _place(((pk, ehk, True) for pk, _, ehk in kcl.user_records(record.data, delivered)), checker)
    user_records = zip(kcl.user_records(record.data, delivered), placements, strict=False)
    for sub, ((pk, data, ehk), placement) in enumerate(user_records):
        yield _row(record, (pk, data, ehk, ()), sub, True, placement)


def defective_rows(
    record: KinesisRecord,
    walked: wire.Message,
    outcome: kcl.KclOutcome,
    checker: ShardPlacementChecker | None,
    unreadable: MalformedMessage | None = None,
) -> Iterator[DeaggregatedRecord]:
    """Every user record in the bytes, with its defects and its fate at the KCL. ``unreadable``: why only the
    KCL can read the message; then ``walked`` is as it reads it."""
    data = record.data
    delivered = iter(() if outcome.raw else kcl.user_records(data, outcome.delivered))

    def keys(user_record: wire.WireRecord) -> tuple[str | None, str | None, bool]:
        pk = entry_of(walked.partition_keys, user_record.partition_key_index)
        ehk = entry_of(walked.explicit_hash_keys, user_record.explicit_hash_key_index)
        # An explicit hash key that cannot be read still decides the shard.
        known = ehk is not None or (pk is not None and user_record.explicit_hash_key_index is None)
        return pk, ehk, known

    def defects(user_record: wire.WireRecord) -> Iterator[DecodeError]:
        own = walked.defects_of(user_record)
        if unreadable is not None and not own:
            own = [unreadable.at(record_index=user_record.record_index)]
        for defect in own:
            yield defect.at(sequence_number=record.sequence_number, shard_id=record.shard_id)

    # The bytes are read twice: kept defects would take hundreds of times the memory of their bytes.
    placements = _place(map(keys, walked.records()), checker)
    for user_record, placement in zip(walked.records(), placements, strict=False):
        pk, ehk, _ = keys(user_record)
        index, (begin, stop) = user_record.record_index, user_record.data or (0, 0)
        fate: KclResult = "raw" if outcome.raw else "dropped"
        if not outcome.raw and index < outcome.delivered:
            same = next(delivered, None) == (pk, data[begin:stop], ehk)
            fate = "delivered" if same else "altered"
        keys_and_data = pk, data[begin:stop], ehk, user_record.tags
        yield _row(record, keys_and_data, index, True, placement, tuple(defects(user_record)), fate)


def entry_of(table: Sequence[str | None], index: int | None) -> str | None:
    """That entry of a key table; None: it is no key, or none."""
    return table[index] if index is not None and index < len(table) else None
