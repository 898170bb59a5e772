"""Lineage: every shard a stream is known to have had, and which one was open when.

A shard map answers for now; a lineage answers for then. It takes any shards, open or closed, whole or
with holes (closed shards expire), and is immutable: `Lineage.merged` gives a new one.

    shardId-0 [0 .......... max]  ──split──▶  shardId-1 [0 .. mid]  ──┐
                                              shardId-2 [mid+1 .. max] ┴─merge──▶  shardId-3 [0 .. max]

The shards that ever held one hash key form a chain in time. Their sequence numbers do not overlap, so
on that chain "open at sequence number n" has one exact answer: the last shard that starts at or before
n. Ending numbers are not used: a server is known that gives every closed shard 2^63 - 1.
A time is not so exact: it is compared with the creation times that starting sequence numbers hint at.
Specification: spec/08-live-shard-map.md, LIN-4 to LIN-11.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeVar

from ..errors import HashKeyError, ShardMapError, UnknownShard
from ..format.hash_keys import HashKeyRange
from ..limits import MAX_HASH_KEY
from .placement import Verdict
from .sequence_numbers import SequenceNumberError, parse_sequence_number, sequence_hint
from .shard_map import Distribution, Shard, ShardMap


class LineageDefect(NamedTuple):
    """Something in a lineage that AWS would not make. ``code``:

    parent-open (a child is listed, its parent has no ending number), child-outside-parents,
    children-do-not-tile, child-not-newer (its starting number is not above its parent's),
    too-many-children.
    """

    code: str
    shard_ids: tuple[str, ...]


class History(NamedTuple):
    """What lineage says about one record.

    ``verdict``: against the shard that was open for its hash key when it was written.
    ``shard_then``: that shard, None if it has expired or the record has no sequence number; for a record
    on a shard that never held its key, as the time hinted at by its number tells.
    ``chain``: every known shard that ever held the hash key, oldest first.
    ``number_in_shard``: whether the sequence number can be the shard's own (not before the shard's
    start), None where unknown. ``hinted_shard_id``: what the number itself hints at, only a hint.
    """

    verdict: Verdict
    shard_then: Shard | None
    chain: tuple[Shard, ...]
    number_in_shard: bool | None
    hinted_shard_id: str | None


def _start(shard: Shard) -> int | None:
    """The starting sequence number, None where there is none or it is no number."""
    try:
        return parse_sequence_number(shard.starting_sequence_number or "")
    except SequenceNumberError:
        return None


def _created(shard: Shard) -> datetime | None:
    start = _start(shard)
    hint = sequence_hint(start) if start is not None else None
    return hint.shard_created if hint else None


class Lineage:
    """All known shards of one life of a stream. Iterates parents before children.

    Raises ShardMapError: duplicate (one id, two different ranges, parents or starts), cycle.
    """

    def __init__(self, shards: Iterable[Shard], distribution: Distribution = "USER_PARTITION_KEY") -> None:
        by_id: dict[str, Shard] = {}
        for shard in shards:
            known = by_id.get(shard.shard_id)
            by_id[shard.shard_id] = shard if known is None else _same(known, shard)
        self.distribution: Distribution = distribution
        self._children: dict[str, list[str]] = {}
        for shard in sorted(by_id.values(), key=lambda shard: shard.shard_id):
            for parent in shard.parent_shard_ids:
                self._children.setdefault(parent, []).append(shard.shard_id)
        self._by_id = self._ordered(by_id)

    def _ordered(self, by_id: dict[str, Shard]) -> dict[str, Shard]:
        """Parents before children, otherwise by id (Kahn's algorithm over a heap)."""
        waiting = {
            shard_id: len({p for p in shard.parent_shard_ids if p in by_id})
            for shard_id, shard in by_id.items()
        }
        ordered: dict[str, Shard] = {}
        frontier = [shard_id for shard_id, count in waiting.items() if not count]
        heapify(frontier)
        while frontier:
            shard_id = heappop(frontier)
            ordered[shard_id] = by_id[shard_id]
            for child in set(self._children.get(shard_id, ())):
                waiting[child] -= 1
                if not waiting[child]:
                    heappush(frontier, child)
        if len(ordered) < len(by_id):
            left = tuple(sorted(by_id.keys() - ordered.keys()))
            raise ShardMapError(code="cycle", reason=f"{left[0]} descends from itself", shard_ids=left)
        return ordered

    @classmethod
    def from_shard_map(cls, shard_map: ShardMap) -> Lineage:
        """The lineage that a shard map holds."""
        return cls(shard_map, shard_map.distribution)

    def merged(self, shards: Iterable[Shard]) -> Lineage:
        """This lineage and ``shards``. A shard that has closed since takes its ending number; one
        that a listing no longer names stays.

        Raises ShardMapError(code="duplicate") when a shard contradicts what is known: then the
        stream was deleted and created again, or it is another one.
        """
        # LIN-5: "Facts about a shard MUST only be added: its range, parents and starting sequence
        # number never change, and a closed shard never opens again."
        return Lineage([*self._by_id.values(), *shards], self.distribution)

    # -- looking up ---------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, shard_id: object) -> bool:
        return shard_id in self._by_id

    def __getitem__(self, shard_id: str) -> Shard:
        try:
            return self._by_id[shard_id]
        except KeyError:
            raise UnknownShard(shard_id=shard_id, shard_ids=(shard_id,)) from None

    def get(self, shard_id: str) -> Shard | None:
        """The shard, None for one never seen."""
        return self._by_id.get(shard_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lineage) and self._by_id == other._by_id

    def __hash__(self) -> int:
        return hash(frozenset(self._by_id.values()))

    def __repr__(self) -> str:
        return f"<Lineage of {len(self)} shards>"

    def hash_key_range(self, shard_id: str) -> HashKeyRange | None:
        """The range of a shard ever seen, for ever; None for one never seen."""
        shard = self._by_id.get(shard_id)
        return shard.hash_key_range if shard else None

    def parents(self, shard_id: str) -> tuple[Shard, ...]:
        """The known parents. Raises UnknownShard."""
        return tuple(self._by_id[p] for p in self[shard_id].parent_shard_ids if p in self._by_id)

    def children(self, shard_id: str) -> tuple[Shard, ...]:
        """The known children; the shard itself may have expired."""
        return tuple(self._by_id[child] for child in self._children.get(shard_id, ()))

    def _walk(self, shard_id: str, next_ids: Mapping[str, Iterable[str]]) -> tuple[Shard, ...]:
        seen: set[str] = set()
        todo = list(next_ids.get(shard_id, ()))
        while todo:
            found = todo.pop()
            if found not in seen and found in self._by_id:
                seen.add(found)
                todo.extend(next_ids.get(found, ()))
        return tuple(shard for shard in self if shard.shard_id in seen)

    def ancestors(self, shard_id: str) -> tuple[Shard, ...]:
        """Every known shard this one came out of, oldest first. Raises UnknownShard."""
        _ = self[shard_id]
        return self._walk(shard_id, {i: shard.parent_shard_ids for i, shard in self._by_id.items()})

    def descendants(self, shard_id: str) -> tuple[Shard, ...]:
        """Every known shard that came out of this one, oldest first; it may itself have expired."""
        return self._walk(shard_id, self._children)

    def chain(self, hash_key: int) -> tuple[Shard, ...]:
        """The known shards that ever held ``hash_key``, oldest first. Raises HashKeyError."""
        if not 0 <= hash_key <= MAX_HASH_KEY:
            raise HashKeyError(reason="outside 0 to 2^128 - 1")
        return tuple(shard for shard in self if hash_key in shard.hash_key_range)

    # -- then ---------------------------------------------------------------------------------

    def shard_at_sequence_number(self, hash_key: int, sequence_number: str | int) -> Shard | None:
        """The shard that was open for ``hash_key`` when ``sequence_number`` was given out.

        The number must come from a shard that held ``hash_key``: numbers of other shards count from
        another start. None where that shard has expired. Raises HashKeyError, SequenceNumberError.
        """
        number = (
            sequence_number if isinstance(sequence_number, int) else parse_sequence_number(sequence_number)
        )
        # LIN-6: "The shard open for a hash key at a sequence number is the last shard of the key's
        # chain whose starting sequence number is at or below it; ending numbers MUST NOT be used, and a
        # chain whose starting numbers do not grow has no answer."
        chain = [(start, shard) for shard in self.chain(hash_key) if (start := _start(shard)) is not None]
        if len({start for start, _ in chain}) < len(chain):
            return None  # kinesis-local starts the child of a merge where its second parent started
        return _last_at(chain, number)

    def shard_at_time(self, hash_key: int, when: datetime) -> Shard | None:
        """The shard that was open for ``hash_key`` at ``when`` (aware), as far as hints tell: to the
        second, and None before the first known shard or where starting numbers carry no hint."""
        # LIN-7: "The shard open for a hash key at a time is the last of its chain whose starting
        # sequence number hints at a creation at or before it; without hints there is no answer."
        return _last_at(((_created(shard), shard) for shard in self.chain(hash_key)), when)

    def created(self, shard_id: str) -> datetime | None:
        """When the shard was made, from its starting sequence number; a hint. Raises UnknownShard."""
        return _created(self[shard_id])

    def history(
        self, hash_key: int | None, shard_id: str | None, sequence_number: str | None, *, aggregated: bool
    ) -> History:
        """Judge one record against the stream as it was when the record was written.

        ``aggregated``: the record's explicit hash key, or that it has none, is known. Verdicts:

            the stream distributes AUTO                             | distribution-auto
            the shard is not in the lineage, or no key is known     | unknown-shard
            outside its range: a plain record / any other           | explicit-hash-key-implied / stray
            in range, and the shard open then is this one           | expected
            in range, and the shard open then descends from this    | on-parent
            in range, and the shard open then is an ancestor        | on-child
            in range, and none of these (nothing known of then)     | expected

        On-parent and on-child accuse: a record was written to a shard that was not open, or its
        sequence number is not its own.
        Raises HashKeyError, SequenceNumberError.
        """
        number = parse_sequence_number(sequence_number) if sequence_number is not None else None
        # LIN-4: "A hint MUST NOT change a verdict."
        hint = sequence_hint(number) if number is not None else None
        chain = self.chain(hash_key) if hash_key is not None else ()
        shard = self._by_id.get(shard_id) if shard_id is not None else None
        then = None
        if hash_key is not None and number is not None:
            if shard is not None and shard not in chain:
                # A shard that never held the key: its numbers count from another start, so only the
                # time hinted at can tell.
                then = self.shard_at_time(hash_key, hint.time) if hint else None
            else:
                then = self.shard_at_sequence_number(hash_key, number)
        start = _start(shard) if shard is not None else None
        in_shard = None if start is None or number is None else number >= start

        def verdict() -> Verdict:
            if self.distribution == "AUTO":
                return Verdict.DISTRIBUTION_AUTO
            # LIN-8: "A record on a shard that lineage does not know MUST be reported as such."
            if shard is None or hash_key is None:
                return Verdict.UNKNOWN_SHARD
            if hash_key not in shard.hash_key_range:
                return Verdict.STRAY if aggregated else Verdict.EXPLICIT_HASH_KEY_IMPLIED
            # LIN-9: "A record in the range of its shard MUST be judged against the shard that was open
            # for its hash key at its own sequence number, so that a record written before a split is
            # expected on the parent."
            if then is None or then.shard_id == shard.shard_id:
                return Verdict.EXPECTED
            if then.shard_id in {found.shard_id for found in self.descendants(shard.shard_id)}:
                return Verdict.ON_PARENT
            return Verdict.ON_CHILD

        return History(verdict(), then, chain, in_shard, hint.shard_id if hint else None)

    # -- soundness ----------------------------------------------------------------------------

    def defects(self) -> tuple[LineageDefect, ...]:
        """What in this lineage AWS would not make; empty for a sound one. Expired shards are none.

        Meaningful for a listing FROM_TRIM_HORIZON: only that names the ends of closed shards.
        """
        found: list[LineageDefect] = []
        for shard in self:
            children = self.children(shard.shard_id)
            ids = (shard.shard_id, *(child.shard_id for child in children))
            # LIN-10: "A child MUST NOT be listed while its parent is open, MUST start after it, and
            # MUST lie within its parents; the two children of a split MUST tile their parent."
            if children and shard.open:
                found.append(LineageDefect("parent-open", ids))
            if len(children) > 2:
                found.append(LineageDefect("too-many-children", ids))
            if len(children) == 2:
                low, high = sorted(child.hash_key_range for child in children)
                whole = shard.hash_key_range
                if (
                    low.starting_hash_key != whole.starting_hash_key
                    or low.ending_hash_key + 1 != high.starting_hash_key
                    or high.ending_hash_key != whole.ending_hash_key
                ):
                    found.append(LineageDefect("children-do-not-tile", ids))
            found.extend(self._against_parents(shard))
        return tuple(found)

    def _against_parents(self, shard: Shard) -> Iterator[LineageDefect]:
        parents = self.parents(shard.shard_id)
        ids = (*(parent.shard_id for parent in parents), shard.shard_id)
        if parents and len(parents) == len(shard.parent_shard_ids):
            inside = shard.hash_key_range
            low = min(parent.hash_key_range.starting_hash_key for parent in parents)
            high = max(parent.hash_key_range.ending_hash_key for parent in parents)
            exact = len(parents) == 2  # a merge: the child is its parents, no less
            if not (low <= inside.starting_hash_key and inside.ending_hash_key <= high) or (
                exact and (low, high) != (inside.starting_hash_key, inside.ending_hash_key)
            ):
                yield LineageDefect("child-outside-parents", ids)
        start = _start(shard)
        for parent in parents:
            before = _start(parent)
            if start is not None and before is not None and start <= before:
                yield LineageDefect("child-not-newer", (parent.shard_id, shard.shard_id))


_Moment = TypeVar("_Moment", int, datetime)


def _last_at(chain: Iterable[tuple[_Moment | None, Shard]], moment: _Moment) -> Shard | None:
    """The last shard that begins at or before ``moment``; those without a beginning are passed over.

    None if a shard begins before the one it follows: then beginnings tell nothing.
    """
    found: Shard | None = None
    latest: _Moment | None = None
    for beginning, shard in chain:
        if beginning is None:
            continue
        if latest is not None and beginning < latest:
            return None
        latest = beginning
        if beginning <= moment:
            found = shard
    return found


def _same(known: Shard, listed: Shard) -> Shard:
    """One shard out of two listings of it. Raises ShardMapError if they cannot both be true."""
    if (
        known.hash_key_range != listed.hash_key_range
        or known.parent_shard_ids != listed.parent_shard_ids
        or (
            None not in (known.starting_sequence_number, listed.starting_sequence_number)
            and known.starting_sequence_number != listed.starting_sequence_number
        )
        or (listed.open and not known.open)
    ):
        # LIN-11: "A listing that contradicts what is known of a shard MUST be taken for another life
        # of the stream, never mixed with the first."
        raise ShardMapError(
            code="duplicate",
            reason=f"{listed.shard_id} is not what it was",
            shard_ids=(listed.shard_id,),
            requirement="LIN-11",
        )
    return listed if known.open else known
