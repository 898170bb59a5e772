"""Placement: whether a record is on the shard where its hash key belongs, and why an aggregate is not.

    hash key vs. the shard the record lies on                      | verdict
    ---------------------------------------------------------------+---------------------------
    the stream distributes records AUTO                            | distribution-auto
    the shard is unknown to the map, or not given                  | unknown-shard
    in its range; it is the open shard for the hash key            | expected
    in its range; the open shard descends from it                  | on-parent
    in its range; it descends from the open shard                  | on-child
    in its range; closed, lineage expired                          | on-parent
    outside; a plain record (its explicit hash key is not known)   | explicit-hash-key-implied
    outside; anything else                                         | stray

Specification: spec/04-shards-and-placement.md.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple, Protocol

from ..base.arguments import argument_error, check_arguments
from ..base.values import Value
from ..errors import HashKeyError
from ..format.hash_keys import HashKeyRange, effective_hash_key, hash_key_to_bytes
from ..format.records import KinesisRecord, OpenedBefore, opening_of
from .lineage import Lineage
from .sequence_numbers import sequence_hint
from .shard import Shard
from .shard_map import ShardMap

AggregateKind = Literal["whole", "mixed", "foreign"]
"""How many user records of an aggregate are in its shard's range: all, some, none."""

OpenedResult = Literal["delivered", "dropped", "unknown"]
"""What the KCL has done with the user records of a Kinesis record that was opened before."""


class OpenedAggregate(NamedTuple):
    """Of a Kinesis record that was opened before: its kind by its user records that are here (None: it was
    plain, or no range is known), what the KCL has done with them, and the sub-sequence number of the first
    one outside its shard's range."""

    kind: AggregateKind | None
    result: OpenedResult
    outside: int | None


_MOST_SHARDS = 10_000

Verdict = Literal[
    "expected",
    "on-parent",
    "on-child",
    "stray",
    "unknown-shard",
    "explicit-hash-key-implied",
    "distribution-auto",
]
"""Where a user record is, compared with its hash key: the rows of the table in chapter 4.2."""


class Placement(Value):
    """The shard on which a user record is, compared with the shard of its hash key. ``hash_key``: None if no
    key is known. ``expected_shard_id``: the open shard for the hash key, None without a map. ``in_range``:
    whether the hash key is in the range of the record's shard, None if the range is not known. ``aggregate``:
    None for plain records."""

    verdict: Verdict
    hash_key: int | None
    shard_id: str | None
    expected_shard_id: str | None
    in_range: bool | None
    aggregate: AggregateKind | None = None

    @property
    def misplaced(self) -> bool:
        """Whether a consumer that relies on hash keys looks for the record on another shard."""
        return self.verdict == "stray"


#: For a hash key on a shard: the verdict, the id of the expected shard, whether the key is in the shard's
#: range.
PlacementFacts = tuple[Verdict, str | None, bool | None]

#: The kinds of aggregates; compiled code and columns have the index in this list.
AGGREGATE_KINDS: tuple[AggregateKind | None, ...] = (None, "whole", "mixed", "foreign")


def aggregate_kind(inside: int, outside: int) -> AggregateKind | None:
    """The kind of an aggregate, by how many of its user records are inside and outside the shard's range;
    None if the range is not known."""
    # PLC-5: "An aggregate with user records inside and outside its shard's range is mixed and MUST get
    # a finding of its own: the KCL loses all of it."
    if inside and outside:
        return "mixed"
    return "foreign" if outside else "whole" if inside else None


class PlacementChecker:
    """Makes placements on the shards of a map, and by ``hash_key_range`` on a shard that is not in the
    map."""

    def __init__(self, shard_map: ShardMap | None, hash_key_range: HashKeyRange | None = None) -> None:
        self.shard_map = shard_map
        self.hash_key_range = hash_key_range
        #: The open shards in the order of their hash key ranges; empty if no shard can be predicted.
        self.open_shards: tuple[Shard, ...] = ()
        #: The last hash key of each of these shards, ascending.
        self.endings: list[int] = []
        if shard_map is not None and shard_map.distribution != "AUTO":
            self.open_shards, self.endings = shard_map.open_shards, shard_map.endings
        self._shards: dict[str | None, ShardPlacementChecker] = {}

    @cached_property
    def packed_endings(self) -> bytes:
        """``endings`` for compiled code: 16 bytes each."""
        return b"".join(map(hash_key_to_bytes, self.endings))

    def on(self, shard_id: str | None) -> "ShardPlacementChecker":
        checker = self._shards.get(shard_id)
        if checker is None:
            if len(self._shards) >= _MOST_SHARDS:
                self._shards.clear()
            checker = self._shards[shard_id] = ShardPlacementChecker(self, shard_id)
        return checker


class CodedShards:
    """Tables of some shards for compiled code, and the meaning of the codes that it returns: ((shard * (open
    shards + 1) + expected shard) * 3 + in range) * 2 + certain, where "in range" is 0 for unknown, 1 for no,
    2 for yes. Every code is below ``bound``."""

    def __init__(self, checker: PlacementChecker, shard_ids: Sequence[str | None]) -> None:
        self._shards = [checker.on(shard_id) for shard_id in shard_ids]
        self._places = len(checker.open_shards) + 1
        self.bound = len(self._shards) * self._places * 6
        ranges = [shard.hash_key_range or (0, 0) for shard in self._shards]
        #: First and last hash key of each shard, 16 bytes each; 1 for each whose range is known, else 0; the
        #: last hash key of each open shard, ascending.
        self.tables: tuple[bytes, bytes, bytes, bytes] = (
            b"".join(hash_key_to_bytes(first) for first, _ in ranges),
            b"".join(hash_key_to_bytes(last) for _, last in ranges),
            bytes(shard.hash_key_range is not None for shard in self._shards),
            checker.packed_endings,
        )

    def facts_of(self, code: int) -> PlacementFacts:
        place, facts = divmod(code, 6)
        shard, expected = divmod(place, self._places)
        return self._shards[shard].facts(expected, (None, False, True)[facts // 2], certain=bool(facts % 2))


class ShardPlacementChecker:
    """Gives verdicts on one shard. ``hash_key_range``: that of the shard, None where it is not known."""

    __slots__ = ("_checker", "_endings", "_facts", "_opening", "_shard", "hash_key_range", "shard_id")

    def __init__(self, checker: PlacementChecker, shard_id: str | None) -> None:
        shard_map = checker.shard_map
        self.shard_id = shard_id
        self._checker = checker
        self._endings = checker.endings
        self._shard = None if shard_map is None or shard_id is None else shard_map.get(shard_id)
        self.hash_key_range = checker.hash_key_range if self._shard is None else self._shard.hash_key_range
        self._facts: dict[tuple[int, bool | None, bool], PlacementFacts] = {}
        #: The last Kinesis record that was opened before, and what is known of it.
        self._opening: tuple[OpenedBefore, OpenedAggregate] | None = None

    def in_range(self, hash_key: int | None) -> bool | None:
        """Whether ``hash_key`` is in the shard's range; None where either is not known."""
        if hash_key is None or self.hash_key_range is None:
            return None
        lowest, highest = self.hash_key_range
        return lowest <= hash_key <= highest

    def check(self, hash_key: int | None, *, certain: bool) -> Placement:
        """The placement of a record with this hash key. ``certain``: the record cannot have another explicit
        hash key, as is so for a user record of an aggregate."""
        verdict, expected_id, in_range = self._find_facts(hash_key, certain=certain)
        return Placement(verdict, hash_key, self.shard_id, expected_id, in_range)

    def _find_facts(self, hash_key: int | None, *, certain: bool) -> PlacementFacts:
        in_range = self.in_range(hash_key)
        expected = len(self._endings) if hash_key is None else bisect_left(self._endings, hash_key)
        return self.facts(expected, in_range, certain=certain)

    def check_aggregate(
        self, hash_keys: Iterable[int | None], used: Sequence[int]
    ) -> tuple[AggregateKind | None, list[Placement]]:
        """The kind of an aggregate and the placement of each user record. ``used``: for each user record, the
        index of its hash key in ``hash_keys``."""
        hash_keys = list(hash_keys)
        facts = [self._find_facts(hash_key, certain=True) for hash_key in hash_keys]
        in_range = [facts[index][2] for index in used]
        kind = aggregate_kind(in_range.count(True), in_range.count(False))
        placements = [
            Placement(verdict, hash_key, self.shard_id, expected_id, within, kind)
            for hash_key, (verdict, expected_id, within) in zip(hash_keys, facts, strict=True)
        ]
        return kind, [placements[index] for index in used]

    def check_opened(self, opening: OpenedBefore) -> "OpenedAggregate":
        """What the user records that are here show of a Kinesis record that was opened before."""
        if self._opening is None or self._opening[0] is not opening:
            keys = (hash_key_or_none(key, explicit) for _, key, explicit in opening.user_records)
            found = [self.in_range(key) for key in keys]
            kind = aggregate_kind(found.count(True), found.count(False)) if opening.aggregated else None
            outside = opening.user_records[found.index(False)][0] if False in found else None
            result = result_of_opened(opening, kind, None not in found)
            self._opening = opening, OpenedAggregate(kind, result, outside)
        return self._opening[1]

    def facts(self, expected: int, in_range: bool | None, *, certain: bool) -> PlacementFacts:
        """The verdict and other facts that all hash keys with one expected shard share. ``expected``: the
        index of that shard among the open shards of the `PlacementChecker`; the number of open shards stands
        for "none"."""
        facts = self._facts.get((expected, in_range, certain))
        if facts is None:
            opens = self._checker.open_shards
            shard = opens[expected] if expected < len(opens) else None
            verdict = verdict_of(self._checker.shard_map, self._shard, shard, in_range, certain=certain)
            facts = verdict, shard.shard_id if shard is not None else None, in_range
            if len(self._facts) < _MOST_SHARDS:
                self._facts[expected, in_range, certain] = facts
        return facts


def verdict_of(
    lineage: Lineage | None,
    shard: Shard | None,
    expected: Shard | None,
    in_range: bool | None,
    *,
    certain: bool,
) -> Verdict:
    """The verdict, by the table of this module. ``expected``: the open shard for the hash key."""
    # LIN-4: "A hint MUST NOT change a verdict." No sequence number is used.
    # PLC-1: "On a stream whose record distribution strategy is AUTO no record MUST be called
    # misplaced: the service ignores its keys."
    if lineage is not None and lineage.distribution == "AUTO":
        return "distribution-auto"
    # LIN-8: "A record on a shard that lineage does not know MUST be reported as such."
    if in_range is None:
        return "unknown-shard"
    if not in_range:
        # PLC-2: "A plain record outside its shard's range MUST be taken for one with an explicit
        # hash key, which no read call returns."
        # PLC-3: "A user record of an aggregate outside its shard's range is a stray."
        return "stray" if certain else "explicit-hash-key-implied"
    # PLC-4: "A record MUST be judged against the range of the shard it lies on; lineage then says
    # whether that shard is the expected one, its ancestor or its descendant."
    if shard is None or lineage is None or expected is None or shard.shard_id == expected.shard_id:
        return "expected"
    if lineage.is_descendant(shard.shard_id, expected.shard_id):
        return "on-child"
    return "on-parent"


def result_of_opened(opening: OpenedBefore, kind: AggregateKind | None, known: bool) -> OpenedResult:
    """What the KCL has done with each user record that is here of a Kinesis record that was opened before.
    ``kind``: of the aggregated record, by those that are here. ``known``: whether the hash key of each is."""
    # PLC-7: "What the KCL has done with a user record of an aggregated record that was opened before MUST be:
    # delivered, where the KCL has opened it; else dropped, where it or one of its siblings is outside its
    # shard's range; else unknown, where one of them is missing or has no key; else delivered."
    if opening.by == "kcl" or kind is None:
        return "delivered"
    if kind != "whole":
        return "dropped"
    return "delivered" if opening.whole and known else "unknown"


def hash_key_or_none(partition_key: str | None, explicit_hash_key: str | None) -> int | None:
    """The effective hash key; None without a key, and for invalid keys, which the KCL may deliver."""
    if explicit_hash_key is None and partition_key is None:
        return None
    try:
        return effective_hash_key(partition_key or "", explicit_hash_key)
    except HashKeyError:
        return None


class _Record(Protocol):
    @property
    def partition_key(self) -> str | None: ...
    @property
    def explicit_hash_key(self) -> str | None: ...
    @property
    def shard_id(self) -> str | None: ...


def verify_placement(record: _Record, shard_map: ShardMap) -> Placement:
    """The placement of a plain KinesisRecord or a DeaggregatedRecord on its shard. On the shards of another
    stream than the map's nothing is known. Raises HashKeyError for an invalid explicit hash key."""
    check_arguments("verify_placement", {"shard_map": shard_map}, required=("shard_map",))
    if not hasattr(record, "explicit_hash_key"):
        give = "a KinesisRecord or a DeaggregatedRecord"
        raise argument_error("verify_placement", "record", record, give=give)
    named = getattr(record, "stream", None)
    known = named is None or shard_map.stream is None or shard_map.stream.has(named)
    if record.partition_key is None and record.explicit_hash_key is None:
        hash_key = None
    else:
        hash_key = effective_hash_key(record.partition_key or "", record.explicit_hash_key)
    certain = record.explicit_hash_key is not None or getattr(record, "aggregated", False)
    if isinstance(record, KinesisRecord):
        opening = opening_of(record)
        certain = certain or (opening is not None and opening.aggregated)
    return PlacementChecker(shard_map if known else None).on(record.shard_id).check(hash_key, certain=certain)


#: A reshard explains a misplaced record only if the record is written within this time after the reshard.
RESHARD_WINDOW = timedelta(minutes=10)

ACROSS_SHARDS = "across-shards"
#: Why an aggregate has user records outside its shard's range, as far as the shards of the stream show.
CAUSES = {
    ACROSS_SHARDS: "no shard ever held all its hash keys: its writer does not look at shards",
    "reshard": "written for a shard that was split or merged meanwhile",
    "wrong-shard": "all its hash keys belong to one other shard: it was put under a key that is not its own",
    "unknown-lineage": "the shard's parent has expired, so a reshard can neither be seen nor ruled out",
}


class Cause(NamedTuple):
    """``name`` is a key of `CAUSES`; ``shard_id`` the shard that held all the hash keys, if one did."""

    name: str
    shard_id: str | None = None


def time_of_hint(sequence_number: str | None) -> datetime | None:
    hint = sequence_hint(sequence_number)
    return hint.time if hint else None


class Causes:
    """Finds the cause for aggregates on the shards of ``shard_map``."""

    def __init__(self, shard_map: ShardMap) -> None:
        self._map = shard_map
        self._ancestors = lru_cache(maxsize=4096)(shard_map.ancestors)

    def _closed_lately(self, shard: Shard, at: datetime | None) -> bool | None:
        closed_at = self._map.closed_at(shard.shard_id)
        return None if at is None or closed_at is None else closed_at > at - RESHARD_WINDOW

    def of(self, shard_id: str, lowest: int, highest: int, at: datetime | None) -> Cause:
        """The cause for an aggregate on a listed shard. ``lowest``, ``highest``: of its hash keys. ``at``:
        when it was put."""
        parents = {shard.shard_id for shard in self._map.parents(shard_id)}
        for shard in self._ancestors(shard_id):
            if lowest in shard.hash_key_range and highest in shard.hash_key_range:
                closed_lately = self._closed_lately(shard, at)
                if closed_lately or (closed_lately is None and shard.shard_id in parents):
                    return Cause("reshard", shard.shard_id)
        other = self._map.shard_for(lowest)
        for shard in (other, *self._ancestors(other.shard_id)):
            if highest in shard.hash_key_range and (shard.open or self._closed_lately(shard, at)):
                return Cause("wrong-shard", shard.shard_id)
        if self._map.unknown_parents.get(shard_id):
            return Cause("unknown-lineage")
        return Cause(ACROSS_SHARDS)
