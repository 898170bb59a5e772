"""Judges whether a record is on the shard where it belongs, for objects, columns, reports and Lambda.

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

Specification: spec/04-shards-and-placement.md, PLC-1 to PLC-5.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

from ..format.hash_keys import HashKeyRange, effective_hash_key, hash_key_to_bytes, partition_key_hash
from .shard import Shard
from .shard_map import ShardMap

AggregateKind = Literal["whole", "mixed", "foreign"]

_MOST_SHARDS = 10_000
_MOST_HASHES = 10_000


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
    """The shard on which a user record is, compared with the shard of its hash key.

    ``hash_key`` is None where no key is known. ``expected_shard_id`` is the open shard for it, None
    without a map. ``in_range``: whether it is in the range of the shard the record is on, None where that
    range is not known. ``aggregate``: see `aggregate_kind`; None for plain records.
    """

    verdict: Verdict
    hash_key: int | None
    shard_id: str | None
    expected_shard_id: str | None
    in_range: bool | None
    aggregate: AggregateKind | None = None

    @property
    def misplaced(self) -> bool:
        """Whether a consumer that relies on hash keys looks for the record on another shard."""
        return self.verdict is Verdict.STRAY


#: What is known of a hash key in an aggregate: its verdict, the id of the expected shard, whether it is in
#: range, and the aggregate's kind.
Judged = tuple[Verdict, str | None, bool | None, AggregateKind | None]


class PlacedAggregate(NamedTuple):
    """The hash keys of a sound aggregate on ``shard_id``, judged. ``used``: per user record the number of its
    own among ``hash_keys`` and ``judged``."""

    kind: AggregateKind | None
    shard_id: str | None
    hash_keys: Sequence[int]
    judged: Sequence[Judged]
    used: Sequence[int]

    def placements(self) -> list[Placement]:
        """The placement of each hash key."""
        shard_id = self.shard_id
        # tuple.__new__, because Placement.__new__ takes as long as all the rest.
        return [
            _NEW(Placement, (verdict, hash_key, shard_id, expected_id, in_range, kind))
            for (verdict, expected_id, in_range, kind), hash_key in zip(
                self.judged, self.hash_keys, strict=True
            )
        ]


#: The kinds of aggregates, by their numbers in compiled code and columns.
AGGREGATE_KINDS: tuple[AggregateKind | None, ...] = (None, "whole", "mixed", "foreign")


def aggregate_kind(inside: int, outside: int) -> AggregateKind | None:
    """The kind of an aggregate, by how many of its user records are inside and outside its shard's range:
    "whole" if all are inside, "foreign" if none is, "mixed" if some are; None if unknown."""
    # PLC-5: "An aggregate with user records inside and outside its shard's range is mixed and MUST get
    # a finding of its own: the KCL loses all of it."
    if inside and outside:
        return "mixed"
    return "foreign" if outside else "whole" if inside else None


class _Hashes(dict[str, int]):
    """The hash keys of partition keys, of the first some thousand kept."""

    def __missing__(self, partition_key: str) -> int:
        hash_key = partition_key_hash(partition_key)
        if len(self) < _MOST_HASHES:
            self[partition_key] = hash_key
        return hash_key


class Judge:
    """Judges hash keys on the shards of a map, or on the one shard of a hash key range.

    A shard that is in the map is judged by the map, not by the range. `on` gives the judge of one shard, made
    once.
    """

    def __init__(self, shard_map: ShardMap | None, hash_key_range: HashKeyRange | None = None) -> None:
        self.shard_map = shard_map
        self.hash_key_range = hash_key_range
        #: The shards where hash keys can be expected, by hash key range; empty where nothing is predicted.
        self.open_shards: tuple[Shard, ...] = ()
        #: The last hash key of each of them, ascending.
        self.endings: list[int] = []
        if shard_map is not None and shard_map.distribution != "AUTO":
            self.open_shards, self.endings = shard_map.open_shards, shard_map.endings
        #: `partition_key_hash` of keys that many aggregates share.
        self.hashes = _Hashes()
        self._shards: dict[str | None, ShardJudge] = {}
        self._coded: tuple[tuple[str | None, ...], CodedShards] | None = None

    @cached_property
    def packed_endings(self) -> bytes:
        """``endings``, 16 bytes each."""
        return b"".join(map(hash_key_to_bytes, self.endings))

    @cached_property
    def expected_ids(self) -> tuple[str | None, ...]:
        """The id of the expected shard for each number that it can have; None for the last: there is none."""
        return *(shard.shard_id for shard in self.open_shards), None

    def on(self, shard_id: str | None) -> ShardJudge:
        """The judge of hash keys on ``shard_id``."""
        found = self._shards.get(shard_id)
        if found is None:
            if len(self._shards) >= _MOST_SHARDS:
                self._shards.clear()
            found = self._shards[shard_id] = ShardJudge(self, shard_id)
        return found

    def coded(self, shard_ids: Sequence[str | None]) -> CodedShards:
        """The same for compiled code, for records on these shards."""
        key = tuple(shard_ids)
        if self._coded is None or self._coded[0] != key:
            self._coded = key, CodedShards(self, key)
        return self._coded[1]


class CodedShards:
    """Some shards in the form for compiled code, and the meaning of the codes that it returns.

    A code is ((shard * (open shards + 1) + expected shard) * 3 + in range) * 2 + certain, where "in range"
    is 0 for unknown, 1 for no, 2 for yes. Every code is below ``bound``.
    """

    def __init__(self, judge: Judge, shard_ids: Sequence[str | None]) -> None:
        self._shards = [judge.on(shard_id) for shard_id in shard_ids]
        self._places = len(judge.open_shards) + 1
        self.bound = len(self._shards) * self._places * 6
        ranges = [shard.hash_key_range or (0, 0) for shard in self._shards]
        #: First and last hash key of each shard, 16 bytes each; 1 for each whose range is known, else 0; the
        #: last hash key of each open shard, ascending.
        self.tables: tuple[bytes, bytes, bytes, bytes] = (
            b"".join(hash_key_to_bytes(first) for first, _ in ranges),
            b"".join(hash_key_to_bytes(last) for _, last in ranges),
            bytes(shard.hash_key_range is not None for shard in self._shards),
            judge.packed_endings,
        )

    def words(self, code: int) -> tuple[Verdict, str | None, bool | None]:
        """The verdict, the id of the expected shard, and whether the hash key is in range."""
        place, facts = divmod(code, 6)
        shard, expected = divmod(place, self._places)
        in_range = (None, False, True)[facts // 2]
        return *self._shards[shard].verdict(expected, in_range, certain=bool(facts % 2)), in_range


class ShardJudge:
    """Judges hash keys on one shard. ``hash_key_range`` is None where it is not known."""

    __slots__ = ("_endings", "_home", "_judge", "_known", "_shard", "hash_key_range", "hashes", "shard_id")

    def __init__(self, judge: Judge, shard_id: str | None) -> None:
        shard_map = judge.shard_map
        known = shard_map is not None and shard_id is not None and shard_id in shard_map
        self.shard_id = shard_id
        self.hashes = judge.hashes
        self._judge = judge
        self._endings = judge.endings
        self._shard: Shard | None = shard_map[shard_id] if known else None  # type: ignore[index]
        self.hash_key_range = judge.hash_key_range if self._shard is None else self._shard.hash_key_range
        #: The number of this shard among the open ones, if it is open.
        self._home: int | None = None
        if self._shard is not None and self._shard.open and judge.open_shards:
            self._home = bisect_left(self._endings, self._shard.hash_key_range.ending_hash_key)
        self._known: dict[tuple[int, bool | None, bool], tuple[Verdict, str | None]] = {}

    def in_range(self, hash_key: int | None) -> bool | None:
        """Whether ``hash_key`` is in the shard's range; None where either is not known."""
        if hash_key is None or self.hash_key_range is None:
            return None
        lowest, highest = self.hash_key_range
        return lowest <= hash_key <= highest

    def place(self, hash_key: int | None, *, certain: bool) -> Placement:
        """The verdict on one hash key. ``certain``: the record has no other hash key, as every one from an
        aggregate."""
        in_range = None
        if hash_key is not None and self.hash_key_range is not None:
            lowest, highest = self.hash_key_range
            in_range = lowest <= hash_key <= highest
        if hash_key is None:
            expected = len(self._endings)
        elif in_range and self._home is not None:
            expected = self._home
        else:
            expected = bisect_left(self._endings, hash_key)
        words = self._known.get((expected, in_range, certain))
        verdict, expected_id = words or self.verdict(expected, in_range, certain=certain)
        return _NEW(Placement, (verdict, hash_key, self.shard_id, expected_id, in_range, None))

    def place_aggregate(self, hash_keys: Sequence[int], used: Sequence[int]) -> PlacedAggregate:
        """``hash_keys``: those of an aggregate's key tables; ``used``: see `PlacedAggregate`."""
        kind, judged = self.judge(hash_keys, used)
        return _NEW(PlacedAggregate, (kind, self.shard_id, hash_keys, judged, used))

    def judge(
        self, hash_keys: Sequence[int], used: Sequence[int] | None = None
    ) -> tuple[AggregateKind | None, list[Judged]]:
        """What is known of each of the ``hash_keys`` of an aggregate, and its kind; with ``used`` None, of
        the hash keys of plain records' partition keys."""
        home, endings, known, certain = self._home, self._endings, self._known, used is not None
        kind: AggregateKind | None
        insides: Sequence[bool | None] = [None] * len(hash_keys)
        if self.hash_key_range is not None:
            lowest, highest = self.hash_key_range
            if home is not None and lowest <= min(hash_keys) and max(hash_keys) <= highest:
                words = known.get((home, True, certain)) or self.verdict(home, True, certain=certain)
                kind = "whole" if certain else None
                return kind, [(*words, True, kind)] * len(hash_keys)
            insides = [lowest <= hash_key <= highest for hash_key in hash_keys]
        of_users: Sequence[bool | None] = ()
        if used is not None:
            of_users = [insides[item] for item in used] if len(set(insides)) > 1 else insides
        kind = aggregate_kind(of_users.count(True), of_users.count(False))
        judged: list[Judged] = []
        for hash_key, inside in zip(hash_keys, insides, strict=True):
            expected = home if inside and home is not None else bisect_left(endings, hash_key)
            words = known.get((expected, inside, certain)) or self.verdict(expected, inside, certain=certain)
            judged.append((*words, inside, kind))
        return kind, judged

    def verdict(self, expected: int, in_range: bool | None, *, certain: bool) -> tuple[Verdict, str | None]:
        """The verdict, and the id of the expected shard or None, for three facts.

        ``expected``: its number among the open shards of the `Judge`, or how many there are for "none".
        """
        words = self._known.get((expected, in_range, certain))
        if words is None:
            opens = self._judge.open_shards
            shard = opens[expected] if expected < len(opens) else None
            words = self._verdict(shard, in_range, certain), shard.shard_id if shard is not None else None
            if len(self._known) < _MOST_SHARDS:
                self._known[expected, in_range, certain] = words
        return words

    def _verdict(self, expected: Shard | None, in_range: bool | None, certain: bool) -> Verdict:
        shard, shard_map = self._shard, self._judge.shard_map
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
            return Verdict.STRAY if certain else Verdict.EXPLICIT_HASH_KEY_IMPLIED
        # PLC-4: "A record MUST be judged against the range of the shard it lies on; lineage then says
        # whether that shard is the expected one, its ancestor or its descendant."
        if shard is None or shard_map is None or expected is None or shard.shard_id == expected.shard_id:
            return Verdict.EXPECTED
        if shard_map.is_descendant(shard.shard_id, expected.shard_id):
            return Verdict.ON_CHILD
        return Verdict.ON_PARENT


_NEW = tuple.__new__


class _Keyed(Protocol):
    """A Kinesis record or a user record."""

    @property
    def partition_key(self) -> str | None: ...
    @property
    def explicit_hash_key(self) -> str | None: ...
    @property
    def shard_id(self) -> str | None: ...


def verify_placement(record: _Keyed, shard_map: ShardMap) -> Placement:
    """The verdict on a plain KinesisRecord or a DeaggregatedRecord.

    It is on ``record.shard_id``. Raises HashKeyError for an invalid explicit hash key.
    """
    if record.partition_key is None and record.explicit_hash_key is None:
        hash_key = None
    else:
        hash_key = effective_hash_key(record.partition_key or "", record.explicit_hash_key)
    certain = record.explicit_hash_key is not None or getattr(record, "aggregated", False)
    return Judge(shard_map).on(record.shard_id).place(hash_key, certain=certain)
