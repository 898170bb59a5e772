"""The results of deaggregation: user records, what was dropped, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace

from ..compiled import prefer_compiled
from ..errors import DecodeError
from ..format.records import Tag, short_fields
from ..lazy import repr_html
from ..shards.placement import Placement
from ..values import Value
from .kcl import DropReason, KclResult


class DeaggregatedRecord(Value, storage=prefer_compiled("row_storage", None)):
    """One user record of a Kinesis record. It does not keep the frame in memory.

    ``sub_sequence_number``: its number in its Kinesis record, from 0. ``aggregated``: False for a plain
    record. ``placement``: with a shard map. ``defects`` and ``kcl``, what the KCL does with it: under the
    ``report`` policy. ``schema_version_id``: with ``unframe``, the schema of ``data``. A record from a queue
    has no ``sequence_number`` and ``shard_id``; its ``record_id`` names the Kinesis record.

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
    schema_version_id: str | None = None
    record_id: str | None = None

    _repr_html_ = repr_html

    def __repr__(self) -> str:
        return short_fields(self)

    def require_partition_key(self) -> str:
        """The partition key. Raises ValueError where there is none."""
        if self.partition_key is None:
            place = f"sequence number {self.sequence_number}, user record {self.sub_sequence_number}"
            raise ValueError(f"no partition key ({place}): a plain record of an AUTO stream, or a defect")
        return self.partition_key


class Drop(Value):
    """The number of ``user_records`` of one Kinesis record that were dropped, why, and because of which one
    of them (``record_index``, from 0)."""

    sequence_number: str | None
    shard_id: str | None
    user_records: int
    reason: DropReason
    record_index: int | None


class Counts(SimpleNamespace):
    """Counts so far. ``dropped``: user records that the policy dropped, by reason. ``empty_records``:
    aggregated records in which a policy that drops found no user record. ``defects``: delivered user records
    by the code of their first defect."""

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
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)
