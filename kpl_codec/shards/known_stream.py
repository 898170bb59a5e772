"""What is known of a stream: its shard map, its lineage, and its generation.

A stream that is deleted and created again under its name begins a new life, with other shards under the same
ids. What was known of the old life is no longer true.
Specification: spec/08-live-shard-map.md, MAP-2, MAP-11, MAP-16 and MAP-18.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

from ..errors import ShardMapError
from ..format.hash_keys import HashKeyRange
from .lineage import Lineage
from .listing import StreamSummary, another_life, not_known_closed, superseded_shards
from .map_events import MapChanged
from .sequence_numbers import SequenceNumberError, sequence_hint
from .shard import Distribution, Shard
from .shard_map import ShardMap

#: After so many contradicting listings in a row, they are believed.
_CONTRADICTIONS: Final = 4


class KnownStream:
    """`learn` changes it as a whole or not at all. ``closed_shard_ttl``: seconds.

    ``shard_map``: of the last sound listing. ``lineage``: every shard seen in this life. ``generation``:
    how many lives came before. ``listed_at``: when the refresh that gave the map began.
    """

    def __init__(self, closed_shard_ttl: float) -> None:
        self.shard_map: ShardMap | None = None
        self.lineage = Lineage(())
        self.generation = 0
        self.listed_at: float | None = None
        self._ttl = closed_shard_ttl
        self._closed: dict[str, tuple[Shard, float]] = {}
        self._gone: set[str] = set()
        self._distribution: Distribution = "USER_PARTITION_KEY"
        self._created: datetime | None = None
        self._contradictions = 0
        self._hints_hold = True

    # -- asking ---------------------------------------------------------------------------------

    def hash_key_range(self, shard_id: str, now: float) -> HashKeyRange | None:
        """The range of a shard that is open, or closed at most ``closed_shard_ttl`` ago; else None."""
        # MAP-2: "A closed shard MUST stay answerable for its TTL, counted from the refresh that noticed,
        # and its range in the lineage for ever."
        closed = self._closed.get(shard_id)
        if closed is not None:
            return closed[0].hash_key_range if now - closed[1] <= self._ttl else None
        if self.shard_map is not None and shard_id in self.shard_map and self.shard_map[shard_id].open:
            return self.shard_map[shard_id].hash_key_range
        return None

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
        # MAP-18: "A record MUST NOT be judged by a shard of another life of the stream. What its sequence
        # number hints at may hold a verdict back until the stream was listed again, and tell to which of two
        # lives a record went; nothing else."
        shard = self.lineage.get(shard_id)
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
    ) -> MapChanged:
        """Take a listing of a refresh that began at ``begun``. Raises ShardMapError if it is not sound or
        contradicts what is known; then nothing has changed."""
        created = summary.created if summary else None
        distribution = summary.distribution if summary else self._distribution
        superseded = superseded_shards(listed)
        recreated = self._recreated(listed, created)
        lineage = (
            Lineage(listed) if recreated else self.lineage.merged(not_known_closed(listed, self.lineage))
        )
        new = ShardMap((shard for shard in listed if shard.shard_id not in superseded), distribution)
        # Nothing below can fail, so the map changes as a whole.
        old = {shard.shard_id: shard for shard in self.shard_map.open_shards} if self.shard_map else {}
        if recreated:
            self.generation += 1
            self._hints_hold = True
            old = {}
            self._closed.clear()
            self._gone.clear()
        open_now = {shard.shard_id for shard in new.open_shards}
        closed = {shard_id: shard for shard_id, shard in old.items() if shard_id not in open_now}
        self._closed = {i: entry for i, entry in self._closed.items() if now - entry[1] <= self._ttl}
        self._closed |= {shard_id: (shard, now) for shard_id, shard in closed.items()}
        self._gone |= closed.keys() | superseded | {shard.shard_id for shard in listed if not shard.open}
        self.shard_map, self.lineage, self._distribution = new, lineage, distribution
        self._created = created or (None if recreated else self._created)
        self.listed_at = begun
        self._contradictions = 0
        opened = tuple(sorted(open_now - old.keys()))
        return MapChanged(now, new, opened, tuple(sorted(closed)), recreated, tuple(sorted(superseded)))

    def _recreated(self, listed: Sequence[Shard], created: datetime | None) -> bool:
        """Whether ``listed`` is another life of the stream. Raises ShardMapError(code="contradiction")."""
        # MAP-11: "A stream deleted and created again under its name MUST be told from the old one, and
        # nothing known of the old one kept."
        same_creation = None
        if self._created is not None and created is not None:
            same_creation = self._created == created
        try:
            return another_life(listed, self.lineage, self._gone, same_creation)
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
