"""What is known of a stream: its shards, its prediction table, and its generation.

A stream that is deleted and created again under its name begins a new life, with other shards under the same
ids. What was known of the old life is no longer true.

A listing is compared with what is known; only shards that have changed are looked at more closely. So a
refresh of 10,000 shards takes a few milliseconds of the thread that also sends the records.
Specification: spec/08-live-shard-map.md, MAP-2, MAP-11, MAP-16, MAP-18, MAP-20 and MAP-21.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple

from ..errors import ShardMapError
from ..format.hash_keys import HashKeyRange
from .lineage import Lineage, agreed
from .listing import StreamSummary, another_life, shard_number, superseded_shards
from .map_events import KnownShards, MapChanged
from .refresh import ShardFilterType
from .routes import NO_ROUTES, Routes, undisputed
from .sequence_numbers import SequenceNumberError, sequence_hint
from .shard import Distribution, Shard
from .shard_map import distinct_shards, first_hole

#: After so many contradicting listings in a row, they are believed.
_CONTRADICTIONS: Final = 4
#: The longest retention of a stream, in seconds.
_LONGEST_RETENTION: Final = 8760 * 3600.0
#: When a shard closed that was closed already when it was first listed.
_LONG_AGO: Final = float("-inf")


class Disputed(NamedTuple):
    """A listing with a gap or an overlap. ``shard_ids``: those that cannot be predicted because of it."""

    error: ShardMapError
    shard_ids: frozenset[str]


class KnownStream:
    """`learn` changes it by parts, or not at all. ``closed_shard_ttl``: seconds.

    ``shards``: those seen in this life, immutable. ``routes``: the prediction table. ``generation``: how many
    lives came before. ``listed_at``: when the refresh that gave the map began.
    """

    def __init__(self, closed_shard_ttl: float, shard_filter: ShardFilterType) -> None:
        self.shards = KnownShards({}, {}, "USER_PARTITION_KEY")
        self.routes = NO_ROUTES
        self.generation = 0
        self.listed_at: float | None = None
        self._whole = False  # the last listing had neither gap nor overlap
        self._ttl = closed_shard_ttl
        self._lists_closed = shard_filter == "FROM_TRIM_HORIZON"
        self._retention = _LONGEST_RETENTION
        self._closed: dict[str, float] = {}  # by shard id: when this was noticed
        self._newest = -1  # the highest shard number of this life
        self._in_order = True  # every parent has a lower id than its children: there is no cycle
        self._created: datetime | None = None
        self._contradictions = 0
        self._hints_hold = True

    # -- asking ---------------------------------------------------------------------------------

    def is_open(self, shard_id: str) -> bool:
        """Whether the shard is known, and not known to be closed."""
        shard = self.shards.all.get(shard_id)
        return shard is not None and shard.open and shard_id not in self._closed

    def hash_key_range(self, shard_id: str, now: float) -> HashKeyRange | None:
        """The range of a shard that is open, or closed at most ``closed_shard_ttl`` ago; else None."""
        # MAP-2: "A closed shard MUST stay answerable for its TTL, counted from the refresh that noticed,
        # and its range in the lineage until MAP-20 lets it be forgotten."
        shard = self.shards.all.get(shard_id)
        if shard is None:
            return None
        if not self.is_open(shard_id) and now - self._closed.get(shard_id, _LONG_AGO) > self._ttl:
            return None
        return shard.hash_key_range

    def shard_of_record(
        self, shard_id: str, sequence_number: str, generation: int, answered_at: float
    ) -> Shard | Literal["unknown", "gone"]:
        """The shard on which a record was stored; ``answered_at`` is when its put was answered.

        ``generation``: of this map when the record was put. The stream may have been deleted and made again
        since the map was listed; a shard of another life has the same id and another range.

            generation | the number is of this shard | listed since the answer | gives
            -----------+-----------------------------+-------------------------+------------------------
            the same   |                             | yes                     | the shard
            the same   | yes, or unknown             | no                      | the shard
            the same   | no                          | no                      | unknown
            another    | yes                         |                         | the shard
            another    | no, or unknown              |                         | gone

        Also unknown for a shard that was never listed. "gone": the record is in a life of the stream that is
        over.
        """
        # MAP-18: "An aggregate MUST NOT be judged by a shard of another life of the stream than the one that
        # stored it. A hint in its sequence number may delay the verdict until the stream was listed again,
        # and tell which of two lives stored it. It decides nothing else."
        shard = self.shards.all.get(shard_id)
        of_this_shard = _made_on(shard, sequence_number) if shard and self._hints_hold else None
        if self.generation != generation and not of_this_shard:
            return "gone"
        # Equal times do not count: on a coarse clock the listing may have begun before the answer.
        listed_since = self.listed_at is not None and self.listed_at > answered_at
        if shard is None:
            return "unknown"
        if of_this_shard is False:
            if not listed_since:
                return "unknown"
            self._hints_hold = False  # on this stream they have another meaning
        return shard

    # -- learning -------------------------------------------------------------------------------

    def learn(
        self, listed: Sequence[Shard], summary: StreamSummary | None, begun: float, now: float
    ) -> MapChanged | Disputed:
        """Take a listing of a refresh that began at ``begun``.

        Raises ShardMapError if it contradicts itself or what is known; then nothing has changed. (A gap or an
        overlap does not: what nobody disputes is learnt.)
        """
        by_id = distinct_shards(listed)
        known = self.shards.all
        changed = [shard for shard in by_id.values() if known.get(shard.shard_id) is not shard]
        recreated = self._recreated(by_id, changed, summary)
        if recreated:
            known, changed = {}, list(by_id.values())
        distribution = summary.distribution if summary else self.shards.distribution
        if not changed and not recreated and self._is_last(by_id, distribution):
            self.listed_at, self._contradictions = begun, 0
            self._learn_summary(summary)
            return MapChanged(now, self.shards, (), (), recreated=False, superseded=())
        superseded = superseded_shards(by_id.values())
        opened = sorted(
            (shard for shard in by_id.values() if shard.open and shard.shard_id not in superseded),
            key=lambda shard: shard.hash_key_range,
        )
        everything, in_order = self._with(changed, known)
        hole = first_hole(opened)
        if hole is not None and recreated:
            raise hole
        if hole is not None:
            predicted, disputed = undisputed(opened, everything)
            # Nothing is learnt of shards that may be wrong.
            changed = [shard for shard in changed if shard.shard_id not in disputed]
            everything, in_order = self._with(changed, known)
            self._note(changed, known, now)
            self.shards, self._in_order = KnownShards(everything, self.shards.listed, distribution), in_order
            self.routes, self._whole = Routes(predicted), False
            return Disputed(hole, disputed)
        # Nothing below can fail.
        before: Mapping[str, Shard] = {} if recreated else self.shards.listed
        if recreated:
            self.generation += 1
            self._hints_hold, self._newest = True, -1
            self._created, self._retention = None, _LONGEST_RETENTION
            self._closed.clear()
        shown = {i: shard for i, shard in by_id.items() if i not in superseded} if superseded else by_id
        open_now = {shard.shard_id for shard in opened}
        open_before = {i for i, shard in before.items() if shard.open}
        closed = open_before - open_now
        for shard_id in closed | superseded:
            self._closed.setdefault(shard_id, now)
        self._note(changed, known, now)
        self._learn_summary(summary)
        for shard_id in self._expired(by_id, now):
            del everything[shard_id], self._closed[shard_id]
        self.shards, self._in_order = KnownShards(everything, shown, distribution), in_order
        self.routes, self._whole = Routes(opened), True
        self.listed_at, self._contradictions = begun, 0
        return MapChanged(
            at=now,
            shards=self.shards,
            opened=tuple(sorted(open_now - open_before)),
            closed=tuple(sorted(closed)),
            recreated=recreated,
            superseded=tuple(sorted(superseded)),
        )

    def _with(self, changed: Sequence[Shard], known: Mapping[str, Shard]) -> tuple[dict[str, Shard], bool]:
        """All known shards by id, with the changed ones; and whether parents have lower ids than children.
        Raises ShardMapError: a contradiction, a cycle."""
        everything = dict(known)
        in_order = self._in_order or not known
        for shard in changed:
            before = known.get(shard.shard_id)
            if before is None:
                everything[shard.shard_id] = shard
                in_order = in_order and all(parent < shard.shard_id for parent in shard.parent_shard_ids)
            elif before.open or not shard.open:  # (what is known to be closed may be listed as open: MAP-12)
                everything[shard.shard_id] = agreed(before, shard)
        if not in_order:
            Lineage(everything.values())  # refuses a cycle
        return everything, in_order

    def _learn_summary(self, summary: StreamSummary | None) -> None:
        if summary is not None:
            self._created = summary.created or self._created
            self._retention = summary.retention or self._retention

    def _note(self, changed: Sequence[Shard], known: Mapping[str, Shard], now: float) -> None:
        """Note which shards have closed, and the highest number."""
        for shard in changed:
            if not shard.open:
                noticed = now if shard.shard_id in known else _LONG_AGO
                self._closed.setdefault(shard.shard_id, noticed)
            number = shard_number(shard.shard_id)
            if number is not None and number > self._newest:
                self._newest = number

    def _is_last(self, listed: Mapping[str, Shard], distribution: Distribution) -> bool:
        """Whether the last listing was sound and had the same shards, none of them superseded."""
        last = self.shards
        return self._whole and listed.keys() == last.listed.keys() and distribution == last.distribution

    def _expired(self, listed: Mapping[str, Shard], now: float) -> list[str]:
        """The closed shards of which the stream holds nothing more."""
        # MAP-20: "A closed shard MUST be forgotten when its TTL is over and a listing FROM_TRIM_HORIZON no
        # longer has it; of a listing that leaves closed shards out, when it has been closed for longer than
        # the stream's retention, 365 days if that is not known."
        keep = self._ttl if self._lists_closed else max(self._ttl, self._retention)
        return [i for i, noticed in self._closed.items() if i not in listed and now - noticed > keep]

    def _recreated(
        self, listed: Mapping[str, Shard], changed: Sequence[Shard], summary: StreamSummary | None
    ) -> bool:
        """Whether ``listed`` is another life of the stream. Raises ShardMapError(code="contradiction")."""
        # MAP-11: "A stream deleted and created again under its name MUST be told from the old one, and
        # nothing known of the old one kept."
        same_creation = None
        if self._created is not None and summary is not None and summary.created is not None:
            same_creation = self._created == summary.created
        try:
            return another_life(
                listed, changed, self.shards.all, self._closed, self._newest, same_creation=same_creation
            )
        except ShardMapError:
            # MAP-16: "A listing that contradicts what is known MUST be refused, but one that comes a fourth
            # time running MUST be believed: it is another life of the stream."
            self._contradictions += 1
            if self._contradictions < _CONTRADICTIONS:
                raise
            return True


def _made_on(shard: Shard, sequence_number: str) -> bool | None:
    """Whether this shard gave out the number; None where the numbers give no hint."""
    try:
        first, number = sequence_hint(shard.starting_sequence_number or ""), sequence_hint(sequence_number)
    except SequenceNumberError:
        return None
    if first is None or number is None or first.shard_id != shard.shard_id:
        return None  # kinesis-local gives the child of a merge the start of its second parent
    return (number.shard_index, number.shard_created) == (first.shard_index, first.shard_created)
