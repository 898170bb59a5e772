"""Where records belong: hash key ranges, shards and their lineage, the verdict on each record."""
