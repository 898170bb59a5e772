"""Makes DeaggregatedRecords from an opened aggregate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, repeat
from typing import TypeVar

from ..compiled import speedups
from ..errors import DecodeError, HashKeyError, MalformedMessage
from ..format import wire
from ..format.hash_keys import effective_hash_key, hash_key_from_bytes, partition_key_hashes
from ..format.message import AggregatedRecord
from ..format.records import KinesisRecord
from ..shards.placement import AggregateKind, PlacedAggregate, Placement, ShardJudge, aggregate_kind
from . import kcl
from .kcl import Fate
from .records import DeaggregatedRecord

# Values that all user records of an aggregate share, repeated endlessly.
_T = TypeVar("_T")
_NEW, _TYPE = tuple.__new__, repeat(DeaggregatedRecord)
_NONE, _EMPTY, _TRUE = repeat(None), repeat(()), repeat(True)


def template(record: KinesisRecord, fate: Fate | None) -> tuple[object, ...]:
    """A DeaggregatedRecord of ``record`` without keys, data, number and placement."""
    return (
        *(None, b"", None, (), record.sequence_number, 0, True),
        *(record.shard_id, record.approximate_arrival_timestamp, None, (), fate),
    )


def unopened(
    record: KinesisRecord,
    placement: Placement | None,
    fate: Fate | None,
    defects: tuple[DecodeError, ...] = (),
    sub_sequence_number: int = 0,
) -> DeaggregatedRecord:
    """The Kinesis record itself as a user record."""
    pk, data, sequence_number, shard_id, arrival, ehk, known = record
    sub = sub_sequence_number or known or 0
    row = pk, data, ehk, (), sequence_number, sub, False, shard_id, arrival, placement, defects, fate
    return _NEW(DeaggregatedRecord, row)


def hash_key_or_none(partition_key: str | None, explicit_hash_key: str | None) -> int | None:
    """The effective hash key; None where no key is known, and for keys without one, which the KCL may still
    deliver."""
    if explicit_hash_key is None and partition_key is None:
        return None
    try:
        return effective_hash_key(partition_key or "", explicit_hash_key)
    except HashKeyError:
        return None


def place_sound(parsed: AggregatedRecord, judge: ShardJudge) -> PlacedAggregate:
    """A sound aggregate, judged; each key is hashed once."""
    _, explicit_hash_keys, pks, ehks, _, _ = parsed.columns()
    used = pks
    if ehks is None:
        hash_keys = _partition_key_hashes(parsed, judge)
    else:
        # For every text that a decoder accepts (KEY-3), int gives the same number. The text of an entry that
        # is none (KEY-8) is empty, and not used.
        hash_keys = [int(text or 0) for text in explicit_hash_keys]
        used = ehks
        if min(ehks) < 0:
            first = len(hash_keys)
            hash_keys += _partition_key_hashes(parsed, judge)
            used = [first + pk if ehk < 0 else ehk for pk, ehk in zip(pks, ehks, strict=True)]
    return judge.place_aggregate(hash_keys, used)


def _partition_key_hashes(parsed: AggregatedRecord, judge: ShardJudge) -> list[int]:
    keys = parsed.partition_key_table
    if speedups is not None:
        return list(map(hash_key_from_bytes, speedups.md5_many(list(map(str.encode, keys)))))
    # Keys that user records of one aggregate share are likely to be in others, too.
    if len(parsed) < 2 * len(keys):
        return partition_key_hashes(keys)
    return list(map(judge.hashes.__getitem__, keys))


def sound_rows(
    record: KinesisRecord,
    parsed: AggregatedRecord,
    placed: PlacedAggregate | None,
    fate: Fate | None,
    *,
    tags: bool,
) -> Iterable[DeaggregatedRecord]:
    """The user records of a sound aggregate. If ``tags`` is False they carry no tags."""
    placements = None if placed is None else list(map(placed.placements().__getitem__, placed.used))
    # DAG-3: "Sub-sequence numbers count the user records of a Kinesis record from 0, in the order of
    # the bytes."
    *columns, data, found_tags = parsed.columns()
    if not tags:
        found_tags = None
    if speedups is not None and type(data) is list:
        columns += data, found_tags, placements
        return speedups.rows(DeaggregatedRecord, template(record, fate), *columns)  # type: ignore[no-any-return]
    rows = zip(
        parsed.partition_keys(),
        data,
        parsed.explicit_hash_keys() or _NONE,
        _EMPTY if found_tags is None else found_tags,
        repeat(record.sequence_number),
        count(),
        _TRUE,
        repeat(record.shard_id),
        repeat(record.approximate_arrival_timestamp),
        _NONE if placements is None else placements,
        _EMPTY,
        _NONE if fate is None else repeat(fate),
    )
    return map(_NEW, _TYPE, rows)


def kcl_rows(record: KinesisRecord, delivered: int, judge: ShardJudge | None) -> Iterator[DeaggregatedRecord]:
    """What the KCL delivers of a defective aggregate: its first ``delivered`` user records, as Java reads
    them."""
    judged: dict[tuple[str, str | None], Placement] = {}

    def placement(pk: str, ehk: str | None) -> Placement | None:
        if judge is None:
            return None
        found = judged.get((pk, ehk))
        if found is None:
            found = judged[pk, ehk] = judge.place(hash_key_or_none(pk, ehk), certain=True)
        return found

    kind = _kind(placement(pk, ehk) for pk, _, ehk in _if(judge, kcl.user_records(record.data, delivered)))
    for sub, (pk, data, ehk) in enumerate(kcl.user_records(record.data, delivered)):
        row = (
            *(pk, data, ehk, (), record.sequence_number, sub, True),
            *(record.shard_id, record.approximate_arrival_timestamp, _of(placement(pk, ehk), kind), (), None),
        )
        yield _NEW(DeaggregatedRecord, row)


def defective_rows(
    record: KinesisRecord,
    walked: wire.Message,
    outcome: kcl.Outcome,
    judge: ShardJudge | None,
    unreadable: MalformedMessage | None = None,
) -> Iterator[DeaggregatedRecord]:
    """Every user record in the bytes, with its defects and its fate at the KCL.

    ``unreadable``: why only the KCL can read the message; then ``walked`` is as it reads it.
    """
    data = record.data
    seen_by_kcl = iter(() if outcome.raw else kcl.user_records(data, outcome.delivered))
    judged: dict[tuple[int | None, int | None], Placement] = {}

    def keys(found: wire.WireRecord) -> tuple[str | None, str | None]:
        return (
            _entry(walked.partition_keys, found.partition_key_index),
            _entry(walked.explicit_hash_keys, found.explicit_hash_key_index),
        )

    def placement(found: wire.WireRecord) -> Placement | None:
        if judge is None:
            return None
        pair = found.partition_key_index, found.explicit_hash_key_index
        if pair not in judged:
            pk, ehk = keys(found)
            # An explicit hash key that cannot be read still decides the shard.
            known = ehk is not None or (pk is not None and found.explicit_hash_key_index is None)
            judged[pair] = judge.place(hash_key_or_none(pk or "", ehk) if known else None, certain=True)
        return judged[pair]

    def defects(found: wire.WireRecord) -> Iterator[DecodeError]:
        own = walked.defects_of(found)
        if unreadable is not None and not own:
            own = [MalformedMessage(**{**unreadable.fields, "record_index": found.record_index})]
        for defect in own:
            yield defect.at(sequence_number=record.sequence_number, shard_id=record.shard_id)

    # The bytes are read twice: kept defects would take hundreds of times the memory of their bytes.
    kind = _kind(placement(found) for found in _if(judge, walked.records()))
    for found in walked.records():
        pk, ehk = keys(found)
        begin, stop = found.data or (0, 0)
        fate: Fate = "raw" if outcome.raw else "dropped"
        if not outcome.raw and found.record_index < outcome.delivered:
            same = next(seen_by_kcl, None) == (pk, data[begin:stop], ehk) and unreadable is None
            fate = "delivered" if same else "altered"
        yield DeaggregatedRecord(
            pk,
            data[begin:stop],
            ehk,
            found.tags,
            record.sequence_number,
            found.record_index,
            True,
            record.shard_id,
            record.approximate_arrival_timestamp,
            _of(placement(found), kind),
            tuple(defects(found)),
            fate,
        )


def _if(judge: ShardJudge | None, found: Iterable[_T]) -> Iterable[_T]:
    return () if judge is None else found


def _kind(placements: Iterable[Placement | None]) -> AggregateKind | None:
    inside = outside = 0
    for placement in placements:
        if placement is not None and placement.in_range is not None:
            inside += placement.in_range
            outside += not placement.in_range
    return aggregate_kind(inside, outside)


def _of(placement: Placement | None, kind: AggregateKind | None) -> Placement | None:
    return placement if placement is None else placement._replace(aggregate=kind)


def _entry(table: Sequence[str | None], index: int | None) -> str | None:
    return table[index] if index is not None and index < len(table) else None
