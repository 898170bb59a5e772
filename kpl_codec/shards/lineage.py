"""Lineage: the known shards of a stream, open and closed, and how they descend from one another. Closed
shards may be missing, because the service forgets them when their records expire. Specification:
spec/08-live-shard-map.md, LIN.

    shardId-0 [0 .......... max]  ──split──▶  shardId-1 [0 .. mid]  ──┐
                                              shardId-2 [mid+1 .. max] ┴─merge──▶  shardId-3 [0 .. max]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from ..base.arguments import argument_error, check_arguments
from ..errors import ShardMapError, UnknownShard
from ..format.hash_keys import HashKeyRange
from .sequence_numbers import sequence_hint
from .shard import Distribution, Shard

if TYPE_CHECKING:
    from .stream_name import Stream


class Lineage(Mapping[str, Shard]):
    """The known shards of one life of a stream by their ids, parents before children. Immutable.

    A shard that is there twice, open and then closed, is closed. ``stream``: its name or ARN, if that is
    known; it does not count for equality. Raises ShardMapError: cycle; duplicate (two shards with one id
    differ in range, parents or start).

        >>> import kpl_codec as kpl
        >>> low, high = kpl.ALL_HASH_KEYS.split(2)
        >>> parent = kpl.Shard("shardId-0", kpl.ALL_HASH_KEYS, ending_sequence_number="9")
        >>> left = kpl.Shard("shardId-1", low, parent_shard_id="shardId-0")
        >>> right = kpl.Shard("shardId-2", high, parent_shard_id="shardId-0")
        >>> lineage = kpl.Lineage([parent, left, right])
        >>> [child.shard_id for child in lineage.children("shardId-0")], lineage.generation("shardId-2")
        (['shardId-1', 'shardId-2'], 1)
    """

    def __init__(
        self,
        shards: Iterable[Shard],
        *,
        distribution: Distribution = "USER_PARTITION_KEY",
        stream: Stream | str | None = None,
    ) -> None:
        named = not hasattr(stream, "argument")  # (a Stream is one already)
        given = {"distribution": distribution, "stream": stream if named and stream is not None else ""}
        check_arguments(type(self).__name__, given)
        if isinstance(stream, str):
            from .stream_name import stream_of  # slow to import

            stream = stream_of(stream)
        self.stream = stream
        by_id: dict[str, Shard] = {}
        for shard in checked_shards(type(self).__name__, shards):
            before = by_id.get(shard.shard_id)
            by_id[shard.shard_id] = shard if before is None else merge_shard(before, shard)
        self.distribution: Distribution = distribution
        self._children: dict[str, list[str]] = {}
        for shard in sorted(by_id.values(), key=lambda shard: shard.shard_id):
            for parent in dict.fromkeys(shard.parent_shard_ids):
                self._children.setdefault(parent, []).append(shard.shard_id)
        self._by_id = _parents_first(by_id)
        self._order = {shard_id: index for index, shard_id in enumerate(self._by_id)}
        self._generations: dict[str, int] = {}
        for shard in self._by_id.values():
            above = (self._generations[p] for p in shard.parent_shard_ids if p in self._generations)
            self._generations[shard.shard_id] = 1 + max(above, default=-1)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def __getitem__(self, shard_id: str) -> Shard:
        # SHD-4: "A shard that is not listed MUST be reported as unknown, never taken for another."
        try:
            return self._by_id[shard_id]
        except KeyError:
            raise UnknownShard(shard_id=shard_id, shard_ids=(shard_id,)) from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Lineage):
            return False
        return self.distribution == other.distribution and self._by_id == other._by_id

    def __hash__(self) -> int:
        return hash(frozenset(self._by_id.values()))

    def __repr__(self) -> str:
        return f"<Lineage of {len(self)} shards>"

    def parents(self, shard_id: str) -> tuple[Shard, ...]:
        """The known parents of a shard. Raises UnknownShard."""
        return tuple(self._by_id[p] for p in self[shard_id].parent_shard_ids if p in self._by_id)

    def children(self, shard_id: str) -> tuple[Shard, ...]:
        """The known children of a shard, which itself may have expired."""
        # ARG-10: "What runs for each record MUST give no answer to a value of another type."
        if not isinstance(shard_id, str):  # it would be one more shard without children
            raise argument_error("Lineage.children", "shard_id", shard_id, give="the id of a shard")
        return tuple(self._by_id[child] for child in self._children.get(shard_id, ()))

    def _above(self, shard_id: str) -> Iterator[str]:
        visited = {shard_id}
        queue = deque([shard_id])
        while queue:
            for parent in self._by_id[queue.popleft()].parent_shard_ids:
                if parent in self._by_id and parent not in visited:
                    visited.add(parent)
                    queue.append(parent)
                    yield parent

    def ancestors(self, shard_id: str) -> tuple[Shard, ...]:
        """All known ancestors, oldest first, in O(n log n) of their number. Raises UnknownShard."""
        _ = self[shard_id]
        return tuple(self._by_id[i] for i in sorted(self._above(shard_id), key=self._order.__getitem__))

    def is_descendant(self, shard_id: str, ancestor_id: str) -> bool:
        """Whether ``shard_id`` is known to descend from ``ancestor_id``, which may itself have expired."""
        for name, value in (("shard_id", shard_id), ("ancestor_id", ancestor_id)):
            if not isinstance(value, str):
                raise argument_error("Lineage.is_descendant", name, value, give="the id of a shard")
        if shard_id not in self._by_id:
            return False
        children = self._children.get(ancestor_id, ())
        return shard_id in children or any(above in children for above in self._above(shard_id))

    def generation(self, shard_id: str) -> int:
        """The number of reshards since the oldest known ancestor. Raises UnknownShard."""
        return self._generations[self[shard_id].shard_id]

    def created(self, shard_id: str) -> datetime | None:
        """When the shard was created, by the hint in its starting sequence number; None without one. Raises
        UnknownShard."""
        hint = sequence_hint(self[shard_id].starting_sequence_number)
        return hint.shard_created if hint else None

    def closed_at(self, shard_id: str) -> datetime | None:
        """When the shard was closed: when its first child was created, else by the hint in its ending
        sequence number; None for an open shard, and without a hint. Raises UnknownShard."""
        shard = self[shard_id]
        if shard.open:
            return None
        times = [self.created(child.shard_id) for child in self.children(shard_id)]
        hint = sequence_hint(shard.ending_sequence_number)
        return min(filter(None, times), default=hint.time if hint else None)


def distinct_shards(listing: Iterable[Shard]) -> dict[str, Shard]:
    """The shards of one listing by id, in their order. Raises ShardMapError: empty, duplicate."""
    by_id: dict[str, Shard] = {}
    for shard in listing:
        # SHD-3: "A listing that names one shard twice with different facts MUST be refused."
        if by_id.setdefault(shard.shard_id, shard) != shard:
            raise ShardMapError(
                code="duplicate",
                reason=f"{shard.shard_id} is listed twice, differently",
                shard_ids=(shard.shard_id,),
            )
    if not by_id:
        raise ShardMapError(code="empty", reason="it has no shards", shard_ids=())
    return by_id


def _parents_first(by_id: dict[str, Shard]) -> dict[str, Shard]:
    """The shards with parents before children: by their ids if these grow from parent to child, as AWS's do,
    else in topological order."""
    parents = {i: [p for p in by_id[i].parent_shard_ids if p in by_id] for i in sorted(by_id)}
    ids: Iterable[str] = parents
    if any(parent >= i for i, above in parents.items() for parent in above):
        try:
            ids = tuple(TopologicalSorter(parents).static_order())
        except CycleError as error:
            # SHD-6: "A listing in which a shard descends from itself MUST be refused."
            cycle = tuple(sorted({*error.args[1]}))
            reason = f"{cycle[0]} descends from itself"
            raise ShardMapError(code="cycle", reason=reason, shard_ids=cycle) from None
    return {i: by_id[i] for i in ids}


def checked_shards(function: str, shards: Iterable[Shard]) -> list[Shard]:
    """The ``shards`` in a list. Raises TypeError for what is no Shard, or one with fields of other types."""
    try:
        listed = [*shards]
        for shard in listed:
            texts = (*shard.parent_shard_ids, shard.starting_sequence_number, shard.ending_sequence_number)
            if not all(isinstance(text, str) for text in (shard.shard_id, *texts) if text is not None):
                raise TypeError
            if shard.shard_id is None or not isinstance(shard.hash_key_range, HashKeyRange):
                raise TypeError
    except (TypeError, AttributeError):
        give = (
            "Shards, each with texts as shard_id, parents and sequence numbers, and a HashKeyRange; of "
            "answers ShardMap.from_list_shards"
        )
        raise argument_error(function, "shards", shards, give=give) from None
    return listed


def merge_shard(before: Shard, now: Shard) -> Shard:
    """A shard with what two listings say of it. Raises ShardMapError if the two contradict each other."""
    if before.contradicts(now) or (now.open and not before.open):
        # LIN-5: "Facts about a shard MUST only be added: its range, parents and starting sequence number
        # never change, and a closed shard never opens again."
        # LIN-11: "A listing that contradicts what is known of a shard MUST be taken for another life
        # of the stream, never mixed with the first."
        raise ShardMapError(
            code="duplicate",
            reason=f"{now.shard_id} differs from what was listed before",
            shard_ids=(now.shard_id,),
            requirement="LIN-11",
        )
    return now if before.open else before
