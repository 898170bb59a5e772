"""Why an aggregate has user records outside its shard's range, as far as the shards of the stream show."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from .sequence_numbers import sequence_hint
from .shard import Shard
from .shard_map import ShardMap

#: A reshard explains a misplaced record only if it is written within this time after it.
RESHARD_WINDOW = timedelta(minutes=10)

ACROSS_SHARDS = "across-shards"
RESHARD = "reshard"
WRONG_SHARD = "wrong-shard"
UNKNOWN_LINEAGE = "unknown-lineage"

#: What each cause means, for people.
CAUSES = {
    ACROSS_SHARDS: "no shard ever held all its hash keys: its writer does not look at shards",
    RESHARD: "written for a shard that was split or merged meanwhile",
    WRONG_SHARD: "all its hash keys belong to one other shard: it was put under a key that is not its own",
    UNKNOWN_LINEAGE: "the shard's parent has expired, so a reshard can neither be seen nor ruled out",
}


class Cause(NamedTuple):
    """``name`` is a key of `CAUSES`; ``shard_id`` the shard that held all the hash keys, if one did."""

    name: str
    shard_id: str | None = None


def hinted_time(sequence_number: str | None) -> datetime | None:
    """When a record was written, by the hint in its sequence number."""
    hint = sequence_hint(sequence_number)
    return hint.time if hint else None


class Causes:
    """Finds the cause for aggregates on the shards of ``shard_map``."""

    def __init__(self, shard_map: ShardMap) -> None:
        self._map = shard_map
        self._ancestors = lru_cache(maxsize=4096)(shard_map.ancestors)

    def _closed_lately(self, shard: Shard, at: datetime | None) -> bool | None:
        """Whether the shard was closed within the window before ``at``; None if unknown."""
        closed_at = self._map.closed_at(shard.shard_id)
        return None if at is None or closed_at is None else closed_at > at - RESHARD_WINDOW

    def of(self, shard_id: str, lowest: int, highest: int, at: datetime | None) -> Cause:
        """For an aggregate on a listed shard, by its lowest and highest hash key and when it was put."""
        parents = {shard.shard_id for shard in self._map.parents(shard_id)}
        for shard in self._ancestors(shard_id):
            if lowest in shard.hash_key_range and highest in shard.hash_key_range:
                lately = self._closed_lately(shard, at)
                if lately or (lately is None and shard.shard_id in parents):
                    return Cause(RESHARD, shard.shard_id)
        other = self._map.shard_for(lowest)
        for shard in (other, *self._ancestors(other.shard_id)):
            if highest in shard.hash_key_range and (shard.open or self._closed_lately(shard, at)):
                return Cause(WRONG_SHARD, shard.shard_id)
        if self._map.unknown_parents.get(shard_id):
            return Cause(UNKNOWN_LINEAGE)
        return Cause(ACROSS_SHARDS)
