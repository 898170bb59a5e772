"""The events of a live shard map: what a refresh led to."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import KplError
from .shard_map import ShardMap


class StreamUnavailable(KplError):
    """A refresh failed. ``stream``, ``operation``, ``code`` (AWS's name of the error, or a ShardMapError
    code), ``reason``; ``permanent``: a retry cannot solve it, somebody has to change something."""

    code: str
    requirement = "MAP-8"
    stream: str
    operation: str
    reason: str
    permanent: bool = False
    text = "{operation} of stream {stream} failed: {code}: {reason}"


class MapChanged(NamedTuple):
    """A refresh has given a map, perhaps the same as before.

    ``opened`` and ``closed``: shard ids, compared with the map before; in the first map all open shards are
    opened. ``recreated``: the stream was deleted and created again; what was known of the old one is no
    longer true. ``superseded``: listed as open together with the children that replace them.
    """

    at: float
    shard_map: ShardMap
    opened: tuple[str, ...]
    closed: tuple[str, ...]
    recreated: bool
    superseded: tuple[str, ...]


class RefreshFailed(NamedTuple):
    """A refresh has failed; ``retry_at`` is when the next one starts."""

    at: float
    error: StreamUnavailable
    retry_at: float
