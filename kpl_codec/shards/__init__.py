"""Where records belong: hash key ranges, shards, their lineage, whether a record lies there."""

from .shard_map import Shard, ShardMap

__all__ = ["Shard", "ShardMap"]
