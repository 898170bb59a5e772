"""Where records belong: hash key ranges, shards and their lineage, the verdict on each record."""

from .lineage import Lineage, LineageDefect
from .shard_map import Shard, ShardMap

__all__ = ["Lineage", "LineageDefect", "Shard", "ShardMap"]
