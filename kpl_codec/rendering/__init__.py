"""Draws pictures of shards, as text and as SVG: the hash key space, the lineage in time, the skew."""
