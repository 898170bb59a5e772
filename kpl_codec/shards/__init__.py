"""Where records belong: hash key ranges, shards, their lineage, whether a record lies there."""

from .lineage import Lineage, LineageDefect
from .shard_map import Shard, ShardMap

__all__ = ["Lineage", "LineageDefect", "Shard", "ShardMap"]
