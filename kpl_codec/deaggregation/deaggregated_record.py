"""The results of deaggregation: user records (and how they are made without compiled code), drops and
counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import count, repeat
from types import SimpleNamespace

from ..base.compiled import prefer_compiled
from ..base.values import Value, each
from ..errors import DecodeError, MalformedMessage
from ..format import wire
from ..format.hash_keys import partition_key_hash
from ..format.message import AggregatedRecord
from ..format.records import KinesisRecord, Tag, own_number, short_fields
from ..shards.placement import AggregateKind, Placement, ShardPlacementChecker, hash_key_or_none
from . import kcl
from .kcl import DropReason, KclResult


class DeaggregatedRecord(Value, storage=prefer_compiled("row_storage", None)):
    """One user record of a Kinesis record. It does not keep the frame in memory.

    ``sub_sequence_number``: its index in its Kinesis record, from 0. ``aggregated``: False for a plain
    record. ``placement``: set with a shard map. ``defects``, and ``kcl`` (what the KCL does with the user
    record): set under the ``report`` policy. A record from a queue has no ``sequence_number`` and
    ``shard_id``; its ``record_id`` names the Kinesis record.

    ``partition_key`` is None in two cases only: a plain record of a stream that distributes records AUTO,
    and, under ``report``, a user record with a defect in its key. `require_partition_key` gives it as a str.
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
    kcl: KclResult | None = None
    record_id: str | None = None

    def __repr__(self) -> str:
        return short_fields(self)

    @property
    def is_user_record(self) -> bool:
        """False for the row that the report policy puts before the user records of a frame with a defect
        outside of them: it has the frame itself and sub-sequence number -1."""
        return self.sub_sequence_number >= 0

    def require_partition_key(self) -> str:
        """The partition key. Raises ValueError where there is none."""
        if self.partition_key is None:
            place = f"sequence number {self.sequence_number}, user record {self.sub_sequence_number}"
            raise ValueError(f"no partition key ({place}): a plain record of an AUTO stream, or a defect")
        return self.partition_key


class Drop(Value):
    """User records of one Kinesis record that were dropped: how many (``user_records``), why, and the index
    of the user record that caused it (``record_index``, from 0)."""

    sequence_number: str | None
    shard_id: str | None
    user_records: int
    reason: DropReason
    record_index: int | None


class Counts(SimpleNamespace):
    """Counts so far. ``user_records``: those delivered; a row that is none
    (`DeaggregatedRecord.is_user_record`) does not count. ``dropped``: user records that the policy dropped,
    by reason. ``empty_records``: aggregated records in which a policy that drops found no user record.
    ``defects``: delivered user records by the code of their first defect, and frames with a defect outside of
    any user record."""

    kinesis_records: int
    aggregated_records: int
    user_records: int
    empty_records: int
    dropped: Counter[str]
    defects: Counter[str]

    def __init__(self) -> None:
        numbers = dict.fromkeys(("kinesis_records", "aggregated_records", "user_records", "empty_records"), 0)
        super().__init__(**numbers, dropped=Counter(), defects=Counter())

    def add_drop(self, drop: Drop, on_drop: Callable[[Drop], None] | None) -> None:
        """Count a drop, and call ``on_drop`` with it."""
        # DAG-4: "Under the kcl policy exactly what the KCL delivers MUST be delivered, and every user
        # record it drops MUST be counted under the reason; an aggregate in which it finds no user record
        # drops none, and is counted by itself."
        self.dropped[drop.reason] += drop.user_records
        if on_drop is not None:
            on_drop(drop)

    def add(self, other: Counts) -> None:
        """Add the counts of ``other``."""
        for name, number in vars(other).items():
            setattr(self, name, getattr(self, name) + number)


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
    result: KclResult | None = None,
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
        result,
        record_id=record.record_id,
    )


def kinesis_record_row(
    record: KinesisRecord,
    placement: Placement | None,
    result: KclResult | None,
    defects: tuple[DecodeError, ...] = (),
    sub_sequence_number: int = 0,
    aggregated: bool = False,
) -> DeaggregatedRecord:
    """The Kinesis record as one user record, unopened, or opened before."""
    keys_and_data = record.partition_key, record.data, record.explicit_hash_key, ()
    sub = sub_sequence_number
    if record.sub_sequence_number is not None:
        sub = sub or own_number(record) or 0
    return _row(record, keys_and_data, sub, aggregated, placement, defects, result)


def place_sound(
    aggregate: AggregatedRecord, checker: ShardPlacementChecker
) -> tuple[AggregateKind | None, list[Placement]]:
    """The kind of a sound aggregate and the placements of its user records; each key is hashed once."""
    used, ehks = aggregate.partition_key_indices, aggregate.explicit_hash_key_indices
    hash_keys = list(map(partition_key_hash, aggregate.partition_key_table))
    if ehks is not None:
        first = len(hash_keys)
        # For every text that a decoder accepts (KEY-3), int gives the same number. An invalid entry, which no
        # user record uses (KEY-8), is an empty text here.
        hash_keys += [int(text or 0) for text in aggregate.explicit_hash_key_table]
        used = [pk if ehk < 0 else first + ehk for pk, ehk in zip(used, ehks, strict=True)]
    return checker.check_aggregate(hash_keys, used)


def sound_rows(
    record: KinesisRecord,
    aggregate: AggregatedRecord,
    placements: Sequence[Placement] | None,
    result: KclResult | None,
    *,
    tags: bool,
) -> Iterable[DeaggregatedRecord]:
    # DAG-3: "Sub-sequence numbers count the user records of a Kinesis record from 0, in the order of
    # the bytes."
    return _each(
        DeaggregatedRecord,
        aggregate.partition_keys(),
        aggregate.data,
        aggregate.explicit_hash_keys() or _NONE,
        _EMPTY if aggregate.tags is None or not tags else aggregate.tags,
        count(),
        _NONE if placements is None else placements,
        sequence_number=record.sequence_number,
        aggregated=True,
        shard_id=record.shard_id,
        approximate_arrival_timestamp=record.approximate_arrival_timestamp,
        defects=(),
        kcl=result,
        record_id=record.record_id,
    )


def _place(
    keys: Iterable[tuple[str | None, str | None, bool]], checker: ShardPlacementChecker | None
) -> Iterable[Placement | None]:
    """The placements of a defective aggregate's user records. ``keys``: the partition key and
    explicit hash key of each, and whether a hash key can be computed from them."""
    if checker is None:
        return _NONE
    numbers: dict[tuple[str | None, str | None, bool], int] = {}
    used = [numbers.setdefault(pair, len(numbers)) for pair in keys]
    hash_keys = (hash_key_or_none(pk or "", ehk) if known else None for pk, ehk, known in numbers)
    return checker.check_aggregate(hash_keys, used)[1]


def kcl_rows(
    record: KinesisRecord, delivered: int, checker: ShardPlacementChecker | None
) -> Iterator[DeaggregatedRecord]:
    """The first ``delivered`` user records of a defective aggregate, as Java reads them."""
    placements = _place(((pk, ehk, True) for pk, _, ehk in kcl.user_records(record.data, delivered)), checker)
    user_records = zip(kcl.user_records(record.data, delivered), placements, strict=False)
    for sub, ((pk, data, ehk), placement) in enumerate(user_records):
        yield _row(record, (pk, data, ehk, ()), sub, True, placement)


def defective_rows(
    record: KinesisRecord,
    message: wire.Message,
    outcome: kcl.KclOutcome,
    checker: ShardPlacementChecker | None,
    malformed: MalformedMessage | None = None,
) -> Iterator[DeaggregatedRecord]:
    """Every user record in the bytes, with its defects and what the KCL does with it. ``malformed``: the
    defect of a message that only the KCL reads; ``message`` is then as the KCL reads it."""
    delivered = iter(() if outcome.raw else kcl.user_records(record.data, outcome.delivered))

    def keys(user_record: wire.WireRecord) -> tuple[str | None, str | None, bool]:
        pk = entry_of(message.partition_keys, user_record.partition_key_index)
        ehk = entry_of(message.explicit_hash_keys, user_record.explicit_hash_key_index)
        # An explicit hash key that cannot be read still decides the shard.
        known = ehk is not None or (pk is not None and user_record.explicit_hash_key_index is None)
        return pk, ehk, known

    def defects(user_record: wire.WireRecord) -> Iterator[DecodeError]:
        own = message.defects_of(user_record)
        if malformed is not None and not own:
            own = [malformed.at(record_index=user_record.record_index)]
        for defect in own:
            yield defect.at(sequence_number=record.sequence_number, shard_id=record.shard_id)

    # The bytes are read twice: a list of defects would take hundreds of times the memory of the bytes.
    placements = _place(map(keys, message.records()), checker)
    for user_record, placement in zip(message.records(), placements, strict=False):
        pk, ehk, _ = keys(user_record)
        index, data = user_record.record_index, user_record.data or b""
        result: KclResult = "raw" if outcome.raw else "dropped"
        if not outcome.raw and index < outcome.delivered:
            same = next(delivered, None) == (pk, data, ehk)
            result = "delivered" if same else "altered"
        keys_and_data = pk, data, ehk, user_record.tags
        yield _row(record, keys_and_data, index, True, placement, tuple(defects(user_record)), result)


def entry_of(table: Sequence[str | None], index: int | None) -> str | None:
    """The entry ``index`` of a key table; None if it is no key, or outside the table."""
    return table[index] if index is not None and index < len(table) else None
