"""Pictures of shards: the key space, the lineage in time, skew; as text and as SVG."""
