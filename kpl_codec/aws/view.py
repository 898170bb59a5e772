"""What the thread skin and the asyncio skin both show of their live shard map."""

from __future__ import annotations

from ..lineage import Lineage
from ..live_shard_map import LiveShardMap, State, StreamUnavailable
from ..shards import ShardMap


class LiveShardMapView:
    """Reads of one attribute each: no lock, no waiting."""

    _live: LiveShardMap

    @property
    def state(self) -> State:
        return self._live.state

    @property
    def shard_map(self) -> ShardMap | None:
        """The last sound map, trusted or not."""
        return self._live.shard_map

    @property
    def lineage(self) -> Lineage:
        """Every shard seen in this life of the stream."""
        return self._live.lineage

    @property
    def generation(self) -> int:
        """How often the stream was seen to be deleted and created again."""
        return self._live.generation

    @property
    def error(self) -> StreamUnavailable | None:
        """Why the last refresh failed; None after one that did not."""
        return self._live.error

    def predict(self, hash_key: int) -> str | None:
        """The open shard for ``hash_key``, None unless the map is READY."""
        return self._live.predict(hash_key)
