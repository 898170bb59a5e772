"""The events of a live shard map: what a refresh led to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, NamedTuple

from ..aws_errors import what_to_check
from ..errors import KplError
from .lineage import Lineage
from .shard import Distribution, Shard
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
    text = "{operation} failed for stream {stream}: {code}: {reason}"
    concerns = "Whoever needs the shard map now. A map read before stays in use."
    todo = (
        "The code is AWS's own. ResourceNotFoundException: check name and region. AccessDeniedException: "
        "allow kinesis:ListShards and kinesis:DescribeStreamSummary. LimitExceededException: wait."
    )
    codes = ("ResourceNotFoundException", "AccessDeniedException", "LimitExceededException")

    def describe(self) -> str:
        """What failed, and what to check."""
        check = what_to_check(self.code)
        return f"{super().describe().rstrip('.')}; {check}" if check else super().describe()


class KnownShards:
    """The shards known after a listing. Never changes: the next listing makes a new one.

    ``all``: every shard of this life that is not forgotten, by id. ``listed``: those of the last sound
    listing. ``shard_map`` and ``lineage`` are made when they are first read, which takes 50 ms for 10,000
    shards. The producer needs neither.
    """

    def __init__(
        self, all: Mapping[str, Shard], listed: Mapping[str, Shard], distribution: Distribution
    ) -> None:
        self.all = all
        self.listed = listed
        self.distribution: Distribution = distribution
        # Threads share it, and cached_property asks for its __dict__. On CPython 3.11 two threads that are
        # the first to do so can get two, which corrupts memory.
        vars(self)

    @cached_property
    def open_ids(self) -> frozenset[str]:
        """The ids of the open shards of the last sound listing."""
        return frozenset(shard_id for shard_id, shard in self.listed.items() if shard.open)

    @cached_property
    def lineage(self) -> Lineage:
        """Every known shard."""
        return Lineage(self.all.values())

    @cached_property
    def shard_map(self) -> ShardMap | None:
        """Of the last sound listing; None before the first."""
        return ShardMap(self.listed.values(), self.distribution) if self.listed else None


#: Before the first listing.
NO_SHARDS: Final = KnownShards({}, {}, "USER_PARTITION_KEY")


class MapChanged(NamedTuple):
    """A refresh has given a map, perhaps the same as before.

    ``opened`` and ``closed``: shard ids, compared with the map before; in the first map all open shards are
    opened. ``recreated``: the stream was deleted and created again; what was known of the old one is no
    longer true.
    """

    shards: KnownShards
    opened: tuple[str, ...]
    closed: tuple[str, ...]
    recreated: bool

    @property
    def shard_map(self) -> ShardMap:
        """The new map. Made when it is first read."""
        shard_map = self.shards.shard_map
        assert shard_map is not None
        return shard_map


class RefreshFailed(NamedTuple):
    """A refresh has failed; ``retry_at`` is when the next one starts. ``learnt``: its listing had a gap or an
    overlap, and what it says of the other shards counts."""

    at: float
    error: StreamUnavailable
    retry_at: float
    learnt: bool = False
