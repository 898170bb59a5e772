"""Did a record land on the shard its hash key predicts? A verdict per user record.

    hash key vs. the shard the record lies on                      | verdict
    ---------------------------------------------------------------+---------------------------
    the stream distributes records AUTO                            | distribution-auto
    the shard is unknown to the map, or not given                  | unknown-shard
    in its range; it is the open shard for the hash key            | expected
    in its range; the open shard descends from it                  | on-parent
    in its range; it descends from the open shard                  | on-child
    in its range; closed, lineage expired                          | on-parent
    outside; a plain record whose explicit hash key nobody returns | explicit-hash-key-implied
    outside; anything else                                         | stray

Specification: spec/04-shards-and-placement.md, PLC-1 to PLC-6.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ..format.hash_keys import HashKeyRange, effective_hash_key
from ..format.records import DeaggregatedRecord, KinesisRecord
from .shard_map import ShardMap


class Verdict(str, Enum):
    """See the table of this module."""

    EXPECTED = "expected"
    ON_PARENT = "on-parent"
    ON_CHILD = "on-child"
    STRAY = "stray"
    UNKNOWN_SHARD = "unknown-shard"
    EXPLICIT_HASH_KEY_IMPLIED = "explicit-hash-key-implied"
    DISTRIBUTION_AUTO = "distribution-auto"

    def __str__(self) -> str:
        return self.value


class Placement(NamedTuple):
    """Where a user record lies against where its hash key says.

    ``hash_key`` is None where no key is known. ``expected_shard_id`` is the open shard for it, None
    without a map. ``in_range`` tells whether the range of the shard it lies on holds it, None where
    that range is not known. ``aggregate``: "whole" if every user record of the aggregate is in range,
    "foreign" if none is, "mixed" if some are (the KCL loses all of them); None for plain records and
    where the range is not known.
    """

    verdict: Verdict
    hash_key: int | None
    shard_id: str | None
    expected_shard_id: str | None
    in_range: bool | None
    aggregate: str | None = None

    @property
    def misplaced(self) -> bool:
        """Whether a consumer that trusts hash keys will not find the record where it looks."""
        return self.verdict is Verdict.STRAY


def judge(
    hash_key: int | None,
    shard_id: str | None,
    shard_map: ShardMap | None,
    *,
    aggregated: bool,
    hash_key_range: HashKeyRange | None = None,
) -> Placement:
    """The verdict on one hash key that lies on ``shard_id``.

    ``hash_key_range`` stands in for the shard's range where there is no map. ``aggregated``: the
    record comes out of an aggregate, so its explicit hash key, or that it has none, is known.
    """
    expected = None
    shard = None
    if shard_map is not None:
        if hash_key is not None and shard_map.distribution != "AUTO":
            expected = shard_map.shard_for(hash_key)
        if shard_id is not None and shard_id in shard_map:
            shard = shard_map[shard_id]
            hash_key_range = shard.hash_key_range
    expected_id = expected.shard_id if expected is not None else None
    in_range = hash_key in hash_key_range if hash_key is not None and hash_key_range is not None else None

    def verdict() -> Verdict:
        # PLC-1: "On a stream whose record distribution strategy is AUTO no record MUST be called
        # misplaced: the service ignores its keys."
        if shard_map is not None and shard_map.distribution == "AUTO":
            return Verdict.DISTRIBUTION_AUTO
        if in_range is None:
            return Verdict.UNKNOWN_SHARD
        if not in_range:
            # PLC-2: "A plain record outside its shard's range MUST be taken for one with an explicit
            # hash key, which no read call returns."
            # PLC-3: "A user record of an aggregate outside its shard's range is a stray."
            return Verdict.STRAY if aggregated else Verdict.EXPLICIT_HASH_KEY_IMPLIED
        # PLC-4: "A record MUST be judged against the range of the shard it lies on; lineage then says
        # whether that shard is the expected one, its ancestor or its descendant."
        if shard is None or shard_map is None or expected is None or shard.shard_id == expected.shard_id:
            return Verdict.EXPECTED
        if shard_map.is_descendant(shard.shard_id, expected.shard_id):
            return Verdict.ON_CHILD
        return Verdict.ON_PARENT

    return Placement(verdict(), hash_key, shard_id, expected_id, in_range)


def verify_placement(record: KinesisRecord | DeaggregatedRecord, shard_map: ShardMap) -> Placement:
    """The verdict on a plain Kinesis record or a deaggregated user record.

    ``record.shard_id`` says where it lies. Raises HashKeyError for an explicit hash key that is none.
    """
    if record.partition_key is None and record.explicit_hash_key is None:
        hash_key = None
    else:
        hash_key = effective_hash_key(record.partition_key or "", record.explicit_hash_key)
    known = record.explicit_hash_key is not None or getattr(record, "aggregated", False)
    return judge(hash_key, record.shard_id, shard_map, aggregated=known)
