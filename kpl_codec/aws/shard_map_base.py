"""The common parts of the live shard maps with a thread and with asyncio."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..shards.lineage import Lineage
from ..shards.live_shard_map import LiveShardMap, State, StreamUnavailable
from ..shards.shard_map import ShardMap


class LiveShardMapView:
    """A `LiveShardMap`, its client and its clock. Each property reads one attribute: no lock, no waiting.

    ``stream``: its name or ARN. ``settings`` are those of `LiveShardMap`. Times are of ``clock``, in seconds.
    """

    def __init__(
        self,
        client: Any,
        stream: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        **settings: Any,
    ) -> None:
        self._client = client
        self._clock = clock
        self._live = LiveShardMap(stream, **settings)

    @property
    def state(self) -> State:
        """See the table of `kpl_codec.shards.live_shard_map`."""
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
        """How many times the stream was deleted and created again, as far as seen."""
        return self._live.generation

    @property
    def error(self) -> StreamUnavailable | None:
        """Why the last refresh failed; None if it did not."""
        return self._live.error

    def predict(self, hash_key: int) -> str | None:
        """The open shard for ``hash_key``, None unless the map is READY."""
        return self._live.predict(hash_key)
