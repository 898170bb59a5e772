"""What comes of a refresh of a live shard map."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import KplError
from .shard_map import ShardMap


class StreamUnavailable(KplError):
    """A refresh failed. ``stream``, ``operation``, ``code`` (AWS's name of the error, or a ShardMapError
    code), ``reason``; ``permanent``: no retry mends it by itself, somebody has to change something."""

    code: str
    requirement = "MAP-8"
    stream: str
    operation: str
    reason: str
    permanent: bool = False
    text = "{operation} of stream {stream} failed: {code}: {reason}"


class MapChanged(NamedTuple):
    """A refresh has given a map, maybe the same as before.

    ``opened`` and ``closed`` shard ids against the map before; on the first map all open ones are
    opened. ``recreated``: the stream was deleted and created again under its name; nothing known of
    the old one holds. ``superseded``: listed as open, but together with children that replace them.
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
