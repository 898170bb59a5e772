"""Where records belong: hash key ranges, shards and their lineage, the verdict on each record."""

from .lineage import Lineage, LineageDefect
from .shard import Shard
from .shard_map import ShardMap

__all__ = ["Lineage", "LineageDefect", "Shard", "ShardMap"]
